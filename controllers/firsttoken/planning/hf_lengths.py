"""The longest sequence of a model, from its config.json, as vLLM counts it (0.32, `_get_and_verify_max_len`)."""

from collections.abc import Mapping
from typing import Any

from firsttoken.planning.hf_bounds import MOST, refuse
from firsttoken.planning.hf_fields import Fields

# Types of rope whose factor max_position_embeddings already holds, or that have none.
STRETCHED_ALREADY = ("default", "mrope", "su", "longrope", "llama3", "deepseek_llama_scaling")
# Types whose factor stretches the length that the model was trained at first, whatever max_position_embeddings holds:
# Qwen's model cards have users add it beside the unstretched length, DeepSeek publishes the stretched one.
FROM_ORIGINAL = ("yarn", "deepseek_yarn")


def positions(given: Fields) -> int:
    """The longest sequence, tokens: stretched by rope's factor where the config counts without it."""
    longest = given.needed("max_position_embeddings")
    key = next((k for k in ("rope_scaling", "rope_parameters") if given.text.get(k)), "")
    rope = given.text.get(key, {})
    if not given.family.rope_stretches:
        return longest
    kind, factor = rope.get("rope_type") or rope.get("type"), rope.get("factor")
    number = factor if isinstance(factor, int | float) and not isinstance(factor, bool) else 1
    if kind in FROM_ORIGINAL:
        base = _original(key, rope)
        return longest if base is None else _stretched(key, base, number)
    if kind in STRETCHED_ALREADY or kind is None or number < 1:
        return longest
    return _stretched(key, longest, number)


def _original(key: str, rope: Mapping[str, Any]) -> int | None:
    """What yarn's factor multiplies; None where the config leaves it out: then its maximum is all that is known."""
    name = "original_max_position_embeddings"
    value = rope.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 or not 0 < value <= MOST:
        raise refuse(f"{key}.{name}", value, "not a number above 0")
    return int(value)


def _stretched(key: str, base: int, factor: float) -> int:
    """Raises InfeasibleError for a length that no model has."""
    if not 1 <= factor * base <= MOST:
        raise refuse(f"{key}.factor", factor, f"which stretches {base} tokens to less than 1 or beyond {MOST}")
    return int(base * factor)
