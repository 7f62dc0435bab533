"""Which model it is: the catalogue, facts given inline, or a plain refusal that says what is missing."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Annotated, Any

from pydantic import Field

from firsttoken.api.architecture import InlineArchitecture
from firsttoken.api.base import ApiModel
from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning import shape as shapes
from firsttoken.planning.hf_config import INLINE, read_config
from firsttoken.planning.hf_kept import kept_parameters
from firsttoken.planning.memory import MXFP4_BYTES
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.shipped import document
from firsttoken.planning.types import Infeasible, ModelFacts
from firsttoken.planning.unknown_model import PRESET, URI, unknown


class CatalogueEntry(ApiModel):
    """One open model: its shape and what its publisher says of it."""

    name: str
    uris: list[str]
    shape: InlineArchitecture
    mla: shapes.LatentAttention | None = None
    moe: shapes.ExpertLayout | None = None
    quantization: str = ""
    float16: bool = True
    attention_sinks: bool = False
    bidirectional_images: bool = False
    parameters: Annotated[int, Field(ge=1)]
    parameters_source: str = "safetensors metadata on the hub"
    windowed_layers: Annotated[int | None, Field(ge=1)] = None  # with the shape's sliding window; None: all
    other_parameters: int = 0  # image encoder, learned positions: beside embeddings and layers, in 16 bits
    weight_bytes: float | None = None  # of a published quantised weight of the layers; None: as in WEIGHT_BYTES
    weight_group: int | None = None  # published weights along a layer's input that share a scale
    kept_parameters: int = 0  # weights of the layers that a published quantised checkpoint leaves in 16 bits
    activations: str = "fp8"  # what they are quantised to before they meet published quantised weights
    inline: bool = False  # given in the spec, which has no field for `mla` and `moe`

    @property
    def computed_parameters(self) -> int:
        """Parameters as they follow from the shape."""
        return shapes.parameters(self.shape, self.mla, self.moe) + self.other_parameters


# Bytes of a quantised weight with its scales. Embeddings and the output head stay in 16 bits (see memory.py).
#   fp8   one byte; per-tensor or 128x128-block scales are below 0.1 %
#   awq, gptq   4 bits plus an FP16 scale and a 4-bit zero for each group of 128 (the usual group size)
#   bitsandbytes   NF4, an FP32 absolute maximum for each block of 64
#   modelopt   ModelOpt's FP8, a scale a tensor
#   mxfp4   4 bits and an 8-bit scale for each block of 32, in the experts only: vLLM has no other MXFP4 layers
#   compressed-tensors   holds W8A8 as well as W4A16: counted as 8 bits, the larger of the usual two
WEIGHT_BYTES = {
    "": 2.0,
    "fp8": 1.0,
    "awq": 0.5 + 2.5 / 128,
    "gptq": 0.5 + 2.5 / 128,
    "bitsandbytes": 0.5 + 4 / 64,
    "compressed-tensors": 1.0,
    "modelopt": 1.0,
    "mxfp4": MXFP4_BYTES,
}


@cache
def catalogue() -> Mapping[str, CatalogueEntry]:
    """The models Firsttoken knows, by preset name."""
    entries = [CatalogueEntry.model_validate(item) for item in document("firsttoken.planning", "data/models.yaml")]
    return {entry.name: entry for entry in entries}


# Made from the 16-bit weights in a separate run; vLLM does not make them at start, as it does fp8 and bitsandbytes.
MADE_OFFLINE = ("awq", "gptq", "compressed-tensors", "modelopt", "mxfp4")
# Weights along a layer's input that share one scale: the usual group of AWQ and GPTQ. FP8 made at start has one scale a
# tensor. MXFP4 has one for 32 weights, and no split is refused for that: vLLM cuts the experts of gpt-oss, whose 2880
# columns no 4 or 8 ranks share in whole blocks, into whole blocks and pads (gpt_oss.py; `memory.padding_bytes`).
# What is published says so itself (weight_group).
WEIGHT_GROUPS = {"awq": 128, "gptq": 128}


def model_facts(spec: ModelSpec, config: Mapping[str, Any] | None = None) -> ModelFacts | Infeasible:
    """The shape of the model in `spec`: inline facts, a preset, or found in the catalogue by its URI.

    `config` is the model's config.json, where somebody has it; it counts where neither the spec nor an exact URI of
    the catalogue says what the model is (see `wants_config`).

    hf://org/name must match a catalogue URI as a whole. For pvc://, oci:// and s3:// the last part of the path (a
    tag left out) is compared with the catalogue's preset and model names: a folder named like an open model is taken
    to hold it, and the facts' `source` says that this was assumed.

    `spec.quantization` says how the weights at `uri` are stored. For a format that is made offline (AWQ, GPTQ,
    compressed-tensors, ModelOpt, MXFP4) the user says "this URI is such a checkpoint" by two things together: a `uri`
    that is no repository of the catalogue, and `architecture` (preset or inline), since a quantised checkpoint keeps
    the shape.
    """
    if spec.quantization and spec.quantization not in WEIGHT_BYTES:
        known = ", ".join(kind for kind in WEIGHT_BYTES if kind)
        text = f"spec.model.quantization is {spec.quantization}, which the planner does not know; there are: {known}"
        return Infeasible("Quantization", text)
    found = _found(spec, config)
    if isinstance(found, ModelFacts) and found.quantization == "mxfp4" and not found.num_experts:
        text = (
            f"spec.model.quantization is mxfp4, which vLLM has for experts only, and {found.name} has none: "
            "choose fp8, awq, gptq or compressed-tensors"
        )
        return Infeasible("Quantization", text, {"spec.model.quantization": "fp8"})
    return found


def wants_config(spec: ModelSpec) -> bool:
    """Whether a config.json would tell more than is known: no architecture given, no URI of the catalogue."""
    return spec.architecture is None and _by_uri(_repository(spec)) is None


def _found(spec: ModelSpec, config: Mapping[str, Any] | None) -> ModelFacts | Infeasible:
    given = spec.architecture
    if given and given.inline:
        refusal = _not_stored_so(_by_uri(_repository(spec)), spec)
        source = "given inline in spec.model.architecture.inline"
        return refusal or _facts(_inline_entry(spec, given.inline), spec, source)
    if given and given.preset:
        entry = catalogue().get(given.preset.lower())
        if entry is None:
            return _unknown(given.preset, PRESET)
        source = f"catalogue preset {entry.name}, given in spec.model.architecture.preset"
        return _not_stored_so(_by_uri(_repository(spec)), spec) or _facts(entry, spec, source)
    if config is not None and wants_config(spec):
        return _from_config(spec, config)
    scheme, _, path = spec.uri.partition("://")
    wanted = path.strip("/") if scheme == "hf" else path.rstrip("/").rsplit("/", 1)[-1].partition(":")[0]
    entry = _by_uri(wanted) if scheme == "hf" else _by_last_segment(wanted)
    if entry is None:
        return _unknown(wanted, URI, hub=scheme == "hf")
    how = "found by its URI" if scheme == "hf" else f"assumed from the name {wanted!r} at the end of the URI"
    return _not_stored_so(entry, spec) or _facts(entry, spec, f"catalogue entry {entry.name}, {how}")


def _from_config(spec: ModelSpec, config: Mapping[str, Any]) -> ModelFacts | Infeasible:
    try:
        found = read_config(config)
    except InfeasibleError as refused:
        why = refused.infeasible
        ends = why.constraint != "UnknownModel" or INLINE in why.message
        remedy = "" if ends else f": give {INLINE} or a preset instead"
        return replace(why, message=f"spec.model.uri: {spec.uri}: {why.message}{remedy}")
    entry = CatalogueEntry(
        name=_own_name(spec),
        uris=[spec.uri],
        shape=found.shape,
        mla=found.mla,
        moe=found.moe,
        quantization=found.stored.method,
        float16=found.float16,
        attention_sinks=found.attention_sinks,
        bidirectional_images=found.bidirectional_images,
        parameters=max(1, shapes.parameters(found.shape, found.mla, found.moe)),
        windowed_layers=found.windowed_layers,
        other_parameters=found.other_parameters,
        weight_bytes=found.stored.weight_bytes,
        weight_group=found.stored.group,
        activations=found.stored.activations,
        kept_parameters=kept_parameters(found.stored.kept, found.shape, found.mla, found.moe),
    )
    refusal = _not_stored_so(entry, spec, "as its config.json says")
    dtype = f", {found.dtype}" if found.dtype else ""
    layers = shapes.experts_and_layers(entry.shape, entry.mla, entry.moe)[1]
    kept = f", {entry.kept_parameters / layers:.0%} of its layers in 16 bits" if entry.kept_parameters else ""
    return refusal or _facts(entry, spec, f"read from config.json of {found.architecture}{dtype}{kept}")


def _repository(spec: ModelSpec) -> str:
    """`org/name` of an hf:// model, else ""."""
    scheme, _, path = spec.uri.partition("://")
    return path.strip("/") if scheme == "hf" else ""


