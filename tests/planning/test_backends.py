"""Which attention kernel serves what (M4.1), as vLLM 0.32's backends say of themselves."""

from typing import Any

import pytest

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.attention import choose_backend, loses_flash
from firsttoken.planning.backends import flash_version, ruled_out
from firsttoken.planning.models import model_facts
from firsttoken.planning.types import ModelFacts, Plan
from planning.specs import DEEPSEEK, FALCON_7B, MPT_7B, QWEN_7B, planned, reason, refused, service

GPT_OSS, GEMMA_2, GEMMA_3 = "hf://openai/gpt-oss-20b", "hf://google/gemma-2-9b-it", "hf://google/gemma-3-12b-it"
FP8 = {"pins": {"kvCacheDtype": "fp8"}}


def facts(uri: str) -> ModelFacts:
    found = model_facts(ModelSpec(uri=uri))
    assert isinstance(found, ModelFacts)
    return found


def backend(plan: Plan) -> str | None:
    return plan.roles[0].engine_args.get("attention-backend")


@pytest.mark.parametrize(
    ("uri", "cuda", "kv", "version"),
    [
        (QWEN_7B, (8, 0), "auto", 2),
        (QWEN_7B, (9, 0), "auto", 3),
        (QWEN_7B, (10, 0), "fp8", 4),
        (QWEN_7B, (12, 0), "auto", 2),
        (MPT_7B, (9, 0), "auto", 2),  # ALiBi
        (MPT_7B, (10, 0), "auto", 2),
        (GEMMA_2, (9, 0), "fp8", 3),  # heads of 256
        (GEMMA_2, (10, 0), "fp8", 2),
        (GPT_OSS, (10, 0), "auto", 4),
    ],
)
def test_flash_attention_s_version(uri: str, cuda: tuple[int, int], kv: str, version: int) -> None:
    found, why = flash_version(facts(uri), cuda, kv)
    assert found == version
    assert bool(why) == (version == 2 and cuda[0] in (9, 10))


@pytest.mark.parametrize(
    ("uri", "device", "why"),
    [
        (MPT_7B, "nvidia-b200", "FlashAttention 4 has no ALiBi"),
        (MPT_7B, "nvidia-h100-80gb", "FlashAttention 3 has no ALiBi"),
        (GEMMA_2, "nvidia-b200", "heads of 256"),
    ],
)
def test_flash_attention_2_has_no_fp8_kv(uri: str, device: str, why: str) -> None:
    """vLLM would stop at start: it validates ALiBi nowhere, and `FlashAttentionImpl` refuses the cache."""
    plan = planned(service(uri, device, 1, engine=FP8))
    assert backend(plan) == "TRITON_ATTN"
    assert why in reason(plan, "AttentionBackend")
    pins = {"pins": {"kvCacheDtype": "fp8", "attentionBackend": "FLASH_ATTN"}}
    assert refused(service(uri, device, 1, engine=pins)).constraint == "AttentionBackend"
    assert "Fp8KVProposal" not in {r.code for r in planned(service(uri, device, 1)).reasons}
    assert loses_flash(facts(uri), catalogue()[device], "fp8")


def test_where_fp8_kv_keeps_a_flash_kernel_it_is_no_loss() -> None:
    assert not loses_flash(facts(QWEN_7B), catalogue()["nvidia-a100-40gb"], "fp8"), "FLASHINFER reads it"
    assert not loses_flash(facts(GEMMA_2), catalogue()["nvidia-h100-80gb"], "fp8")
    assert not loses_flash(facts(GPT_OSS), catalogue()["nvidia-l40s"], "fp8"), "it has none today either"


@pytest.mark.parametrize("device", ["nvidia-a100-80gb", "nvidia-l40s", "nvidia-rtx-pro-6000"])
def test_attention_sinks_need_flash_attention_3_or_4(device: str) -> None:
    plan = planned(service(GPT_OSS, device, 1))
    assert backend(plan) == "TRITON_ATTN"
    assert "attention sinks" in reason(plan, "AttentionBackend")
    refusal = refused(service(GPT_OSS, device, 1, engine={"pins": {"attentionBackend": "FLASH_ATTN"}}))
    assert refusal.nearest == {"spec.engine.pins.attentionBackend": "TRITON_ATTN"}


@pytest.mark.parametrize("device", ["nvidia-h100-80gb", "nvidia-b200"])
def test_attention_sinks_where_it_is(device: str) -> None:
    engine = {"pins": {"attentionBackend": "FLASH_ATTN"}}
    assert backend(planned(service(GPT_OSS, device, 1, engine=engine))) == "FLASH_ATTN"


@pytest.mark.parametrize("device", ["nvidia-a100-80gb", "nvidia-h100-80gb", "nvidia-b200"])
def test_images_seen_in_both_directions_leave_the_choice_to_vllm(device: str) -> None:
    """Gemma 3 with vision and heads of 256: FLASH_ATTN named to vLLM would stop the engine."""
    plan = planned(service(GEMMA_3, device, 1))
    assert backend(plan) is None
    assert "FLASH_ATTN is ruled out" in reason(plan, "AttentionBackend")


def test_the_smaller_heads_of_the_27b_have_flash_attention_4() -> None:
    model = facts("hf://google/gemma-3-27b-it")
    assert ruled_out("FLASH_ATTN", model, (10, 0), "auto") is None
    assert ruled_out("FLASH_ATTN", model, (9, 0), "auto") is not None


@pytest.mark.parametrize(
    ("uri", "device", "words"),
    [
        (DEEPSEEK, "nvidia-h200", ["FLASH_ATTN and FLASHINFER are ruled out", "latent attention (MLA)"]),
        (GPT_OSS, "nvidia-l40s", ["TRITON_ATTN", "FLASH_ATTN is ruled out", "FLASHINFER is ruled out"]),
        (FALCON_7B, "nvidia-l4", ["FLASH_ATTN, as vLLM chooses itself", "71 heads of 64 on 1 KV head,"]),
        (MPT_7B, "nvidia-h100-80gb", ["ALiBi positions (FLEX_ATTENTION can't)", "FLASHINFER is ruled out"]),
        (QWEN_7B, "nvidia-b200", ["FLASHINFER, as vLLM chooses itself"]),
        (QWEN_7B, "amd-mi300x", ["vLLM's own choice for AMD MI300X"]),
    ],
)
def test_M4_1_each_plan_says_which_kernel_fits_and_which_does_not(uri: str, device: str, words: list[str]) -> None:
    said = reason(planned(service(uri, device)), "AttentionBackend")
    assert [word for word in words if word not in said] == []


@pytest.mark.parametrize(("device", "named"), [("nvidia-a100-80gb", None), ("nvidia-b200", "FLASH_ATTN")])
def test_alibi_never_goes_to_flashinfer(device: str, named: Any) -> None:
    """vLLM does not ask backends about ALiBi, and FlashInferImpl computes without."""
    assert choose_backend(None, facts(MPT_7B), catalogue()[device], "auto")[0] == named
