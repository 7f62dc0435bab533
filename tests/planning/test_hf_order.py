"""The order of keys in a config.json never matters, and ropes of a model's types of layers (transformers 5)."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.planning.hf_config import essentials, read_config
from firsttoken.planning.refusal import InfeasibleError
from planning.hf import PUBLISHED, config, facts, refused

YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192, "rope_theta": 5e5}
LINEAR = {"rope_type": "linear", "factor": 4.0}
DEFAULT = {"rope_type": "default", "rope_theta": 1e4}
GROUPS = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "weights": {"num_bits": 8, "type": "float"},
            "input_activations": {"num_bits": 8, "type": "float"},
        },
        "group_1": {"weights": {"num_bits": 8, "type": "int"}, "input_activations": {"num_bits": 8, "type": "int"}},
        "group_2": {"weights": {"num_bits": 8, "type": "int"}},
    },
}
ADDED: tuple[dict[str, Any], ...] = (
    {},
    {"rope_scaling": None, "rope_parameters": {"full_attention": YARN, "sliding_attention": DEFAULT}},
    {"rope_scaling": LINEAR, "rope_parameters": {"sliding_attention": YARN, "full_attention": LINEAR}},
    {"quantization_config": GROUPS},
    {"n_layer": 7, "num_hidden_layers": 8, "n_embd": 64},
    {"hidden_size": "wide", "vocab_size": "large", "num_attention_heads": -1},
    {"rope_scaling": {"type": float("nan"), "factor": float("inf")}, "dtype": "x" * 1000},
)


def shuffled(value: Any, draw: Any) -> Any:
    """The same JSON with the keys of every object in another order."""
    if isinstance(value, list):
        return [shuffled(item, draw) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: shuffled(value[key], draw) for key in draw(st.permutations(list(value)))}


def said(value: dict[str, Any]) -> Any:
    """Everything that is made of it: what is kept, byte for byte, and the facts; or why there are none."""
    try:
        return json.dumps(essentials(value)), read_config(value)
    except InfeasibleError as error:
        return str(error)


@settings(max_examples=150)
@given(st.data())
def test_the_order_of_keys_never_matters(data: st.DataObject) -> None:
    value = {**config(data.draw(st.sampled_from(PUBLISHED))), **data.draw(st.sampled_from(ADDED))}
    assert said(shuffled(value, data.draw)) == said(value)


@pytest.mark.parametrize(
    ("ropes", "longest"),
    [
        ({"full_attention": YARN, "sliding_attention": DEFAULT}, 65536),
        ({"sliding_attention": DEFAULT, "full_attention": YARN}, 65536),
        ({"sliding_attention": LINEAR, "full_attention": DEFAULT}, 4096),
        ({"full_attention": LINEAR, "sliding_attention": LINEAR}, 16384),
        ({"sliding_attention": LINEAR}, 16384),
        ({"full_attention": YARN, "sliding_attention": None}, 65536),
        ({"full_attention": None, "sliding_attention": LINEAR}, 16384),
        # A mixture: vLLM drops what stands beside the types of layers.
        ({**LINEAR, "full_attention": DEFAULT, "sliding_attention": DEFAULT}, 4096),
    ],
)
@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_the_rope_of_layers_that_see_everything_decides_the_longest_context(
    key: str, ropes: dict[str, Any], longest: int
) -> None:
    value = {**config("llama-2-7b"), key: ropes}
    assert facts(value).max_position_embeddings == longest
    assert facts(essentials(value)).max_position_embeddings == longest, "what a record keeps says the same"


def test_gemma_3_holds_the_factor_already_also_where_its_layers_have_ropes_of_their_own() -> None:
    value = config("gemma-3-1b", rope_parameters={"full_attention": LINEAR, "sliding_attention": DEFAULT})
    assert facts(value).max_position_embeddings == facts(config("gemma-3-1b")).max_position_embeddings


def test_a_wrong_number_in_a_rope_of_a_type_of_layers_is_named_by_its_path() -> None:
    ropes = {"full_attention": {**YARN, "original_max_position_embeddings": 0}, "sliding_attention": DEFAULT}
    found = refused({**config("llama-2-7b"), "rope_parameters": ropes})
    assert "rope_parameters.full_attention.original_max_position_embeddings is 0" in found.message


def test_of_groups_with_weights_of_one_size_the_slowest_activations_count() -> None:
    assert read_config(config("llama-3.1-8b", quantization_config=GROUPS)).stored.activations == ""
