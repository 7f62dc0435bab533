"""Quantised weights that share a scale are not cut apart, and the classes of devices go by capability, not by name."""

import pytest

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.models import model_facts
from firsttoken.planning.parallelism import why_not_divisible
from firsttoken.planning.settings import class_defaults
from firsttoken.planning.types import ModelFacts
from planning.specs import planned, service


def facts(preset: str, quantization: str, uri: str = "hf://somebody/checkpoint") -> ModelFacts:
    model = {"uri": uri, "quantization": quantization, "architecture": {"preset": preset}}
    found = model_facts(ModelSpec.model_validate(model))
    assert isinstance(found, ModelFacts), found
    return found


@pytest.mark.parametrize("quantization", ["awq", "gptq"])
def test_qwen_72b_in_groups_of_128_is_not_split(quantization: str) -> None:
    """29568 / 2 = 14784 is no multiple of 128: vLLM ends with an error (vLLM issue 13640)."""
    model = facts("qwen2.5-72b", quantization)
    assert "29568 / 2 = 14784" in (why_not_divisible(model, 2) or "")
    assert [why_not_divisible(model, t) is None for t in (1, 2, 4, 8)] == [True, False, False, False]
    assert why_not_divisible(facts("qwen2.5-72b", "fp8"), 2) is None, "FP8 made at start has no groups"


def test_a_split_that_keeps_groups_whole() -> None:
    assert [why_not_divisible(facts("llama-3.1-70b", "awq"), t) for t in (1, 2, 4, 8)] == [None] * 4
    assert why_not_divisible(facts("qwen3-30b-a3b", "gptq"), 4) is not None, "768 / 4 = 192 columns of an expert"


def test_attention_output_has_groups_too() -> None:
    assert "attention" in (why_not_divisible(facts("qwen2.5-0.5b", "awq"), 2) or "")


def test_published_fp8_has_blocks_and_fits_eight_ranks() -> None:
    model = facts("deepseek-v3", "fp8", "hf://deepseek-ai/DeepSeek-V3")
    assert model.weight_group == 128
    assert [why_not_divisible(model, t) for t in (1, 2, 4, 8)] == [None] * 4
    assert why_not_divisible(model, 32) is not None


@pytest.mark.parametrize("preset", ["gpt-oss-20b", "gpt-oss-120b"])
def test_mxfp4_is_split_where_blocks_do_not_divide_since_vllm_pads_them(preset: str) -> None:
    """2880 / 8 = 360 columns are eleven and a quarter blocks of 32."""
    inline = {
        "hiddenSize": 2880, "numHiddenLayers": 24, "numAttentionHeads": 64, "numKeyValueHeads": 8, "headDim": 64,
        "intermediateSize": 2880, "vocabSize": 201088, "maxPositionEmbeddings": 131072, "numExperts": 32,
        "numExpertsPerTok": 4,
    }  # fmt: skip
    own = {"uri": "pvc://models/tuned", "quantization": "mxfp4", "architecture": {"inline": inline}}
    for model in (facts(preset, "mxfp4"), model_facts(ModelSpec.model_validate(own))):
        assert isinstance(model, ModelFacts)
        assert [why_not_divisible(model, t) for t in (1, 2, 4, 8)] == [None] * 4
        assert why_not_divisible(model, 7) is not None, "heads and columns have to divide all the same"


def test_the_plan_takes_stages_where_groups_forbid_a_split() -> None:
    spec = service(
        "hf://Qwen/Qwen2.5-72B-Instruct-AWQ", "nvidia-a100-40gb", 8,
        model={"quantization": "awq", "architecture": {"preset": "qwen2.5-72b"}},
    )  # fmt: skip
    (role,) = planned(spec).roles
    assert (role.tensor_parallel, role.pipeline_parallel > 1) == (1, True)


def test_class_of_a_device_follows_its_compute_capability() -> None:
    a100, h100 = catalogue()["nvidia-a100-80gb"], catalogue()["nvidia-h100-80gb"]
    assert class_defaults(a100) == (2048, 256)
    assert class_defaults(a100.model_copy(update={"product": "HGX board, 80 GB"})) == (2048, 256)
    assert class_defaults(h100.model_copy(update={"product": "successor of the A100"})) == (8192, 1024)
