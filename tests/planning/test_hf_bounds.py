"""Bounds on a config.json: what no model can have is refused by its name, and a record holds little and only JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.hf_config import MOST_KEPT, essentials, read_config
from firsttoken.planning.hf_families import FAMILIES, KEYS
from firsttoken.planning.hf_sieve import READ
from firsttoken.planning.models import model_facts
from firsttoken.planning.output import plan_to_json
from firsttoken.planning.plan import make_plan
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import Infeasible, Plan
from planning.hf import PUBLISHED, SOMEBODY, config, refused
from planning.specs import service

LONGEST_MESSAGE = 500  # characters of a refusal, its remedy included; what it quotes has at most 128 of them


def told(value: dict[str, Any]) -> str:
    """The refusal as UnknownModel: one line, of text, that does not carry somebody's megabytes."""
    refusal = refused(value)
    assert refusal.constraint == "UnknownModel"
    assert refusal.message.isprintable()
    assert len(refusal.message) <= LONGEST_MESSAGE
    assert "spec.model.architecture.inline" in refusal.message
    return refusal.message


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"hidden_size": "4096"}, "hidden_size is 4096, not a number"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5"),
        ({"num_key_value_heads": [8, 8]}, "num_key_value_heads is [8, 8]"),
        ({"vocab_size": True}, "vocab_size is true"),
        ({"vocab_size": 10**40}, "vocab_size is 1000000"),
        ({"hidden_size": float("inf")}, "hidden_size is inf"),
        ({"num_hidden_layers": 5000}, "num_hidden_layers: Input should be less"),
        ({"num_key_value_heads": 7}, "7 KV heads do not divide 32 heads"),
        ({"hidden_size": 4097}, "32 heads do not divide hidden_size 4097"),
        ({"num_local_experts": 8}, "of 8 experts a token takes an unknown number"),
        ({"num_local_experts": 8, "num_experts_per_tok": 9}, "of 8 experts a token takes 9"),
        ({"layer_types": ["linear_attention"] * 32}, "layers of type linear_attention"),
    ],
)
def test_numbers_that_can_not_be(changes: dict[str, Any], part: str) -> None:
    refusal = refused({**config("llama-3.1-8b"), **changes})
    assert refusal.constraint == "UnknownModel"
    assert part in refusal.message
    assert "spec.model.architecture.inline" in refusal.message


def test_an_image_encoder_that_can_not_be_read() -> None:
    for vision in ({}, {"hidden_size": "wide"}, {"hidden_size": float("inf")}):
        assert "config.json: vision_config.hidden_size is" in told({**config("gemma-3-4b"), "vision_config": vision})


@pytest.mark.parametrize("name", ["gemma-3-4b", "mistral-small-3.1-24b"])
@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "intermediate_size", "patch_size"])
@pytest.mark.parametrize("value", [-1_000_000_000, 0, 10**9, 10**200, 1e300, 0.5, True, [1], "\ud800"])
def test_every_dimension_of_an_image_encoder_has_bounds(name: str, key: str, value: Any) -> None:
    whole = config(name)
    assert f"vision_config.{key} is " in told({**whole, "vision_config": {**whole["vision_config"], key: value}})


@pytest.mark.parametrize("value", [0, -2, 65, 10**200])
def test_patches_that_are_merged_have_bounds(value: int) -> None:
    assert "spatial_merge_size is " in told({**config("mistral-small-3.1-24b"), "spatial_merge_size": value})


@pytest.mark.parametrize("key", ["n_shared_experts", "first_k_dense_replace", "moe_layer_freq"])
@pytest.mark.parametrize("value", [-1, 2**31, 10**200])
def test_counts_that_only_some_families_have_are_not_guessed(key: str, value: int) -> None:
    assert f"{key} is " in told({**config("deepseek-v3"), key: value})


@pytest.mark.parametrize("factor", [float("inf"), float("nan"), 1e308, 1e7, 10**18, 10**200])
def test_rope_stretches_no_length_beyond_what_can_be_counted(factor: float) -> None:
    value = config("llama-2-7b", rope_scaling={"type": "linear", "factor": factor})
    assert "rope_scaling.factor is " in told(value)


@pytest.mark.parametrize("text", ["\ud800", "a\nb", "\x1b[31m", "x" * 100_000])
@pytest.mark.parametrize("key", ["torch_dtype", "model_type", "architectures"])
def test_texts_are_short_and_printable(key: str, text: str) -> None:
    assert f"{key} is " in told({**config("llama-3.1-8b"), key: [text] if key == "architectures" else text})


