"""Formats of weights and KV, and the kernels that read them."""

from dataclasses import replace
from typing import Any

import pytest

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue, near_names
from firsttoken.planning.backends import ruled_out
from firsttoken.planning.models import model_facts
from firsttoken.planning.types import Infeasible, ModelFacts, Plan
from planning.specs import DEEPSEEK, QWEN_7B, planned, reason, refused, service

LITE = "hf://deepseek-ai/DeepSeek-V2-Lite"
H100, B200, A100 = "nvidia-h100-80gb", "nvidia-b200", "nvidia-a100-80gb"


def checkpoint(preset: str, kind: str) -> dict[str, object]:
    return {"quantization": kind, "architecture": {"preset": preset}}


def pinned(uri: str, device: str, **pins: str) -> Plan:
    return planned(service(uri, device, 8, engine={"pins": pins}))


def bad(uri: str, device: str, **pins: str) -> Infeasible:
    return refused(service(uri, device, 8, engine={"pins": pins}))


def test_modelopt_is_fp8_made_offline_for_devices_with_fp8_units() -> None:
    plan = planned(service("pvc://m/w", "nvidia-l4", 1, model=checkpoint("qwen2.5-7b", "modelopt")))
    assert plan.memory.weights_bytes < 9e9
    assert plan.roles[0].engine_args["quantization"] == "modelopt"
    for device in (A100, "amd-mi300x", "cpu"):
        refusal = refused(service("pvc://m/w", device, 1, model=checkpoint("qwen2.5-7b", "modelopt")))
        assert "can't serve modelopt weights" in refusal.message
    assert "checkpoint in modelopt" in refused(service(QWEN_7B, H100, 1, model={"quantization": "modelopt"})).message


def test_mxfp4_holds_experts_only() -> None:
    plan = planned(service("pvc://m/w", A100, 1, model=checkpoint("qwen3-30b-a3b", "mxfp4")))
    assert 0.54 * 30.5e9 < plan.memory.weights_bytes < 0.65 * 30.5e9  # experts 0.53, attention and embeddings 2
    assert "other layers keep 16 bits" in reason(plan, "Quantization")
    dense = refused(service("pvc://m/w", A100, 1, model=checkpoint("qwen2.5-7b", "mxfp4")))
    assert "experts only" in dense.message
    assert refused(service("pvc://m/w", "nvidia-v100-32gb", 8, model=checkpoint("qwen3-30b-a3b", "mxfp4")))


@pytest.mark.parametrize(
    ("backend", "device", "other"),
    [
        ("FLASH_ATTN_MLA", H100, B200), ("FLASHINFER_MLA", B200, H100), ("CUTLASS_MLA", B200, H100),
        ("FLASHMLA", H100, A100),
    ],
)  # fmt: skip
def test_kernels_for_latent_attention(backend: str, device: str, other: str) -> None:
    assert pinned(LITE, device, attentionBackend=backend).roles[0].engine_args["attention-backend"] == backend
    assert "compute capability" in bad(LITE, other, attentionBackend=backend).message
    assert "does not have latent attention" in bad(QWEN_7B, device, attentionBackend=backend).message


def test_an_fp8_kv_cache_of_latent_attention() -> None:
    assert "no FP8 KV cache" in bad(LITE, H100, attentionBackend="FLASH_ATTN_MLA", kvCacheDtype="fp8").message
    assert pinned(LITE, H100, attentionBackend="FLASHMLA", kvCacheDtype="fp8")
    refusal = bad(DEEPSEEK, "nvidia-h200", kvCacheDtype="int8_per_token_head")
    assert (refusal.constraint, refusal.nearest) == ("KVCacheDtype", {"spec.engine.pins.kvCacheDtype": "fp8"})


@pytest.mark.parametrize(
    ("kind", "size", "words"),
    [
        ("fp8_e5m2", 128, "one byte an element"),
        ("fp8_per_token_head", 132, "4-byte scale for each token and head"),
        ("int8_per_token_head", 132, "4-byte scale for each token and head"),
        ("int4_per_token_head", 68, "half a byte"),
        ("nvfp4", 72, "0.5625 byte"),
    ],
)
def test_bytes_of_a_quantised_kv_cache(kind: str, size: int, words: str) -> None:
    plan = pinned(QWEN_7B, B200, kvCacheDtype=kind)
    assert plan.memory.kv_bytes_per_token == 28 * 4 * 2 * size  # 28 layers, 4 KV heads of 128
    assert words in reason(plan, "KVCacheDtype")


