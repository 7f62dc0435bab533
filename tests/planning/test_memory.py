"""Memory: weights, KV bytes per token, overheads, against figures that are published or follow by hand."""

from dataclasses import replace

import pytest

from firsttoken.api.architecture import Architecture
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.cuda_graphs import captured_graphs
from firsttoken.planning.memory import (
    BLOCK_TOKENS,
    GIB,
    EngineLoad,
    block_tokens,
    kv_bytes_per_token_and_layer,
    memory_budget,
    padding_bytes,
    weights_bytes,
)
from firsttoken.planning.models import model_facts
from firsttoken.planning.types import MemoryBudget, ModelFacts
from planning.specs import DEEPSEEK, FALCON_7B, QWEN_7B, planned, reason, service

LOAD = EngineLoad(token_budget=2048, max_num_seqs=256, max_model_length=4096, request_tokens=2000)


def facts(uri: str, quantization: str | None = None, preset: str | None = None) -> ModelFacts:
    architecture = Architecture(preset=preset) if preset else None
    found = model_facts(ModelSpec(uri=f"hf://{uri}", quantization=quantization, architecture=architecture))
    assert isinstance(found, ModelFacts)
    return found


def budget(uri: str, device: str = "nvidia-a100-40gb", tensor: int = 1, stages: int = 1) -> MemoryBudget:
    return memory_budget(facts(uri), catalogue()[device], tensor, stages, LOAD)


@pytest.mark.parametrize(
    ("uri", "kv_bytes"),
    [
        ("meta-llama/Llama-2-7b-hf", 524_288),  # MHA: 32 heads
        ("meta-llama/Llama-3.1-8B", 131_072),  # GQA: 8 heads
        ("meta-llama/Llama-3.1-70B", 327_680),
        ("Qwen/Qwen2.5-7B-Instruct", 57_344),
        ("tiiuae/falcon-7b", 8_192),  # MQA: one head
        ("deepseek-ai/DeepSeek-V3", 70_272),  # MLA: 576 elements a layer
    ],
)
def test_kv_bytes_per_token(uri: str, kv_bytes: int) -> None:
    assert budget(uri).kv_bytes_per_token == kv_bytes


def test_kv_heads_are_replicated_when_ranks_outnumber_them() -> None:
    model = facts("Qwen/Qwen2.5-7B-Instruct")  # 4 KV heads
    per_rank = [kv_bytes_per_token_and_layer(model, tensor, 2) for tensor in (1, 2, 4, 8)]
    assert per_rank == [2048, 1024, 512, 512]


def test_latent_kv_is_replicated_on_every_rank() -> None:
    assert budget("deepseek-ai/DeepSeek-V3", "nvidia-h200", 8).kv_bytes_per_token == 8 * 70_272


def test_fp8_kv_holds_twice_the_tokens() -> None:
    model, device = facts("meta-llama/Llama-3.1-8B"), catalogue()["nvidia-h100-80gb"]
    fp8 = EngineLoad(2048, 256, 4096, 2000, kv_cache_dtype="fp8")
    one, two = (memory_budget(model, device, 1, 1, load) for load in (LOAD, fp8))
    assert two.kv_cache_tokens == pytest.approx(2 * one.kv_cache_tokens, abs=2 * BLOCK_TOKENS)


def test_weights_in_sixteen_bits_and_quantised() -> None:
    name = "meta-llama/Llama-3.1-8B"
    assert weights_bytes(facts(name)) / GIB == pytest.approx(14.96, abs=0.01)  # vLLM's log: 14.96 (PR 10511)
    embeddings = 2 * 128_256 * 4096
    assert weights_bytes(facts(name, "fp8")) == facts(name).parameters - embeddings + 2 * embeddings
    awq = weights_bytes(facts("somebody/Llama-3.1-8B-AWQ", "awq", "llama-3.1-8b"))
    assert awq == pytest.approx((facts(name).parameters - embeddings) * 0.5195 + 2 * embeddings, rel=1e-3)
    assert weights_bytes(facts(name), element=4) == 2 * weights_bytes(facts(name))


def test_kv_comes_in_whole_blocks() -> None:
    assert budget("Qwen/Qwen2.5-7B-Instruct").kv_cache_tokens % BLOCK_TOKENS == 0


def test_a_cpu_s_kv_comes_in_its_own_blocks() -> None:
    """128 tokens each: of 2000 tokens, a request takes 16 blocks there and 125 on a GPU."""
    assert {name for name, p in catalogue().items() if block_tokens(p) == 128} == {"cpu", "intel-gaudi3"}
    b = budget("Qwen/Qwen2.5-0.5B", "cpu")
    assert b.kv_cache_tokens % 128 == 0
    assert b.max_concurrent_requests == b.kv_cache_tokens // 2048 < b.kv_cache_tokens // 2000


