"""Steps, prefills and transfers: units, published points, and what each option changes."""

from dataclasses import replace

import pytest

from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.timing.step import Decodes, StepModel, StepTime
from planning.timing.models import DEEPSEEK, LLAMA_8B, LLAMA_70B, MIXTRAL, device, facts, step_model


@pytest.mark.parametrize(
    ("gpu", "kv", "context", "milliseconds"),
    [
        # vLLM blog 2026-04-22: inter-token latency of Llama 3.1 8B, batch 1.
        ("nvidia-h100-80gb", "auto", 1024, 6.48),
        ("nvidia-h100-80gb", "auto", 65536, 9.30),
        ("nvidia-h100-80gb", "fp8", 65536, 8.13),
        ("nvidia-b200", "auto", 16384, 4.22),
    ],
)
def test_published_decode_steps(gpu: str, kv: str, context: int, milliseconds: float) -> None:
    model = step_model(gpu=gpu, kv_cache_dtype=kv)
    assert 1e3 * model.decode_seconds(1, context) == pytest.approx(milliseconds, rel=model.interval.decode)


def test_a_decode_step_reads_the_weights_once_and_little_more() -> None:
    """16 GB over 3.35 TB/s are 4.8 ms: the floor that no kernel goes below."""
    model = step_model()
    floor = 2 * (facts(LLAMA_8B).parameters - facts(LLAMA_8B).vocab_size * 4096) / device("nvidia-h100-80gb").bandwidth
    assert floor < model.decode_seconds(1, 16) < 1.5 * floor


def test_a_long_prefill_is_bound_by_compute() -> None:
    model, tokens = step_model(), 8192
    flops = 2 * tokens * (facts(LLAMA_8B).parameters - facts(LLAMA_8B).embedding_parameters)
    peak = device("nvidia-h100-80gb").flops
    assert 0.4 < flops / peak / model.prefill_seconds(tokens) < 0.95


def test_parts_sum_to_the_step_and_the_cpu_runs_beside_or_after() -> None:
    def gpu(step: StepTime) -> float:
        return step.linear + step.attention + step.collectives + step.head

    work = ([(0, 256)], [500] * 8)
    beside = step_model().step_seconds(*work)
    after = step_model(async_scheduling=False).step_seconds(*work)
    assert beside.seconds == pytest.approx(max(gpu(beside), beside.cpu))
    assert after.seconds == pytest.approx(gpu(after) + after.cpu)
    assert min(beside.linear, beside.attention, beside.head, beside.cpu) > 0
    assert beside.collectives == 0


def test_a_small_model_with_many_requests_is_bound_by_the_cpu() -> None:
    step = step_model("Qwen/Qwen2.5-0.5B", "nvidia-b200").step_seconds((), Decodes(512, 512 * 16, 16))
    assert step.seconds == step.cpu > 512 * 4e-6


def test_chunks_cost_more_than_one_long_step() -> None:
    """Weights are read, and earlier KV is read again, for each chunk. Long products meet the power limit instead."""
    whole, halves, small = (step_model().prefill_seconds(8192, token_budget=b) for b in (8192, 4096, 256))
    assert halves == pytest.approx(whole, rel=0.05)
    assert 1.1 * whole < small < 2 * whole


def test_a_prefix_hit_removes_work_but_not_attention_to_the_prefix() -> None:
    model = step_model()
    cold, hit, short = model.prefill_seconds(16384), model.prefill_seconds(16384, 12288), model.prefill_seconds(4096)
    assert short < hit < cold / 2


def test_the_last_token_is_always_computed() -> None:
    model = step_model()
    assert model.prefill_seconds(1024, 1024) == model.prefill_seconds(1024, 1023) > 0


def test_sums_stand_for_single_contexts() -> None:
    model = step_model()
    assert model.step_seconds((), [700] * 9) == model.step_seconds((), Decodes(9, 6300, 700))


def test_one_long_context_costs_more_than_the_mean_says() -> None:
    model = step_model()
    even, skewed = Decodes(64, 64 * 2000, 2000), Decodes(64, 64 * 2000, 60000)
    assert model.step_seconds((), skewed).attention > 1.1 * model.step_seconds((), even).attention