@pytest.mark.parametrize(
    ("backend", "device", "kind", "word"),
    [
        ("FLASH_ATTN", H100, "int8_per_token_head", "no int8_per_token_head"),
        ("FLASH_ATTN", H100, "fp8_e5m2", "no fp8_e5m2"),
        ("FLASHINFER", B200, "int4_per_token_head", "no int4_per_token_head"),
        ("FLEX_ATTENTION", H100, "fp8_per_token_head", "no fp8_per_token_head"),
    ],
)
def test_kernels_and_quantised_kv(backend: str, device: str, kind: str, word: str) -> None:
    assert word in bad(QWEN_7B, device, attentionBackend=backend, kvCacheDtype=kind).message
    assert pinned(QWEN_7B, device, attentionBackend="TRITON_ATTN", kvCacheDtype=kind)


@pytest.mark.parametrize("device", [A100, H100, B200, "nvidia-rtx-pro-6000"])
def test_an_nvfp4_kv_cache_is_for_flashinfer_alone(device: str) -> None:
    """vLLM 0.32: `supported_kv_cache_dtypes` of each backend, and FlashInfer's `supports_kv_cache_dtype`."""
    assert pinned(QWEN_7B, device, attentionBackend="FLASHINFER", kvCacheDtype="nvfp4")
    for backend in ("FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION"):
        refusal = bad(QWEN_7B, device, attentionBackend=backend, kvCacheDtype="nvfp4")
        assert "no nvfp4 KV cache" in refusal.message
        assert refusal.nearest == {"spec.engine.pins.attentionBackend": "FLASHINFER"}


def test_an_nvfp4_kv_cache_with_small_heads_or_sinks_needs_blackwell() -> None:
    small = "hf://Qwen/Qwen2.5-0.5B"
    refusal = bad(small, H100, kvCacheDtype="nvfp4")
    assert (refusal.constraint, refusal.nearest) == ("KVCacheDtype", {"spec.engine.pins.kvCacheDtype": "fp8"})
    assert pinned(small, B200, kvCacheDtype="nvfp4")
    shape = model_facts(ModelSpec(uri=QWEN_7B))
    assert isinstance(shape, ModelFacts)
    changes: dict[str, dict[str, Any]] = {"heads of 64": {"head_dim": 64}, "attention sinks": {"attention_sinks": True}}
    for word, change in changes.items():
        said = [ruled_out("FLASHINFER", replace(shape, **change), (m, 0), "nvfp4") for m in (8, 9, 10, 12)]
        assert [word in (why or "") for why in said] == [True, True, False, True]


def test_alibi_with_quantised_kv_is_left_to_triton() -> None:
    plan = pinned("hf://mosaicml/mpt-7b", A100, kvCacheDtype="int8_per_token_head")
    assert plan.roles[0].engine_args["attention-backend"] == "TRITON_ATTN"


def test_a_cpu_keeps_kv_as_it_is() -> None:
    assert bad("hf://Qwen/Qwen2.5-0.5B", "cpu", kvCacheDtype="fp8").constraint == "KVCacheDtype"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("nvidia-h100-sxm", "nvidia-h100-80gb"),
        ("H100 SXM5", "nvidia-h100-80gb"),
        ("a100-sxm4-80gb", "nvidia-a100-80gb"),
        ("A100", "nvidia-a100-40gb"),
        ("h200", "nvidia-h200"),
        ("mi300", "amd-mi300x"),
        ("nvida-l40s", "nvidia-l40s"),
    ],
)
def test_a_device_is_found_by_its_product_and_by_a_part_of_its_name(name: str, meant: str) -> None:
    assert near_names(name, catalogue())[0] == meant


def test_a_name_of_nothing_is_near_to_nothing() -> None:
    assert near_names("", catalogue()) == []
    assert near_names("tpu-v5e", catalogue()) == []


def test_a_name_cut_short_is_completed() -> None:
    known = catalogue()
    assert near_names("nvidia-a100", known) == ["nvidia-a100-40gb", "nvidia-a100-80gb", "nvidia-a100-40gb-pcie"]
    assert near_names("nvidia-a10h", known)[0].startswith("nvidia-a10")
    refusal = refused(service(QWEN_7B, "nvidia-a100", 1))
    assert refusal.nearest == {"spec.accelerator.type": "nvidia-a100-40gb"}
    large = refused(service("hf://Qwen/Qwen2.5-14B-Instruct", "nvidia-a100", 1, model={"maxModelLength": 32768}))
    assert large.nearest["spec.accelerator.type"].startswith("nvidia-a100")