@pytest.mark.parametrize(
    ("device", "ranks", "columns", "hidden"),
    [
        ("nvidia-a100-80gb", 1, 2944, 3072),  # Marlin
        ("nvidia-a100-80gb", 4, 4 * 768, 3072),  # 90 blocks of 32: 23, 23, 23 and 21 a rank
        ("nvidia-l40s", 8, 8 * 384, 3072),
        ("nvidia-h100-80gb", 1, 2880, 2880),  # Triton
        ("nvidia-h100-80gb", 8, 8 * 384, 2880),
        ("nvidia-b200", 8, 8 * 512, 3072),  # TRT-LLM
        ("amd-mi300x", 2, 2 * 1536, 3072),
    ],
)
def test_experts_in_mxfp4_are_padded_to_whole_tiles(device: str, ranks: int, columns: int, hidden: int) -> None:
    model, profile = facts("openai/gpt-oss-20b"), catalogue()[device]
    added = (
        24 * 32 * 3 * (columns * hidden - 2880 * 2880) * 17 / 32
    )  # layers, experts, matrices; a scale for 32 weights
    assert padding_bytes(model, profile, ranks) == pytest.approx(added, abs=1)
    plain = memory_budget(replace(model, expert_parameters=0), profile, ranks, 1, LOAD)
    padded = memory_budget(model, profile, ranks, 1, LOAD)
    assert padded.weights_bytes - plain.weights_bytes == padding_bytes(model, profile, ranks)
    assert (padded.kv_cache_tokens < plain.kv_cache_tokens) == (added > 0)


def test_weights_of_gpt_oss_as_vllm_loads_them() -> None:
    """Several logs of vLLM with the Marlin kernel: "Model loading took 13.72 GiB" (expert widths 2944 and 3072)."""
    b = memory_budget(facts("openai/gpt-oss-20b"), catalogue()["nvidia-a100-40gb"], 1, 1, LOAD)
    assert b.weights_bytes / GIB == pytest.approx(13.72, abs=0.1)  # without padding it would be 12.80


def test_other_formats_are_not_padded() -> None:
    for name in ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B"):
        assert padding_bytes(facts(name), catalogue()["nvidia-a100-80gb"], 8) == 0


def test_kv_by_need_against_by_maximum_is_the_story_of_the_reference_case() -> None:
    """M4.4, M8 step 4: a 7B model with MHA on one A100-40 goes from ten requests to twice that, with GQA to dozens."""
    mha = budget("meta-llama/Llama-2-7b-hf")
    assert (mha.max_concurrent_at_maximum_length, mha.max_concurrent_requests) == (10, 22)
    assert budget("Qwen/Qwen2.5-7B-Instruct").max_concurrent_requests > 100


def test_budget_of_a_measured_engine() -> None:
    """vLLM PR 10511: Llama 3 8B on an 80 GB GPU, utilization 0.90: 53.29 GiB for KV with 1.26 GiB of activations."""
    load = EngineLoad(8192, 256, 8192, 2000, utilization=0.9)
    b = memory_budget(facts("meta-llama/Meta-Llama-3-8B"), catalogue()["nvidia-h100-80gb"], 1, 1, load)
    assert b.activation_bytes / GIB == pytest.approx(1.26, abs=0.01)
    assert b.kv_cache_bytes / GIB == pytest.approx(53.29, rel=0.01)


def test_captured_graphs_follow_the_largest_decode_batch() -> None:
    a100, b200 = catalogue()["nvidia-a100-40gb"], catalogue()["nvidia-b200"]
    assert captured_graphs(a100, 1) == 2
    assert captured_graphs(a100, 256) == captured_graphs(a100, 1024) == 51
    assert captured_graphs(b200, 1024) == 83


def test_no_room_is_zero_tokens() -> None:
    assert budget("meta-llama/Llama-3.1-70B").kv_cache_tokens == 0


def test_stages_hold_their_share_of_layers() -> None:
    one, two = budget("meta-llama/Llama-2-13b-hf", tensor=2), budget("meta-llama/Llama-2-13b-hf", stages=2)
    assert two.weights_bytes == one.weights_bytes
    assert 0 < two.kv_cache_tokens <= one.kv_cache_tokens  # activations are not split over stages


def test_cpu_keeps_to_its_allotment_in_whole_gib() -> None:
    b = budget("Qwen/Qwen2.5-0.5B", "cpu")
    assert b.kv_cache_bytes <= 4 * GIB
    assert b.kv_bytes_per_token == 2 * budget("Qwen/Qwen2.5-0.5B").kv_bytes_per_token  # float32


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            service(DEEPSEEK, "nvidia-h200", 8),
            "562176 bytes (70272 on each of 8 ranks: the latent vector of MLA has no heads to split",
        ),
        (
            service(FALCON_7B, "nvidia-a100-80gb", 2, engine={"pins": {"tensorParallel": 1}}),
            "8192 bytes: ",
        ),
        (
            service(QWEN_7B, "nvidia-h100-80gb", 8, engine={"pins": {"tensorParallel": 4}}),
            "57344 bytes: ",
        ),
        (
            service("hf://Qwen/Qwen2.5-1.5B-Instruct", "nvidia-h100-80gb", 4, engine={"pins": {"tensorParallel": 4}}),
            "57344 bytes (14336 on each of 4 ranks: the 2 KV heads are replicated)",
        ),
    ],
)
def test_a_plan_says_why_a_token_takes_more_than_the_model_has_of_it(spec: InferenceServiceSpec, said: str) -> None:
    assert said in reason(planned(spec), "Memory")