def test_the_head_computes_one_row_a_request() -> None:
    model = step_model()
    assert model.step_seconds([(0, 4096)]).head == model.step_seconds([(0, 1)]).head
    assert model.step_seconds([(0, 64)], [10] * 255).head > model.step_seconds([(0, 64)]).head


def test_tensor_parallelism_helps_less_than_its_gpus_and_least_over_pcie() -> None:
    one, two = (step_model(LLAMA_70B, tensor_parallel=t).prefill_seconds(4096) for t in (4, 8))
    assert one / 2 < two < one
    pcie, nvlink = (step_model(gpu=g, tensor_parallel=4) for g in ("nvidia-l40s", "nvidia-a100-80gb"))
    assert pcie.step_seconds([(0, 2048)]).collectives > 20 * nvlink.step_seconds([(0, 2048)]).collectives


def test_ranks_on_several_nodes_pay_for_the_network() -> None:
    inside = step_model(LLAMA_70B, tensor_parallel=8)
    across = StepModel(inside.facts, replace(inside.device, node=4), tensor_parallel=8)
    assert across.step_seconds([(0, 2048)]).collectives > 2 * inside.step_seconds([(0, 2048)]).collectives


def test_pipeline_stages_pass_activations() -> None:
    one, two = step_model(LLAMA_70B, tensor_parallel=4), step_model(LLAMA_70B, tensor_parallel=4, pipeline_parallel=2)
    assert two.step_seconds([(0, 512)]).collectives > one.step_seconds([(0, 512)]).collectives
    assert two.step_seconds([(0, 512)]).linear == one.step_seconds([(0, 512)]).linear


def test_the_next_batch_follows_when_the_slowest_stage_is_free() -> None:
    """32 layers in 5 stages: the last one has 6 of them and the head, which is read for as long as two layers."""
    one, five = (step_model(LLAMA_8B, "nvidia-l40s", pipeline_parallel=n) for n in (1, 5))
    step = five.step_seconds((), [1000] * 20)
    layers = step.linear + step.attention + step.collectives
    assert step.head > layers / 32
    assert five.interval_seconds(step) == pytest.approx(layers * 6 / 32 + step.head)
    assert step.seconds / 5 < five.interval_seconds(step) < step.seconds
    assert one.interval_seconds(one.step_seconds([(0, 100)])) == one.step_seconds([(0, 100)]).seconds


def test_layers_that_are_left_over_are_in_the_middle() -> None:
    """80 layers in 7 stages: three have 12, and the head of the last one, which has 11, is less than a layer."""
    model = step_model(LLAMA_70B, tensor_parallel=4, pipeline_parallel=7)
    step = model.step_seconds([(0, 2048)])
    assert model.interval_seconds(step) == pytest.approx((step.seconds - step.head) * 12 / 80)


def test_one_scheduler_prepares_the_steps_of_all_stages() -> None:
    """However short a stage is, a step begins no sooner than the one before it is prepared."""
    model = step_model("Qwen/Qwen2.5-0.5B", "nvidia-b200", pipeline_parallel=24)
    step = model.step_seconds((), [100] * 500)
    assert model.interval_seconds(step) >= step.cpu > step.seconds / 24


def test_nothing_was_measured_of_stages() -> None:
    one, two = step_model(LLAMA_70B, tensor_parallel=4), step_model(LLAMA_70B, tensor_parallel=4, pipeline_parallel=2)
    assert (one.unmeasured, two.unmeasured) == ((), ("pipeline stages",))
    assert two.interval.prefill > 2 * one.interval.prefill


def test_fp8_weights_are_faster_where_the_gpu_multiplies_them_and_only_smaller_elsewhere() -> None:
    eight = facts(LLAMA_8B, quantization="fp8", weight_bytes_per_parameter=1.0)
    for gpu, prefill_gain in (("nvidia-h100-80gb", True), ("nvidia-a100-80gb", False)):
        sixteen, quantised = step_model(gpu=gpu), StepModel(eight, device(gpu))
        assert quantised.decode_seconds(1, 100) < 0.8 * sixteen.decode_seconds(1, 100)
        assert (quantised.prefill_seconds(8192) < 0.9 * sixteen.prefill_seconds(8192)) == prefill_gain


