"""Which model it is: the catalogue, facts given inline, or a plain refusal that says what is missing."""

import difflib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated

import yaml
from pydantic import Field

from firsttoken.api.architecture import InlineArchitecture
from firsttoken.api.base import ApiModel
from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning import shape as shapes
from firsttoken.planning.types import Infeasible, ModelFacts

INLINE_FIELDS = (
    "hiddenSize", "numHiddenLayers", "numAttentionHeads", "numKeyValueHeads", "intermediateSize", "vocabSize",
    "maxPositionEmbeddings",
)  # fmt: skip


class CatalogueEntry(ApiModel):
    """One open model: its shape and what its publisher says of it."""

    name: str
    uris: list[str]
    shape: InlineArchitecture
    mla: shapes.LatentAttention | None = None
    moe: shapes.ExpertLayout | None = None
    quantization: str = ""
    float16: bool = True
    parameters: Annotated[int, Field(ge=1)]
    parameters_source: str = "safetensors metadata on the hub"


# Bytes of a quantised weight with its scales. Embeddings and the output head stay in 16 bits (see memory.py).
#   fp8   one byte; per-tensor or 128x128-block scales are below 0.1 %
#   awq, gptq   4 bits plus an FP16 scale and a 4-bit zero for each group of 128 (the usual group size)
#   bitsandbytes   NF4, an FP32 absolute maximum for each block of 64
#   compressed-tensors   holds W8A8 as well as W4A16: counted as 8 bits, the larger of the usual two
WEIGHT_BYTES = {
    "": 2.0,
    "fp8": 1.0,
    "awq": 0.5 + 2.5 / 128,
    "gptq": 0.5 + 2.5 / 128,
    "bitsandbytes": 0.5 + 4 / 64,
    "compressed-tensors": 1.0,
}


@cache
def catalogue() -> Mapping[str, CatalogueEntry]:
    """The models Firsttoken knows, by preset name."""
    text = files("firsttoken.planning").joinpath("data/models.yaml").read_text(encoding="utf-8")
    entries = [CatalogueEntry.model_validate(item) for item in yaml.safe_load(text)]
    return {entry.name: entry for entry in entries}


def model_facts(spec: ModelSpec) -> ModelFacts | Infeasible:
    """The shape of the model in `spec`: inline facts, a preset, or found in the catalogue by its URI.

    hf://org/name must match a catalogue URI as a whole. For pvc://, oci:// and s3:// the last part of the path (a
    tag left out) is compared with the catalogue's preset and model names: a folder named like an open model is taken
    to hold it, and the facts' `source` says that this was assumed.
    """
    given = spec.architecture
    if given and given.inline:
        return _facts(_inline_entry(spec, given.inline), spec, "given inline in spec.model.architecture.inline")
    if given and given.preset:
        entry = catalogue().get(given.preset.lower())
        if entry is None:
            return _unknown(given.preset, "spec.model.architecture.preset", by_preset=True)
        return _facts(entry, spec, f"catalogue preset {entry.name}, given in spec.model.architecture.preset")
    scheme, _, path = spec.uri.partition("://")
    wanted = path.strip("/") if scheme == "hf" else path.rstrip("/").rsplit("/", 1)[-1].partition(":")[0]
    entry = _by_uri(wanted) if scheme == "hf" else _by_last_segment(wanted)
    if entry is None:
        return _unknown(wanted, "spec.model.uri")
    how = "by its URI" if scheme == "hf" else f"assumed from the name {wanted!r} at the end of the URI"
    return _facts(entry, spec, f"catalogue entry {entry.name}, found {how}")


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
    name = spec.name or spec.uri.rstrip("/").rsplit("/", 1)[-1]
    return CatalogueEntry(
        name=name, uris=[spec.uri], shape=shape, parameters=shape.parameters or shapes.parameters(shape)
    )


def _facts(entry: CatalogueEntry, spec: ModelSpec, source: str) -> ModelFacts:
    shape, quantization = entry.shape, spec.quantization or entry.quantization
    return ModelFacts(
        name=entry.name,
        # Inline, a published count replaces the computed one; the catalogue's computed count is tested against it.
        parameters=shape.parameters or shapes.parameters(shape, entry.mla, entry.moe),
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
        alibi=shape.alibi,
        num_experts=shape.num_experts,
        num_experts_per_tok=shape.num_experts_per_tok,
        moe_intermediate_size=shape.moe_intermediate_size,
        kv_lora_rank=entry.mla.kv_lora_rank if entry.mla else None,
        qk_rope_head_dim=entry.mla.qk_rope_head_dim if entry.mla else None,
        weight_bytes_per_parameter=WEIGHT_BYTES[quantization],
        source=source,
        quantization=quantization,
        quantized_here=spec.quantization is not None,
        float16=entry.float16,
    )


def _unknown(name: str, where: str, *, by_preset: bool = False) -> Infeasible:
    near = _near(name)
    suggestion = f"; did you mean the preset {', '.join(near)}?" if near else ""
    remedy = "name a preset of the catalogue" if by_preset else "set spec.model.architecture.preset to its equal"
    return Infeasible(
        "UnknownModel",
        f"{where}: {name!r} is not in the model catalogue{suggestion}; {remedy}, or copy {', '.join(INLINE_FIELDS)} "
        "from its config.json to spec.model.architecture.inline",
        {"spec.model.architecture.preset": near[0]} if near else {},
    )


def _near(name: str) -> list[str]:
    """Presets whose name or URI resembles `name`, best first."""
    known = {u.lower(): e.name for e in catalogue().values() for u in (e.name, *e.uris, *_tails(e))}
    close = difflib.get_close_matches(name.lower(), sorted(known), n=6, cutoff=0.7)
    return list(dict.fromkeys(known[c] for c in close))[:3]


def _tails(entry: CatalogueEntry) -> list[str]:
    return [u.rsplit("/", 1)[-1] for u in entry.uris]
