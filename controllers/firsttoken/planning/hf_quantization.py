"""How a checkpoint's weights are stored: `quantization_config` of a config.json, in vLLM's names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from firsttoken.planning.hf_bounds import is_container, scalar
from firsttoken.planning.hf_kept import KEPT, kept_layers
from firsttoken.planning.refusal import InfeasibleError

Config = Mapping[str, Any]


@dataclass(frozen=True)
class StoredAs:
    """`method` is "" for 16 bits. `weight_bytes`: a weight of the layers, its scales included; None: as usual for the
    method. `group`: weights along a layer's input that share a scale; None where a scale spans all of them.
    `activations`: what they are quantised to before they meet the weights (fp8, int8, fp4; "": not at all). `kept`:
    matrices that are left in 16 bits, and in how many layers (see hf_kept).
    """

    method: str = ""
    weight_bytes: float | None = None
    group: int | None = None
    activations: str = "fp8"
    kept: Mapping[str, int] = field(default_factory=dict)


def stored_as(config: Config, layers: int) -> StoredAs:
    """From the whole config.json of a model with so many `layers`. Raises InfeasibleError for an unknown method."""
    said = quantization_of(config)
    if said is None:
        return StoredAs()
    method = _method(said)
    reader = _READERS.get(method)
    if reader is None:
        raise InfeasibleError(
            "Quantization",
            f"config.json says that the weights are quantised by {method or 'a method it does not name'}, which the "
            f"planner does not know; it knows {', '.join(sorted(_READERS))}: choose a checkpoint in one of them",
        )
    return replace(reader(said), kept=kept_layers(said, layers))


def quantization_of(config: Config) -> Config | None:
    """What a config.json says of quantisation, wherever it says so; None where it says nothing."""
    text = config.get("text_config")
    for place in (config, text if isinstance(text, Mapping) else {}):
        for key in ("quantization_config", "compression_config"):
            if isinstance(place.get(key), Mapping):
                found: Config = place[key]
                return found
    return None


def essentials(said: Config, layers: int) -> dict[str, Any]:
    """What `stored_as` reads of it. Lists of layers may be megabytes: how many they name is kept.

    Raises InfeasibleError for numbers and texts that no record can hold.
    """
    kept = _only(said, _READ, "quantization_config")
    for key, name in (("producer", "name"), ("quantization", "quant_algo")):
        if isinstance(said.get(key), Mapping):
            kept[key] = _only(said[key], (name,), f"quantization_config.{key}")
    groups = said.get("config_groups")
    if isinstance(groups, Mapping):
        kept["config_groups"] = {
            scalar("a name in config_groups", k): {part: _scheme_kept(v, part) for part in _PARTS}
            for k, v in sorted(groups.items(), key=lambda item: str(item[0]))
        }
    in_16_bits = kept_layers(said, layers)
    return {**kept, KEPT: in_16_bits} if in_16_bits else kept


def _scheme_kept(group: Any, part: str) -> dict[str, Any] | None:
    said = group.get(part) if isinstance(group, Mapping) else None
    return _only(said, _SCHEME, f"config_groups.{part}") if isinstance(said, Mapping) else None


def _only(said: Config, names: tuple[str, ...], where: str) -> dict[str, Any]:
    """The scalars and the pairs of scalars under these names."""
    kept = {k: scalar(f"{where}.{k}", said[k]) for k in names if k in said and not is_container(said[k])}
    pairs = {k: said[k] for k in names if isinstance(said.get(k), list | tuple) and len(said[k]) == 2}
    plain = {k: pair for k, pair in pairs.items() if not any(map(is_container, pair))}
    return {**kept, **{k: [scalar(f"{where}.{k}", one) for one in pair] for k, pair in plain.items()}}


_PARTS = ("weights", "input_activations")
_SCHEME = ("num_bits", "type", "strategy", "group_size", "block_structure", "symmetric")
_READ = (
    "quant_method", "bits", "w_bit", "group_size", "q_group_size", "weight_block_size", "quant_algo", "load_in_8bit",
)  # fmt: skip


def _method(said: Config) -> str:
    """quant_method, as vLLM normalises it; ModelOpt's own files name a producer instead."""
    method = str(said.get("quant_method") or "").lower().replace("_tensors", "-tensors")
    producer = said.get("producer")
    if not method and isinstance(producer, Mapping) and producer.get("name") == "modelopt":
        return "modelopt"
    return method