def _not_stored_so(entry: CatalogueEntry | None, spec: ModelSpec, said: str = "") -> Infeasible | None:
    """Why the weights of `entry` can't be served as `spec.quantization`, or None. `said`: who says how they are."""
    wanted = spec.quantization
    if entry is None or wanted is None or wanted == entry.quantization:
        return None
    if not entry.quantization and wanted not in MADE_OFFLINE:
        return None
    stored = f"as {entry.quantization}" if entry.quantization else "in 16 bits"
    if said:
        text = f"{spec.uri} holds its weights {stored}, {said}, and {wanted} is not made from that at start"
        remedy = f"remove spec.model.quantization, or point spec.model.uri to a checkpoint in {wanted}"
        return Infeasible("Quantization", f"spec.model.quantization is {wanted}, but {text}: {remedy}")
    return Infeasible(
        "Quantization",
        f"spec.model.quantization is {wanted}, but {spec.uri} holds {entry.name} {stored}, and {wanted} is not made "
        f"from that at start: point spec.model.uri to a checkpoint in {wanted} and set "
        f"spec.model.architecture.preset to {entry.name} (or give architecture.inline), which says that it is one",
        {"spec.model.quantization": "fp8"},
    )


def _by_uri(path: str) -> CatalogueEntry | None:
    wanted = path.lower()
    return next((e for e in catalogue().values() if any(u.lower() == wanted for u in e.uris)), None)


