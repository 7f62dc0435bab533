"""Plans for the cases that a reader would check first."""

import json

import pytest

from planning.specs import (
    DEEPSEEK,
    FALCON_7B,
    LLAMA_70B,
    MPT_7B,
    PHI_4,
    QWEN_7B,
    TINY,
    planned,
    reason,
    refused,
    service,
)


def shape(spec: object) -> list[tuple[str, int, int, int]]:
    """(role, replicas, tensor, pipeline) of each role."""
    plan = planned(spec)  # type: ignore[arg-type]
    return [(r.role, r.replicas, r.tensor_parallel, r.pipeline_parallel) for r in plan.roles]


def test_reference_case_runs_eight_single_gpu_replicas_behind_a_router() -> None:
    """M8: 7B on 8 x A100-40."""
    spec = service(QWEN_7B, "nvidia-a100-40gb", 8, workload={"profile": "KnowledgeQA"})
    plan = planned(spec)
    assert shape(spec) == [("serve", 8, 1, 1)]
    assert (plan.layout, plan.router, plan.gpus) == ("Colocated", True, 8)
    assert plan.roles[0].engine_args == {
        "enable-chunked-prefill": "",
        "enable-prefix-caching": "",
        "gpu-memory-utilization": "0.92",
        "max-model-len": "4096",
        "max-num-batched-tokens": "2048",
        "max-num-seqs": "256",
        "pipeline-parallel-size": "1",
        "tensor-parallel-size": "1",
    }
    assert (plan.settings.token_budget, plan.settings.decode_cap) == (2048, 256)
    assert "the budget filled" in reason(plan, "Replicas")


def test_70b_in_16_bits_does_not_fit_four_a100_40() -> None:
    refusal = refused(service(LLAMA_70B, "nvidia-a100-40gb", 4))
    assert refusal.constraint == "Memory"
    assert refusal.nearest["spec.accelerator.maxCount"] == 8
    assert refusal.nearest["spec.model.quantization"] == "fp8"
    assert "141.1 GB" in refusal.message
    assert "Feasible instead" in refusal.message


def test_70b_in_fp8_on_four_a100_40_saves_memory_and_not_time() -> None:
    plan = planned(service(LLAMA_70B, "nvidia-a100-40gb", 4, model={"quantization": "fp8"}))
    assert plan.roles[0].tensor_parallel == 4
    assert plan.roles[0].engine_args["quantization"] == "fp8"
    assert "not time" in reason(plan, "Quantization")


def test_70b_on_eight_h100_is_two_replicas_of_four() -> None:
    assert shape(service(LLAMA_70B, "nvidia-h100-80gb", 8)) == [("serve", 2, 4, 1)]


def test_1b_on_one_l4_for_completion() -> None:
    spec = service("hf://meta-llama/Llama-3.2-1B", "nvidia-l4", 1, workload={"profile": "CodeCompletion"})
    assert shape(spec) == [("serve", 1, 1, 1)]
    assert not planned(spec).router


def test_falcon_on_t4_needs_two_stages_since_71_heads_can_not_be_split() -> None:
    spec = service(FALCON_7B, "nvidia-t4")
    plan = planned(spec)
    assert shape(spec) == [("serve", 1, 1, 2)]
    assert "71 attention heads" in reason(plan, "PipelineParallel")
    assert plan.roles[0].engine_args["dtype"] == "half"
    assert plan.roles[0].engine_args["attention-backend"] == "TRITON_ATTN"
    assert "compute capability 8.0" in reason(plan, "AttentionBackend")
    assert refused(service(FALCON_7B, "nvidia-t4", 1)).nearest["spec.accelerator.maxCount"] == 2


def test_a_sliding_window_keeps_to_a_kernel_that_is_verified_with_it() -> None:
    inline = {**TINY, "slidingWindow": 1024}
    plan = planned(service("pvc://models/tiny", "nvidia-b200", 1, model={"architecture": {"inline": inline}}))
    assert plan.roles[0].engine_args["attention-backend"] == "FLASH_ATTN"
    assert "not verified with a sliding window" in reason(plan, "AttentionBackend")