def test_four_bit_weights_are_read_faster_and_multiplied_as_before() -> None:
    awq = StepModel(facts(LLAMA_8B, quantization="awq", weight_bytes_per_parameter=0.52), device("nvidia-a100-80gb"))
    plain = step_model(gpu="nvidia-a100-80gb")
    assert awq.decode_seconds(1, 100) < 0.7 * plain.decode_seconds(1, 100)
    assert awq.prefill_seconds(8192) == pytest.approx(plain.prefill_seconds(8192), rel=0.05)
    assert awq.interval.decode > plain.interval.decode


def test_fp8_kv_pays_at_long_contexts_only() -> None:
    """ENGINE.md: slower than BF16 below one or two thousand tokens."""
    sixteen, eight = step_model(), step_model(kv_cache_dtype="fp8")
    assert eight.decode_seconds(32, 128) >= sixteen.decode_seconds(32, 128)
    assert eight.decode_seconds(32, 32768) < 0.7 * sixteen.decode_seconds(32, 32768)
    with pytest.raises(InfeasibleError):
        step_model(kv_cache_dtype="fp7")


def test_untiled_attention_grows_with_the_square_of_the_prompt() -> None:
    """M8's baseline: the score matrix of 32 heads and 16k tokens is 17 GB, written and read."""
    tiled, untiled = step_model(), step_model(tiled=False)
    assert untiled.step_seconds([(0, 16384)]).attention > 3 * tiled.step_seconds([(0, 16384)]).attention
    assert untiled.decode_seconds(8, 1000) == tiled.decode_seconds(8, 1000)
    assert untiled.interval.prefill > tiled.interval.prefill


def test_a_window_bounds_attention() -> None:
    window = StepModel(facts(LLAMA_8B, sliding_window=4096), device("nvidia-h100-80gb"))
    full, half = (
        step_model(),
        StepModel(facts(LLAMA_8B, sliding_window=4096), device("nvidia-h100-80gb"), windowed_layers=16),
    )
    for work in (([(0, 32768)], ()), ((), [32768] * 8)):
        times = [m.step_seconds(*work).attention for m in (window, half, full)]
        assert times == sorted(times)
        assert times[0] < times[2] / 2
    assert window.decode_seconds(1, 100) == full.decode_seconds(1, 100)


def test_a_mixture_reads_the_experts_its_tokens_touch() -> None:
    model = step_model(MIXTRAL, "nvidia-h200", tensor_parallel=2)
    one, many = (model.step_seconds((), [16] * n).linear for n in (1, 64))
    assert many > 1.5 * one  # 2 of 8 experts, then all
    all_weights = 2 * facts(MIXTRAL).parameters / 2 / device("nvidia-h200").bandwidth
    assert one < all_weights < many


def test_mla_keeps_little_kv_and_replicates_it() -> None:
    model = step_model(DEEPSEEK, "nvidia-h200", tensor_parallel=8)
    assert model.kv_bytes_per_token == 576 * 2 * 61 * 8
    assert model.interval.decode > step_model(gpu="nvidia-h200").interval.decode
    long, short = (model.decode_seconds(64, c) for c in (32768, 1024))
    assert short < long < 3 * short


def test_transfer_of_kv() -> None:
    """Mooncake's documents: Qwen3-8B over 8 x 200 Gb/s, 0.54 ms for 128 tokens and 8.84 ms for 8,192."""
    model = step_model("Qwen/Qwen3-8B")
    for tokens, milliseconds in ((128, 0.54), (8192, 8.84)):
        assert 1e3 * model.transfer_seconds(tokens, link=200e9) == pytest.approx(milliseconds, rel=0.05)
    assert model.transfer_seconds(8192) > model.transfer_seconds(8192, link=200e9), "PCIe, by default"


def test_what_depends_on_the_tokens_of_a_step_alone_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load model asks thousands of times."""
    model, contexts = step_model(), list(range(1000, 1064))
    for chunk in range(1, 101):
        model.step_seconds([(0, chunk)], contexts)

    def again(tokens: int) -> float:
        raise AssertionError(f"computed again for {tokens} tokens")

    monkeypatch.setattr(model.tokens, "linear", again)
    monkeypatch.setattr(model.tokens, "collectives", again)
    for chunk in range(1, 101):
        assert model.step_seconds([(128, chunk)], contexts).seconds > 0
