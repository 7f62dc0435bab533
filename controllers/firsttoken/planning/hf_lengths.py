"""The longest sequence of a model, from its config.json, as vLLM counts it (0.32, `_get_and_verify_max_len`)."""

from collections.abc import Mapping
from typing import Any

from firsttoken.planning.hf_bounds import MOST, refuse
from firsttoken.planning.hf_fields import Fields
from firsttoken.planning.hf_sieve import LAYER_TYPES, ROPES

# Types of rope whose factor max_position_embeddings already holds, or that have none.
STRETCHED_ALREADY = ("default", "mrope", "su", "longrope", "llama3", "deepseek_llama_scaling")
# Types whose factor stretches the length that the model was trained at first, whatever max_position_embeddings holds:
# Qwen's model cards have users add it beside the unstretched length, DeepSeek publishes the stretched one.
FROM_ORIGINAL = ("yarn", "deepseek_yarn")


def positions(given: Fields) -> int:
    """The longest sequence, tokens: stretched by rope's factor where the config counts without it."""
    longest = given.needed("max_position_embeddings")
    if not given.family.rope_stretches:
        return longest
    key, rope = _rope(given)
    kind, factor = rope.get("rope_type") or rope.get("type"), rope.get("factor")
    number = factor if isinstance(factor, int | float) and not isinstance(factor, bool) else 1
    if kind in FROM_ORIGINAL:
        base = _original(key, rope)
        return longest if base is None else _stretched(key, base, number)
    if kind in STRETCHED_ALREADY or kind is None or number < 1:
        return longest
    return _stretched(key, longest, number)


def _rope(given: Fields) -> tuple[str, Mapping[str, Any]]:
    """The rope that decides how far the model sees, and its path in config.json.

    transformers 5 writes one for each type of layer. Layers with a window look back no further than that, so theirs
    decides only where no others are. (vLLM takes the last that has a factor, and assumes that all have the same.)
    """
    key = next((k for k in ROPES if given.text.get(k)), "")
    rope: Mapping[str, Any] = given.text.get(key, {})
    kind = next((t for t in LAYER_TYPES if t in rope), None)
    return (key, rope) if kind is None else (f"{key}.{kind}", rope[kind])


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