def test_alibi_names_the_kernels() -> None:
    plan = planned(service(MPT_7B, "nvidia-a100-40gb", 1))
    assert "attention-backend" not in plan.roles[0].engine_args
    assert "FLEX_ATTENTION can't" in reason(plan, "AttentionBackend")
    assert planned(service(MPT_7B, "nvidia-b200", 1)).roles[0].engine_args["attention-backend"] == "FLASH_ATTN"


def test_latent_attention_before_hopper_has_one_kernel() -> None:
    plan = planned(service("hf://deepseek-ai/DeepSeek-V2-Lite", "nvidia-a100-80gb", 1))
    assert plan.roles[0].engine_args["attention-backend"] == "TRITON_MLA"


def test_pcie_carries_no_split_beyond_two() -> None:
    spec = service(LLAMA_70B, "nvidia-l40s", 4)
    assert shape(spec) == [("serve", 1, 2, 2)]
    assert "PCIe" in reason(planned(spec), "PipelineParallel")


def test_kv_heads_limit_tensor_parallelism() -> None:
    """Phi-4 has 10 KV heads: neither 4 nor 8 ranks can share them."""
    spec = service(PHI_4, "nvidia-a10g", 8)
    assert shape(spec)[0][2] == 2


def test_models_without_fp16_are_refused_on_devices_without_bf16() -> None:
    refusal = refused(service("hf://google/gemma-2-2b-it", "nvidia-t4", 1))
    assert refusal.constraint == "Dtype"
    assert "compute capability 8.0" in refusal.message


def test_fp8_weights_are_refused_where_no_kernel_serves_them() -> None:
    assert refused(service(QWEN_7B, "nvidia-t4", 4, model={"quantization": "fp8"})).constraint == "Quantization"


def test_unknown_accelerator_names_those_there_are() -> None:
    refusal = refused(service(QWEN_7B, "nvidia-a100-40g", 1))
    assert (refusal.constraint, refusal.nearest) == (
        "UnknownAccelerator",
        {"spec.accelerator.type": "nvidia-a100-40gb"},
    )


def test_tiny_model_on_cpu() -> None:
    model = {"architecture": {"inline": TINY}, "maxModelLength": 2048}
    plan = planned(service("pvc://models/tiny", "cpu", model=model))
    (role,) = plan.roles
    assert (role.tensor_parallel, role.replicas) == (1, 1)
    assert role.engine_args["dtype"] == "float32"
    assert "gpu-memory-utilization" not in role.engine_args
    assert role.environment == {"VLLM_CPU_KVCACHE_SPACE": "2"}, "256 requests of 2048 tokens of 4 KiB"
    assert "enforce-eager" in role.engine_args


def test_kv_space_on_cpu_is_what_the_running_requests_can_fill() -> None:
    model = {"architecture": {"inline": TINY}, "maxModelLength": 2048}

    def space(**engine: object) -> str:
        return (
            planned(service("pvc://models/tiny", "cpu", model=model, engine=engine))
            .roles[0]
            .environment["VLLM_CPU_KVCACHE_SPACE"]
        )

    assert space(pins={"maxNumSeqs": 8}) == "1"
    assert space(pins={"maxNumSeqs": 2000}) == "4", "vLLM's own default is the most"


def test_a_user_s_own_choice_of_eager_stands() -> None:
    spec = service("pvc://models/tiny", "cpu", model={"architecture": {"inline": TINY}},
                   engine={"extraArgs": {"no-enforce-eager": ""}})  # fmt: skip
    plan = planned(spec)
    assert "enforce-eager" not in plan.roles[0].engine_args
    assert "EnforceEager" not in {reason.code for reason in plan.reasons}


def test_a_user_s_own_dtype_stands() -> None:
    spec = service("pvc://models/tiny", "cpu", model={"architecture": {"inline": TINY}},
                   engine={"extraArgs": {"dtype": "bfloat16"}})  # fmt: skip
    assert "dtype" not in planned(spec).roles[0].engine_args


@pytest.mark.parametrize("profile", ["Summarization", "OfflineBatch"])
def test_prompts_with_nothing_in_common_have_no_prefix_cache_and_no_router(profile: str) -> None:
    plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 8, workload={"profile": profile}))
    assert "no-enable-prefix-caching" in plan.roles[0].engine_args
    assert not plan.router


