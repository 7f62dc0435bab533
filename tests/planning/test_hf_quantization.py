"""How a checkpoint's weights are stored, from the quantization_config of its config.json."""

from typing import Any

import pytest

from planning.hf import config, facts, refused


def stored(**said: Any) -> tuple[str, float, int | None]:
    found = facts(config("llama-3.1-8b", quantization_config=said))
    assert not found.quantized_here
    return found.quantization, found.weight_bytes_per_parameter, found.weight_group


def scheme(**weights: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


@pytest.mark.parametrize(
    ("said", "method", "size", "group"),
    [
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8", 1.0, None),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 1.0, 128),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}, "awq", 0.5 + 2.5 / 128, 128),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "awq", 0.5 + 2.5 / 64, 64),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": True}, "gptq", 1.0, None),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "gptq", 0.5 + 2.5 / 32, 32),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes", 0.5 + 4 / 64, None),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes", 1.0, None),
        (scheme(num_bits=8, type="float", strategy="channel"), "compressed-tensors", 1.0, None),
        (scheme(num_bits=8, type="int", strategy="channel"), "compressed-tensors", 1.0, None),
        (
            scheme(num_bits=4, type="int", strategy="group", group_size=128, symmetric=True),
            "compressed-tensors", 0.5 + 2 / 128, 128,
        ),
        (
            scheme(num_bits=4, type="int", strategy="group", group_size=64, symmetric=False),
            "compressed-tensors", 0.5 + 2.5 / 64, 64,
        ),
        (
            scheme(num_bits=4, type="float", strategy="tensor_group", group_size=16),
            "compressed-tensors", 0.5 + 1 / 16, 16,
        ),
        (
            scheme(num_bits=8, type="float", strategy="block", block_structure=[128, 128]),
            "compressed-tensors", 1.0, 128,
        ),
        ({"quant_method": "compressed_tensors"}, "compressed-tensors", 1.0, None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt", 0.5 + 1 / 16, 16),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, "modelopt", 1.0, None),
    ],
)  # fmt: skip
def test_stored_as(said: dict[str, Any], method: str, size: float, group: int | None) -> None:
    assert stored(**said) == (method, pytest.approx(size), group)


def test_of_several_groups_of_layers_the_largest_weights_count() -> None:
    mixed = {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "a": {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}},
            "b": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}},
        },
    }
    assert stored(**mixed) == ("compressed-tensors", 1.0, None)


def test_a_scheme_without_weights_leaves_them_in_16_bits() -> None:
    said = {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": None}}, "kv_cache_scheme": {}}
    assert stored(**said) == ("", 2.0, None)


def test_quantisation_inside_text_config_is_found() -> None:
    outer = config("gemma-3-4b")
    outer["text_config"]["quantization_config"] = {"quant_method": "awq", "bits": 4, "group_size": 128}
    found = facts(outer)
    assert (found.quantization, found.weight_group) == ("awq", 128)


@pytest.mark.parametrize(
    ("said", "part"),
    [
        ({"quant_method": "quark"}, "quantised by quark"),
        ({"bits": 4}, "a method it does not name"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "MIXED_PRECISION"),
    ],
)
def test_an_unknown_method_is_refused_with_those_that_are_known(said: dict[str, Any], part: str) -> None:
    refusal = refused(config("llama-3.1-8b", quantization_config=said))
    assert refusal.constraint == "Quantization"
    assert part in refusal.message
    assert "choose a checkpoint" in refusal.message


def test_the_spec_may_repeat_what_the_config_says_and_may_not_contradict_it() -> None:
    awq = config("llama-3.1-8b", quantization_config={"quant_method": "awq", "bits": 4, "group_size": 64})
    assert facts(awq, quantization="awq").weight_group == 64
    refusal = refused(awq, quantization="fp8")
    assert "remove spec.model.quantization" in refusal.message
    assert "16 bits, as its config.json says" in refused(config("llama-3.1-8b"), quantization="gptq").message
    made = facts(config("llama-3.1-8b"), quantization="fp8")
    assert (made.quantized_here, made.weight_bytes_per_parameter, made.weight_group) == (True, 1.0, None)
