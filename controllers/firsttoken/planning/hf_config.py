"""From a Hugging Face config.json to a model's shape. Pure; `hf_families` has the table of families.

What an unknown architecture leaves open is named field by field, so that it can be given inline.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from firsttoken.api.architecture import InlineArchitecture
from firsttoken.planning import shape as shapes
from firsttoken.planning.hf_bounds import quoted, refuse
from firsttoken.planning.hf_families import FAMILIES, Config, Family
from firsttoken.planning.hf_fields import Fields, count, find
from firsttoken.planning.hf_lengths import positions
from firsttoken.planning.hf_quantization import StoredAs, quantization_of, stored_as
from firsttoken.planning.hf_quantization import essentials as quantization_essentials
from firsttoken.planning.hf_sieve import layers_of, sieve
from firsttoken.planning.refusal import InfeasibleError

INLINE = "spec.model.architecture.inline"
# What InlineArchitecture can't do without, and what it assumes.
NEEDED = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
    "max_position_embeddings",
)  # fmt: skip
OPTIONAL = (
    "num_key_value_heads", "head_dim", "tie_word_embeddings", "num_experts", "num_experts_per_tok",
    "moe_intermediate_size",
)  # fmt: skip
MOST_SHARED = 4096  # shared experts a layer, as of routed ones in the API
# Endings of classes by which vLLM takes a runner that makes tokens, and one that makes none; the first match counts
# (0.32, _SUFFIX_TO_DEFAULTS in vllm/config/model.py).
GENERATES = ("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel")
POOLS = ("ForTextEncoding", "Classification", "ForRewardModeling", "Model")
MOST_KEPT = 16 * 2**10  # bytes of JSON in a record; published ones take up to 3 KB


@dataclass(frozen=True)
class ConfigFacts:
    """What a config.json says. `windowed_layers`: None means all that there are, where the shape has a window."""

    architecture: str  # as `architectures` names it
    shape: InlineArchitecture
    mla: shapes.LatentAttention | None = None
    moe: shapes.ExpertLayout | None = None
    windowed_layers: int | None = None
    other_parameters: int = 0  # image encoder, learned positions: beside embeddings and layers, in 16 bits
    stored: StoredAs = field(default_factory=StoredAs)
    float16: bool = True
    attention_sinks: bool = False
    bidirectional_images: bool = False
    dtype: str = ""  # of the weights that are not quantised; vLLM serves float32 in 16 bits


def is_config(value: Any) -> bool:
    """Whether `value`, parsed from JSON, is a model's config.json."""
    return isinstance(value, Mapping) and ("model_type" in value or "architectures" in value)


def essentials(config: Config) -> dict[str, Any]:
    """The part of a config.json that `read_config` reads: what a record keeps of it (a few hundred bytes).

    Raises InfeasibleError (UnknownModel) for values that no record can hold, and for more than MOST_KEPT.
    """
    kept, said = sieve(config), quantization_of(config)
    if said is not None:
        # Without a number of layers nothing is planned: `read_config` says so.
        kept["quantization_config"] = quantization_essentials(said, layers_of(_text(kept)))
    size = len(json.dumps(kept))
    if size > MOST_KEPT:
        largest = max(kept, key=lambda k: len(json.dumps(kept[k])))
        text = f"what is read of it has {size} bytes, most of them in {largest}; at most {MOST_KEPT} are kept"
        raise InfeasibleError("UnknownModel", f"config.json: {text}")
    return kept


def read_config(config: Config) -> ConfigFacts:
    """The facts in a config.json. Raises InfeasibleError: an architecture that is unknown or makes no tokens, fields
    missing or out of range.
    """
    config = essentials(config)  # records can be edited: they are held to the same bounds as files
    name, text = architecture(config), _text(config)
    if name.endswith(POOLS) and not name.endswith(GENERATES):
        text_of = "vLLM serves that as a pooling model (embeddings, classes, scores), which makes no tokens"
        remedy = "point spec.model.uri to a checkpoint that generates text (…ForCausalLM)"
        raise InfeasibleError("PoolingModel", f"config.json names {quoted(name, 120)}: {text_of}; {remedy}")
    outer = FAMILIES.get(str(config.get("model_type")))
    family = FAMILIES.get(_text_type(config, outer)) if outer is not None else None
    if outer is None or family is None or (text is not config and outer.vision is None):
        raise _unknown(config, text)
    given = Fields(config, text, family)
    missing = [f for f in NEEDED if given.number(f) is None]
    if missing:
        raise _incomplete(name, given, missing)
    return _facts(name, config, given, outer)


