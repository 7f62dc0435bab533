"""Pins override; a pin that can't work is refused with what would."""

from typing import Any

import pytest

from firsttoken.planning.types import Infeasible, Plan
from planning.specs import LLAMA_70B, MPT_7B, PHI_4, QWEN_7B, planned, reason, refused, service

A100 = "nvidia-a100-40gb"


def with_pins(uri: str = QWEN_7B, device: str = A100, count: int = 8, **pins: Any) -> Plan:
    return planned(service(uri, device, count, engine={"pins": pins}))


def bad_pins(uri: str = QWEN_7B, device: str = A100, count: int = 8, **pins: Any) -> Infeasible:
    return refused(service(uri, device, count, engine={"pins": pins}))


def test_parallelism_pins() -> None:
    role = with_pins(tensorParallel=2, pipelineParallel=2).roles[0]
    assert (role.tensor_parallel, role.pipeline_parallel, role.replicas) == (2, 2, 2)


def test_a_pin_beyond_what_the_link_carries_is_obeyed_with_a_warning() -> None:
    assert "will be slow" in reason(with_pins(device="nvidia-l40s", tensorParallel=4), "TensorParallel")


@pytest.mark.parametrize(
    ("uri", "pin", "nearest", "word"),
    [
        (PHI_4, 4, 2, "KV heads"),
        (QWEN_7B, 8, 4, "28 attention heads"),
        (LLAMA_70B, 16, 8, "a node has 8 devices, and the AcceleratorProfile says nothing of the network"),
        (LLAMA_70B, 20, 8, "on several nodes a layer's split takes all of each"),
    ],
)
def test_impossible_tensor_parallelism(uri: str, pin: int, nearest: int, word: str) -> None:
    refusal = bad_pins(uri, count=16, tensorParallel=pin)
    assert refusal.constraint == "TensorParallel"
    assert word in refusal.message
    assert refusal.nearest == {"spec.engine.pins.tensorParallel": nearest}


def test_more_stages_than_layers() -> None:
    assert bad_pins(pipelineParallel=29).constraint == "PipelineParallel"


def test_pinned_stages_beyond_a_node_lie_on_two() -> None:
    role = with_pins(LLAMA_70B, count=32, tensorParallel=4, pipelineParallel=4).roles[0]
    assert (role.nodes, role.gpus_per_node, role.replicas) == (2, 8, 2)
    assert role.engine_args["nnodes"] == "2"


def test_pinned_stages_of_split_roles() -> None:
    """vLLM's NixlConnector refuses them."""
    pins = {"pipelineParallel": 2}
    refusal = refused(service(QWEN_7B, A100, 8, engine={"pins": pins}, layout={"mode": "Disaggregated"}))
    assert refusal.constraint == "PipelineParallel"
    assert refusal.nearest["spec.engine.pins.pipelineParallel"] == 1
    assert refusal.nearest["spec.layout.mode"] == "Colocated"


@pytest.mark.parametrize("uri", ["hf://google/gemma-3-27b-pt", "hf://google/gemma-3-1b-pt"])
def test_stages_where_nothing_joins_devices(uri: str) -> None:
    """Whether one device would hold the model or not."""
    found = bad_pins(uri, "cpu", 4, pipelineParallel=2)
    assert found.constraint == "PipelineParallel"
    assert "pipelineParallel is 2: a node is one device on CPU" in found.message
    assert (found.nearest == {"spec.engine.pins.pipelineParallel": 1}) == ("1b" in uri), "only what was tried and fits"


def test_a_pinned_shape_that_does_not_fit_memory() -> None:
    refusal = bad_pins(LLAMA_70B, tensorParallel=2, pipelineParallel=1)
    assert refusal.constraint == "Memory"
    assert refusal.nearest["spec.engine.pins.tensorParallel"] == 8
    assert refusal.nearest["spec.engine.pins.pipelineParallel"] == 4


def test_token_budget_pin_is_start_and_ceiling() -> None:
    plan = with_pins(tokenBudget=512)
    assert plan.roles[0].engine_args["max-num-batched-tokens"] == "512"
    assert plan.settings.token_budget == 512


def test_max_num_seqs_pin_beyond_what_fits_says_so() -> None:
    plan = with_pins(maxNumSeqs=1000)
    assert plan.roles[0].engine_args["max-num-seqs"] == "1000"
    assert "preempted" in reason(plan, "MaxNumSeqs")


def test_more_requests_than_tokens_of_a_step() -> None:
    refusal = bad_pins(maxNumSeqs=4096)
    assert (refusal.constraint, refusal.nearest) == ("TokenBudget", {"spec.engine.pins.maxNumSeqs": 2048})


def test_whole_prompt_prefill_needs_the_longest_prompt_in_one_step() -> None:
    """M8 step 0: the baseline."""
    plan = with_pins(chunkedPrefill=False)
    assert "no-enable-chunked-prefill" in plan.roles[0].engine_args
    assert int(plan.roles[0].engine_args["max-num-batched-tokens"]) == plan.max_model_length
    refusal = bad_pins(chunkedPrefill=False, tokenBudget=256)
    assert refusal.constraint == "TokenBudget"
    assert refusal.nearest["spec.engine.pins.chunkedPrefill"] is True