def _fp8(said: Config) -> StoredAs:
    return StoredAs("fp8", 1.0, _second(said.get("weight_block_size")))


def _in_groups(method: str) -> Callable[[Config], StoredAs]:
    """AWQ and GPTQ: an FP16 scale and a zero of the weights' width for each group; no groups at size -1."""

    def read(said: Config) -> StoredAs:
        bits, size = _positive(said.get("bits", said.get("w_bit")), 4), said.get("group_size", said.get("q_group_size"))
        group = size if isinstance(size, int) and size > 0 else None
        return StoredAs(method, bits / 8 + ((2 + bits / 8) / group if group else 0.0), group)

    return read


def _compressed(said: Config) -> StoredAs:
    """compressed-tensors: where groups of layers differ, the safe side: the largest weights, then the widest blocks of
    a scale, then activations that keep their 16 bits.
    """
    schemes = said.get("config_groups")
    groups = list(schemes.values()) if isinstance(schemes, Mapping) else []
    schemes_of = [g for g in groups if isinstance(g, Mapping) and isinstance(g.get("weights"), Mapping)]
    if not schemes_of:
        return StoredAs() if groups else StoredAs("compressed-tensors")
    found = max(((*_scheme(g["weights"]), _activations(g)) for g in schemes_of), key=_safe_side)
    return StoredAs("compressed-tensors", *found)


def _safe_side(scheme: tuple[float, int | None, str]) -> tuple[float, int, bool, str]:
    weight, group, activations = scheme
    return weight, group or 0, not activations, activations


def _activations(group: Config) -> str:
    """What the inputs of a group of layers are quantised to; without `input_activations` they keep 16 bits."""
    said = group.get("input_activations")
    if not isinstance(said, Mapping):
        return ""
    bits, kind = _positive(said.get("num_bits"), 8), said.get("type", "int")
    return {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "fp4"}.get((bits, str(kind)), "")


def _scheme(weights: Config) -> tuple[float, int | None]:
    """Bytes of a weight and its group. Scales: one byte in the 4-bit float formats (NVFP4, MXFP4), else two."""
    bits, strategy, size = _positive(weights.get("num_bits"), 8), weights.get("strategy"), weights.get("group_size")
    if strategy == "block":
        return bits / 8, _second(weights.get("block_structure"))
    if not isinstance(size, int) or size <= 0:
        return bits / 8, None
    zero = 0.0 if weights.get("symmetric", True) else bits / 8
    scale = 1 if weights.get("type") == "float" and bits <= 4 else 2
    return bits / 8 + (scale + zero) / size, size


def _modelopt(said: Config) -> StoredAs:
    """ModelOpt: FP8 with a scale a tensor, or NVFP4: 4 bits and an FP8 scale for each 16."""
    inner = said.get("quantization")
    algorithm = (inner if isinstance(inner, Mapping) else said).get("quant_algo")
    name = str(algorithm or "FP8").upper()
    if name == "NVFP4":
        return StoredAs("modelopt", 0.5 + 1 / 16, 16, "fp4")
    if name.startswith("FP8"):
        return StoredAs("modelopt", 1.0)
    raise InfeasibleError(
        "Quantization",
        f"config.json says that ModelOpt stored the weights as {algorithm}, which the planner does not know; it knows "
        "FP8 and NVFP4: choose a checkpoint in one of them",
    )


def _bitsandbytes(said: Config) -> StoredAs:
    return StoredAs("bitsandbytes", 1.0 if said.get("load_in_8bit") else None)


def _mxfp4(_said: Config) -> StoredAs:
    """Its blocks of 32 limit no split: vLLM cuts experts in whole blocks and pads (gpt_oss.py, 0.32)."""
    return StoredAs("mxfp4")


def _second(value: Any) -> int | None:
    """The second of two sizes, along a layer's input."""
    pair = isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[1], int) and value[1] > 0
    return int(value[1]) if pair else None


def _positive(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and 0 < value <= 64 else otherwise


_READERS: Mapping[str, Callable[[Config], StoredAs]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "awq": _in_groups("awq"),
    "gptq": _in_groups("gptq"),
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
}