def architecture(config: Config) -> str:
    """What the model is called: its class, or its model_type."""
    classes = config.get("architectures")
    first = classes[0] if isinstance(classes, list) and classes else None
    return str(first or config.get("model_type") or "an unnamed architecture")


def _text(config: Config) -> Config:
    """The part about the language model: `text_config` of a multimodal one. What it leaves out stands outside."""
    inner = config.get("text_config")
    if not isinstance(inner, Mapping):
        return config
    shared = {k: config[k] for k in ("tie_word_embeddings", "torch_dtype", "dtype") if k in config}
    return {**shared, **inner}


def _text_type(config: Config, outer: Family) -> str:
    inner = config.get("text_config")
    if isinstance(inner, Mapping):
        return str(inner.get("model_type") or outer.text)
    return outer.text or str(config.get("model_type"))


def _facts(name: str, config: Config, given: Fields, outer: Family) -> ConfigFacts:
    window, windowed = _windows(given)
    experts = given.number("num_experts") or 0
    sparse = experts > 1
    shape = _shape(
        name,
        {
            **{f: given.number(f) for f in (*NEEDED, "head_dim")},
            "max_position_embeddings": positions(given),
            "num_key_value_heads": given.kv_heads(),
            "tie_word_embeddings": given.tied(),
            "gated_mlp": given.family.gated,
            "sliding_window": window,
            "alibi": given.alibi(),
            "num_experts": experts if sparse else None,
            "num_experts_per_tok": given.number("num_experts_per_tok") if sparse else None,
            "moe_intermediate_size": given.number("moe_intermediate_size") if sparse else None,
        },
    )
    return ConfigFacts(
        architecture=name,
        shape=shape,
        mla=_latent(given) if given.family.latent else None,
        moe=_layout(given, shape) if sparse else None,
        windowed_layers=windowed,
        other_parameters=_beside(config, given, outer, shape),
        stored=stored_as(config, shape.num_hidden_layers),
        float16=given.family.float16,
        attention_sinks=given.family.attention_sinks,
        bidirectional_images=outer.bidirectional_images,
        dtype=str(given.text.get("torch_dtype") or given.text.get("dtype") or "").removeprefix("torch."),
    )


def _shape(name: str, fields: Mapping[str, Any]) -> InlineArchitecture:
    """Raises InfeasibleError for what the API would not take inline, and for numbers that contradict one another."""
    try:
        shape = InlineArchitecture.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        text = f"config.json of {name}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InfeasibleError("UnknownModel", text) from error
    heads, kv = shape.num_attention_heads, shapes.kv_heads(shape)
    if heads % kv:
        raise InfeasibleError("UnknownModel", f"config.json of {name}: {kv} KV heads do not divide {heads} heads")
    if shape.head_dim is None and shape.hidden_size % heads:
        text = f"{heads} heads do not divide hidden_size {shape.hidden_size}, and there is no head_dim"
        raise InfeasibleError("UnknownModel", f"config.json of {name}: {text}")
    if shape.num_experts and not 0 < (shape.num_experts_per_tok or 0) <= shape.num_experts:
        text = f"of {shape.num_experts} experts a token takes {shape.num_experts_per_tok or 'an unknown number'}"
        raise InfeasibleError("UnknownModel", f"config.json of {name}: {text}")
    return shape