def test_prefix_caching_and_memory_pins() -> None:
    plan = with_pins(prefixCaching=False, gpuMemoryUtilization=0.8)
    assert "no-enable-prefix-caching" in plan.roles[0].engine_args
    assert plan.roles[0].engine_args["gpu-memory-utilization"] == "0.8"
    assert plan.memory.usable_bytes < with_pins().memory.usable_bytes
    assert not plan.router


def test_fp8_kv_is_a_user_s_decision_and_rules_flash_attention_out_on_a100() -> None:
    plan = with_pins(kvCacheDtype="fp8")
    assert plan.roles[0].engine_args["kv-cache-dtype"] == "fp8"
    assert "FP8 KV cache" in reason(plan, "AttentionBackend")
    assert "before it gets traffic" in reason(plan, "KVCacheDtype")
    assert "kv-cache-dtype" not in with_pins().roles[0].engine_args


@pytest.mark.parametrize(
    ("uri", "device", "pins", "nearest"),
    [
        (QWEN_7B, "nvidia-t4", {"attentionBackend": "FLASH_ATTN", "tensorParallel": 2}, "TRITON_ATTN"),
        (QWEN_7B, A100, {"attentionBackend": "FLASH_ATTN", "kvCacheDtype": "fp8"}, "FLASHINFER"),
        (QWEN_7B, A100, {"attentionBackend": "FLASHMLA"}, "FLASH_ATTN"),
        (MPT_7B, A100, {"attentionBackend": "FLEX_ATTENTION"}, "FLASH_ATTN"),
        ("hf://deepseek-ai/DeepSeek-V2-Lite", A100, {"attentionBackend": "FLASHMLA"}, "TRITON_MLA"),
        ("hf://deepseek-ai/DeepSeek-V2-Lite", A100, {"attentionBackend": "FLASH_ATTN"}, "TRITON_MLA"),
    ],
)
def test_kernels_that_can_not_serve(uri: str, device: str, pins: dict[str, Any], nearest: str) -> None:
    refusal = bad_pins(uri, device, **pins)
    assert refusal.constraint == "AttentionBackend"
    assert refusal.nearest == {"spec.engine.pins.attentionBackend": nearest}


def test_a_kernel_that_can_serve_is_named_to_vllm() -> None:
    assert with_pins(attentionBackend="FLASHINFER").roles[0].engine_args["attention-backend"] == "FLASHINFER"


class TestLiveSettings:
    """Where live tuning starts and how far it may go (M4.2)."""

    def test_initial_is_a_start_below_the_ceiling(self) -> None:
        plan = planned(
            service(QWEN_7B, A100, 8, engine={"initial": {"tokenBudget": 256, "longPrefillThreshold": 1024}})
        )
        assert plan.settings.token_budget == 256
        assert plan.settings.decode_cap <= 240  # a step keeps room for a block of prefill
        assert plan.settings.long_prefill_threshold == 1024
        assert plan.roles[0].engine_args["max-num-batched-tokens"] == "2048"

    def test_initial_above_the_default_raises_the_ceiling(self) -> None:
        plan = planned(service(QWEN_7B, A100, 8, engine={"initial": {"tokenBudget": 4096}}))
        assert plan.roles[0].engine_args["max-num-batched-tokens"] == "4096"

    def test_bounds_of_tuning_are_ceiling_and_floor(self) -> None:
        tuning = {"mode": "Auto", "tokenBudget": {"min": 512, "max": 1024}}
        plan = planned(service(QWEN_7B, A100, 8, tuning=tuning, engine={"initial": {"tokenBudget": 128}}))
        assert plan.settings.token_budget == 512
        assert plan.roles[0].engine_args["max-num-batched-tokens"] == "1024"
        off = planned(service(QWEN_7B, A100, 8, tuning={**tuning, "mode": "Off"}))
        assert off.roles[0].engine_args["max-num-batched-tokens"] == "2048"

    def test_decode_cap(self) -> None:
        plan = planned(service(QWEN_7B, A100, 8, engine={"initial": {"decodeCap": 32}}))
        assert plan.settings.decode_cap == 32
        assert int(plan.roles[0].engine_args["max-num-seqs"]) > 32

    @pytest.mark.parametrize(
        ("device", "budget"),
        [("nvidia-a100-80gb", "2048"), ("nvidia-l4", "2048"), ("nvidia-h100-80gb", "8192"), ("nvidia-b200", "16384")],
    )
    def test_vllm_s_default_for_the_class_of_device(self, device: str, budget: str) -> None:
        plan = planned(service("hf://Qwen/Qwen2.5-1.5B", device, 1))
        assert plan.roles[0].engine_args["max-num-batched-tokens"] == budget