def test_a_plan_of_a_strange_config_can_be_written() -> None:
    """dtype goes into a reason of the plan, which the API server stores."""
    spec = service(SOMEBODY, "nvidia-h100-80gb")
    for dtype in ("\ud800", "bfloat16"):
        outcome = make_plan(spec, catalogue(), config=config("llama-3.1-8b", torch_dtype=dtype))
        assert isinstance(outcome, Infeasible if dtype != "bfloat16" else Plan)
        if isinstance(outcome, Plan):
            json.dumps(plan_to_json(outcome), allow_nan=False).encode()


# --- what a record keeps ---


def test_a_record_keeps_what_is_read_and_nothing_beside_it() -> None:
    junk = "x" * 2_000_000
    value = config("mpt-7b", rope_scaling={"type": "linear", "factor": 2.0, "junk": junk})
    value["attn_config"] = {**value["attn_config"], "junk": junk}
    value["quantization_config"] = {"quant_method": "fp8", "bits": [junk], "producer": {"name": "x", "junk": junk}}
    kept = essentials(value)
    assert kept["rope_scaling"] == {"type": "linear", "factor": 2.0}
    assert set(kept["attn_config"]) <= {"alibi", "attn_type", "kv_n_heads"}
    assert kept["quantization_config"] == {"quant_method": "fp8", "producer": {"name": "x"}}


def test_layers_that_the_model_has_not_are_not_kept() -> None:
    value = config("qwen3-30b-a3b-fp8", quantization_config=None)
    several = {**value, "mlp_only_layers": [5, 3, 3, -1, True, "7", 48, *range(10_000, 500_000)]}
    assert essentials(several)["mlp_only_layers"] == [3, 5]
    layout = read_config(several).moe
    assert layout is not None
    assert layout.first_dense_layers == 2


def test_what_is_too_much_for_a_record_is_refused() -> None:
    many = {"num_hidden_layers": 1000, "layer_types": ["sliding_attention"] * 1000}
    assert "bytes, most of them in layer_types" in told({**config("llama-3.1-8b"), **many})
    groups = {f"group_{i}": {"weights": {"num_bits": 4}} for i in range(1000)}
    said = {"quant_method": "compressed-tensors", "config_groups": groups}
    assert "most of them in quantization_config" in told(config("llama-3.1-8b", quantization_config=said))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**30, "\ud800", "x" * 200])
@pytest.mark.parametrize("key", ["bits", "group_size", "quant_method"])
def test_what_is_kept_of_a_quantisation_is_json(key: str, value: Any) -> None:
    said = {"quant_method": "awq", "bits": 4, key: value}
    assert f"quantization_config.{key} is " in told(config("llama-3.1-8b", quantization_config=said))


def test_a_record_that_was_edited_is_held_to_the_same_bounds() -> None:
    kept = {**essentials(config("gemma-3-4b")), "vision_config": {"hidden_size": 10**200}}
    assert "vision_config.hidden_size is " in told(kept)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=3), v, max_size=3))
INNER = ("quant_method", "bits", "group_size", "weight_block_size", "config_groups", "quant_algo", "producer")
FIELDS = sorted({*READ, *(k for keys in KEYS.values() for k in keys)})


@given(
    st.sampled_from(sorted(FAMILIES)),
    st.dictionaries(st.sampled_from(FIELDS), JSON | st.integers(1, 4096), max_size=8),
    st.dictionaries(st.sampled_from(INNER), JSON | st.sampled_from(["awq", "compressed-tensors", "modelopt"])),
    st.sampled_from(PUBLISHED),
)
def test_whatever_the_json_it_is_read_or_refused(
    kind: str, changes: dict[str, Any], quantisation: dict[str, Any], name: str
) -> None:
    value = {**config(name), "quantization_config": quantisation, **changes}
    for one in (value, {**value, "model_type": kind}, {**value, "text_config": changes}):
        try:
            found = read_config(one)
        except InfeasibleError:
            pass  # the next lines look at the refusal
        else:
            kept = essentials(one)
            assert read_config(kept) == found
            assert essentials(kept) == kept
            assert len(json.dumps(kept, allow_nan=False).encode()) <= MOST_KEPT
        outcome = model_facts(ModelSpec(uri=SOMEBODY), one)
        if isinstance(outcome, Infeasible):
            assert outcome.message.isprintable()
        else:
            assert outcome.parameters > 0
