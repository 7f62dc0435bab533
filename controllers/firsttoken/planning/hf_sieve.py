"""The keys of a config.json that the planner reads, and nothing else: what a record can hold of somebody's file.

Numbers are finite, texts are short and printable, lists are no longer than the model has layers.
"""

from collections.abc import Mapping
from typing import Any

from firsttoken.planning.hf_bounds import MOST_WHOLE, is_container, quoted, scalar
from firsttoken.planning.hf_families import KEYS, Config

MOST_LAYERS = 1000  # as in the API: a number from somebody's file bounds no work
# Facts with bounds of their own: whoever reads one refuses what is no number, by its name.
NUMBERS = frozenset(k for name, keys in KEYS.items() if name != "tie_word_embeddings" for k in keys if "." not in k)
SCALARS = frozenset((
    "model_type", "torch_dtype", "dtype", "tie_word_embeddings", "sliding_window_pattern", "use_sliding_window",
    "max_window_layers", "multi_query", "new_decoder_architecture", "alibi", "expansion_ratio", "n_shared_experts",
    "shared_expert_intermediate_size", "first_k_dense_replace", "decoder_sparse_step", "moe_layer_freq",
    "spatial_merge_size",
))  # fmt: skip
_ROPE = ("rope_type", "type", "factor", "original_max_position_embeddings")
ROPES = ("rope_scaling", "rope_parameters")
LAYER_TYPES = ("full_attention", "sliding_attention")  # that the planner knows; transformers 5 has a rope for each
INNER: Mapping[str, tuple[str, ...]] = {
    "rope_scaling": _ROPE,
    "rope_parameters": _ROPE,
    "attn_config": ("kv_n_heads", "attn_type", "alibi"),
    "vision_config": (
        "hidden_size", "intermediate_size", "num_hidden_layers", "depth", "patch_size", "image_size",
        "spatial_merge_size",
    ),
}  # fmt: skip
# Everything that is read beside KEYS, in the order of the families.
READ = (*sorted(SCALARS), "architectures", "layer_types", "mlp_only_layers", *INNER)


def sieve(config: Config) -> dict[str, Any]:
    """What is read of a config.json, its quantization_config left out.

    Raises InfeasibleError (UnknownModel) for a value that is no finite number and no text, by its name.
    """
    kept = _level(config, "")
    if isinstance(config.get("text_config"), Mapping):
        kept["text_config"] = _level(config["text_config"], "text_config.")
    return kept


def layers_of(text: Config) -> int:
    """How many layers a text model says it has, at most MOST_LAYERS; 0 where it says nothing."""
    there = (text.get(key) for key in KEYS["num_hidden_layers"])
    value = next((v for v in there if v is not None), 0)
    usable = isinstance(value, int | float) and not isinstance(value, bool) and value >= 1
    return int(min(value, MOST_LAYERS)) if usable else 0


def _level(config: Config, where: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key in sorted(config, key=str):  # of two values that are refused the same one is named, whatever their order
        value = config[key]
        if key in NUMBERS:
            kept[key] = _number(value)
        elif key in SCALARS and not is_container(value):
            kept[key] = scalar(f"{where}{key}", value)
        elif key in INNER and isinstance(value, Mapping):
            kept[key] = _inner(value, f"{where}{key}", INNER[key])
            if key in ROPES:
                types = {t: value[t] for t in LAYER_TYPES if isinstance(value.get(t), Mapping)}
                kept[key] |= {t: _inner(rope, f"{where}{key}.{t}", INNER[key]) for t, rope in types.items()}
        elif key in ("architectures", "layer_types", "mlp_only_layers") and isinstance(value, list | tuple):
            kept[key] = _list(key, value, where, layers_of(config))
    return {k: v for k, v in kept.items() if v != [] or k == "mlp_only_layers"}


def _list(key: str, values: list[Any] | tuple[Any, ...], where: str, layers: int) -> list[Any]:
    """The first class; the kind of each layer; the layers that are named. Empty: it says nothing."""
    if key == "architectures":
        return [scalar(f"{where}{key}", values[0])] if values and not is_container(values[0]) else []
    if key == "mlp_only_layers":
        return sorted({i for i in values if isinstance(i, int) and not isinstance(i, bool) and 0 <= i < layers})
    # One that is not of this model's layers is not believed.
    return [quoted(value) for value in values] if len(values) == layers else []


def _inner(config: Config, where: str, names: tuple[str, ...]) -> dict[str, Any]:
    numbers = where.endswith("vision_config")
    return {
        key: _number(config[key]) if numbers or key == "kv_n_heads" else scalar(f"{where}.{key}", config[key])
        for key in names
        if key in config and (numbers or not is_container(config[key]))
    }


def _number(value: Any) -> Any:
    """A number that a record can hold, or the text by which whoever reads it refuses it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and abs(value) <= MOST_WHOLE:  # not true of NaN
        return value
    return quoted(value)