class TestDisaggregated:
    """M4.5: only when asked for, since a split pays where measurements confirm the imbalance."""

    def test_auto_starts_colocated(self) -> None:
        plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 8, workload={"profile": "Summarization"}))
        assert plan.layout == "Colocated"
        assert "measurements confirm" in reason(plan, "Layout")

    def test_roles_share_the_gpus_as_carries_most_and_hand_kv_over(self) -> None:
        plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 8, layout={"mode": "Disaggregated"}))
        assert [(r.role, r.replicas) for r in plan.roles] == [("prefill", 6), ("decode", 2)]
        assert plan.router
        configs = [json.loads(r.engine_args["kv-transfer-config"]) for r in plan.roles]
        assert [c["kv_role"] for c in configs] == ["kv_producer", "kv_consumer"]
        assert {(c["kv_connector"], c["kv_load_failure_policy"]) for c in configs} == {("NixlConnector", "fail")}
        assert "split as carries most" in reason(plan, "Replicas")

    def test_mixed_gpu_types(self) -> None:
        plan = planned(
            service(QWEN_7B, "nvidia-h100-80gb", 8, layout={"mode": "Disaggregated"},
                    accelerator={"decode": {"type": "nvidia-h200"}})
        )  # fmt: skip
        assert [r.accelerator for r in plan.roles] == ["nvidia-h100-80gb", "nvidia-h200"]

    def test_kv_has_one_format_on_both_sides(self) -> None:
        plan = planned(
            service("hf://Qwen/Qwen2.5-1.5B", "nvidia-a100-40gb", 2, layout={"mode": "Disaggregated"},
                    accelerator={"prefill": {"type": "nvidia-t4"}})
        )  # fmt: skip
        assert [r.engine_args["dtype"] for r in plan.roles] == ["half", "half"]

    def test_cpu_and_gpu_can_not_share_kv(self) -> None:
        spec = service("hf://Qwen/Qwen2.5-0.5B", "nvidia-l4", 2, layout={"mode": "Disaggregated"},
                       accelerator={"prefill": {"type": "cpu"}})  # fmt: skip
        assert refused(spec).constraint == "Accelerator"

    def test_roles_have_no_stages_since_the_transfer_does_not_work_with_them(self) -> None:
        refusal = refused(service(LLAMA_70B, "nvidia-l40s", 16, layout={"mode": "Disaggregated"}))
        assert refusal.constraint == "PipelineParallel"
        assert "NixlConnector" in refusal.message
        assert "over PCIe, which carries no split of a layer beyond 2, and vLLM's" in refusal.message
        assert refusal.nearest["spec.layout.mode"] == "Colocated"
        assert shape(service(LLAMA_70B, "nvidia-a100-80gb", 16, layout={"mode": "Disaggregated"})) == [
            ("prefill", 1, 8, 1), ("decode", 1, 4, 1),
        ]  # fmt: skip

    def test_roles_over_pcie_are_bound_by_their_split_and_not_by_the_node(self) -> None:
        """Colocated would not fit either, so only the split and the stages that a role can't have are to be named."""
        model = "hf://meta-llama/Llama-3.1-405B"
        refusal = refused(service(model, "nvidia-t4", 16, layout={"mode": "Disaggregated"}))
        assert refusal.constraint == "PipelineParallel"
        assert "over PCIe, which carries no split of a layer beyond 2" in refusal.message
        assert "prefill and decode roles have no pipeline stages" in refusal.message
        assert "nodes" not in refusal.message
        assert "Colocated" not in refusal.message

    def test_a_role_that_no_node_holds(self) -> None:
        refusal = refused(service(DEEPSEEK, "nvidia-h100-80gb", 32, layout={"mode": "Disaggregated"}))
        assert refusal.constraint == "AcrossNodes"
        assert refusal.message.startswith("prefill: ")
        assert "NixlConnector does not work with pipeline stages" in refusal.message
        assert refusal.nearest["spec.layout.mode"] == "Colocated"

    def test_one_gpu_is_too_few(self) -> None:
        refusal = refused(service(QWEN_7B, "nvidia-a100-40gb", 1, layout={"mode": "Disaggregated"}))
        assert (refusal.constraint, refusal.nearest["spec.accelerator.maxCount"]) == ("MaxCount", 2)