def _by_last_segment(name: str) -> CatalogueEntry | None:
    wanted = name.lower()
    for entry in catalogue().values():
        if wanted == entry.name or any(u.lower().rsplit("/", 1)[-1] == wanted for u in entry.uris):
            return entry
    return None


def _inline_entry(spec: ModelSpec, shape: InlineArchitecture) -> CatalogueEntry:
    count = shape.parameters or shapes.parameters(shape)
    return CatalogueEntry(name=_own_name(spec), uris=[spec.uri], shape=shape, parameters=count, inline=True)


def _own_name(spec: ModelSpec) -> str:
    """Of a model that is in no catalogue."""
    return spec.name or spec.uri.rstrip("/").rsplit("/", 1)[-1]


def _facts(entry: CatalogueEntry, spec: ModelSpec, source: str) -> ModelFacts:
    shape, quantization = entry.shape, spec.quantization or entry.quantization
    published = bool(quantization) and quantization == entry.quantization
    return ModelFacts(
        name=entry.name,
        # Inline, a published count replaces the computed one; the catalogue's computed count is tested against it.
        parameters=shape.parameters or entry.computed_parameters,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_hidden_layers,
        num_attention_heads=shape.num_attention_heads,
        num_key_value_heads=shapes.kv_heads(shape),
        head_dim=shapes.head_dim(shape),
        intermediate_size=shape.intermediate_size,
        vocab_size=shape.vocab_size,
        max_position_embeddings=shape.max_position_embeddings,
        tie_word_embeddings=shape.tie_word_embeddings,
        sliding_window=shape.sliding_window,
        windowed_layers=entry.windowed_layers,
        alibi=shape.alibi,
        num_experts=shape.num_experts,
        num_experts_per_tok=shape.num_experts_per_tok,
        moe_intermediate_size=shape.moe_intermediate_size,
        kv_lora_rank=entry.mla.kv_lora_rank if entry.mla else None,
        qk_rope_head_dim=entry.mla.qk_rope_head_dim if entry.mla else None,
        weight_bytes_per_parameter=_layer_bytes(entry, quantization),
        weight_group=entry.weight_group if published else WEIGHT_GROUPS.get(quantization),
        source=source,
        quantization=quantization,
        activations=entry.activations if published else "fp8",
        quantized_here=quantization != entry.quantization,
        float16=entry.float16,
        attention_sinks=entry.attention_sinks,
        bidirectional_images=entry.bidirectional_images,
        other_parameters=entry.other_parameters,
        expert_parameters=shapes.experts_and_layers(shape, entry.mla, entry.moe)[0],
        **_matrices(entry),
    )


def _matrices(entry: CatalogueEntry) -> dict[str, Any]:
    """What is known of the layers' matrices. Inline facts can't say how many experts are shared or layers dense, and a
    published count beside them may be of another feed-forward layer than the one assumed.
    """
    shape, moe, mla = entry.shape, entry.moe or shapes.ExpertLayout(), entry.mla
    known: dict[str, Any] = {}
    if not entry.inline or "gated_mlp" in shape.model_fields_set:
        known["gated"] = shape.gated_mlp
    if shape.num_experts and not entry.inline:
        known |= {"dense_layers": moe.first_dense_layers, "shared_experts": moe.shared_experts}
    if mla is not None:
        known |= {name: getattr(mla, name) for name in ("qk_nope_head_dim", "v_head_dim", "q_lora_rank")}
    return known


def _layer_bytes(entry: CatalogueEntry, quantization: str) -> float:
    """Bytes a weight of the layers, on average over those that are quantised and those that are not."""
    published = quantization == entry.quantization
    each = entry.weight_bytes if published else None
    experts, layers = shapes.experts_and_layers(entry.shape, entry.mla, entry.moe)
    kept = entry.kept_parameters if published else 0
    if quantization == "mxfp4" and entry.shape.num_experts:  # it holds the experts, whatever else is named
        each, kept = None, layers - experts
    each = each or WEIGHT_BYTES[quantization]
    return each + (WEIGHT_BYTES[""] - each) * kept / layers if kept and quantization else each


def _unknown(name: str, where: str, *, hub: bool = False) -> Infeasible:
    return unknown(name, where, {entry.name: entry.uris for entry in catalogue().values()}, hub=hub)