def _windows(given: Fields) -> tuple[int | None, int | None]:
    """The window, tokens, and how many layers have it (None: all). A window that nothing can exceed is none."""
    layers, window = given.needed("num_hidden_layers"), given.number("sliding_window")
    types = given.text.get("layer_types")
    if isinstance(types, list) and len(types) == layers:
        strange = sorted({str(t) for t in types} - {"sliding_attention", "full_attention"})
        if strange:
            text = f"config.json: layers of type {quoted(', '.join(strange), 120)} are not known to the planner"
            raise InfeasibleError("UnknownModel", f"{text}: give {INLINE}, as near as it comes")
        windowed = types.count("sliding_attention")
    else:
        windowed = min(layers, given.family.windows(given.text, layers))
    if window is None or not windowed or window >= positions(given):
        return None, None
    return window, windowed if windowed < layers else None


def _latent(given: Fields) -> shapes.LatentAttention:
    ranks = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return shapes.LatentAttention(
        q_lora_rank=given.number("q_lora_rank"), **{name: given.needed(name) for name in ranks}
    )


def _layout(given: Fields, shape: InlineArchitecture) -> shapes.ExpertLayout:
    """Shared experts in units of a routed one, and how many layers have a dense feed-forward instead of experts."""
    width = shape.moe_intermediate_size or shape.intermediate_size
    shared = count(given.text, "n_shared_experts", 0)
    shared = shared or round(count(given.text, "shared_expert_intermediate_size", 0) / width)
    if shared > MOST_SHARED:
        raise refuse("n_shared_experts", shared, f"more than {MOST_SHARED}")
    first, step = count(given.text, "first_k_dense_replace", 0), count(given.text, "decoder_sparse_step", 1)
    every, named = count(given.text, "moe_layer_freq", 1), given.text.get("mlp_only_layers")
    dense, layers = frozenset(named or ()), range(shape.num_hidden_layers)
    sparse = [i for i in layers if i >= first and i % every == 0 and i not in dense and (i + 1) % step == 0]
    return shapes.ExpertLayout(shared_experts=shared, first_dense_layers=len(layers) - len(sparse))


def _beside(config: Config, given: Fields, outer: Family, shape: InlineArchitecture) -> int:
    """Weights beside embeddings and layers."""
    rows = given.family.learned_positions
    positions = (given.needed("max_position_embeddings") + rows) * shape.hidden_size if rows is not None else 0
    vision = config.get("vision_config")
    if outer.vision is None or not isinstance(vision, Mapping):
        return positions
    return positions + outer.vision(vision, config, shape.hidden_size)


def _unknown(config: Config, text: Config) -> InfeasibleError:
    kinds = [str(c.get("model_type")) for c in (config, text) if c.get("model_type")]
    kind = f" (model_type {' with '.join(dict.fromkeys(kinds))})" if kinds else ""
    read = {f: v for f in (*NEEDED, *OPTIONAL) if (v := find(text, f)[1]) is not None}
    missing = [f for f in NEEDED if f not in read]
    return InfeasibleError(
        "UnknownModel",
        f"config.json: the planner does not know the architecture {architecture(config)}{kind}: give {INLINE}. "
        f"{_read(read)}{_needed(missing)}Where they apply: numExperts, numExpertsPerTok and moeIntermediateSize (a "
        "mixture of experts), gatedMlp: false (a plain feed-forward), slidingWindow, alibi, and parameters, the "
        "published count",
    )


def _incomplete(name: str, given: Fields, missing: list[str]) -> InfeasibleError:
    read = {f: v for f in (*NEEDED, *OPTIONAL) if (v := given.number(f) if f in NEEDED else find(given.text, f)[1])}
    return InfeasibleError(
        "UnknownModel", f"config.json of {name} is incomplete: give {INLINE}. {_read(read)}{_needed(missing)}".rstrip()
    )


def _read(read: Mapping[str, Any]) -> str:
    said = ", ".join(f"{to_camel(f)}: {quoted(v)}" for f, v in read.items())
    return f"Read from it: {said}. " if said else ""


def _needed(missing: list[str]) -> str:
    return f"Not found in it, and needed: {', '.join(map(to_camel, missing))}. " if missing else ""
