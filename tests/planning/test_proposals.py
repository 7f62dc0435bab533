"""What is worth trying next, and when nothing is said."""

import re
from typing import Any

import pytest

from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.calibration import Calibration, Measured, Ratio
from firsttoken.planning.disaggregation import Sides, Tighter, split_reason
from firsttoken.planning.load.layouts import Comparison
from firsttoken.planning.plan import make_plan
from firsttoken.planning.timing.efficiency import efficiencies
from firsttoken.planning.types import Plan
from firsttoken.planning.words import milliseconds
from planning.specs import LLAMA_70B, QWEN_7B, planned, reason, service
from planning.timing.models import device

LLAMA_8B = "hf://meta-llama/Llama-3.1-8B-Instruct"
LONG = {"profile": "Summarization", "promptTokens": {"p50": 24_000, "p95": 32_000},
        "outputTokens": {"p50": 150, "p95": 200}}  # fmt: skip
ANSWERS = {"profile": "KnowledgeQA"}


def codes(plan: Plan) -> set[str]:
    return {r.code for r in plan.reasons}


def carried(text: str) -> tuple[float, float]:
    """Requests a second of a replica in other formats, and in today's."""
    found = re.search(r"carry ([\d.e-]+) requests/s a replica instead of ([\d.e-]+)", text)
    assert found is not None, text
    return float(found[1]), float(found[2])


def alone(plan: Plan) -> float:
    """Requests a second of a replica that has no others beside it."""
    found = re.search(r"alone ([\d.]+):", reason(plan, "SpreadByRouter"))
    assert found is not None
    return float(found[1])


def held(text: str) -> tuple[int, int]:
    found = re.search(r"KV for (\d+) tokens instead of (\d+)", text)
    assert found is not None, text
    return int(found[1]), int(found[2])


class TestFp8KV:
    """Where running requests bind, since no more of them fit, more KV is what is missing."""

    def test_it_is_proposed_with_what_it_holds_and_carries(self) -> None:
        plan = planned(service(LLAMA_8B, "nvidia-l40s", 8, workload=ANSWERS))
        said = reason(plan, "Fp8KVProposal")
        then, now = held(said)
        assert now == plan.memory.kv_cache_tokens
        assert then == pytest.approx(2 * now, rel=0.03), "less what more running requests take for their sampler"
        assert plan.prediction is not None
        assert carried(said)[0] > (1 + plan.prediction.relative_interval) * carried(said)[1]
        assert "takes an evaluation" in said

    def test_to_follow_it_brings_what_it_says(self) -> None:
        spec = {"uri": LLAMA_8B, "device": "nvidia-l40s", "max_count": 8, "workload": ANSWERS}
        said = reason(planned(service(**spec)), "Fp8KVProposal")
        followed = planned(service(**spec, engine={"pins": {"kvCacheDtype": "fp8"}}))
        assert followed.memory.kv_cache_tokens == held(said)[0]
        assert alone(followed) == pytest.approx(carried(said)[0], rel=0.05)

    @pytest.mark.parametrize("pinned", ["auto", "fp8", "fp8_e5m2"])
    def test_who_pinned_the_type_has_decided(self, pinned: str) -> None:
        spec = service(LLAMA_8B, "nvidia-l40s", 8, workload=ANSWERS, engine={"pins": {"kvCacheDtype": pinned}})
        assert "Fp8KVProposal" not in codes(planned(spec))

    def test_not_where_no_kernel_reads_it(self) -> None:
        pins = {"pins": {"attentionBackend": "FLASH_ATTN"}}
        assert "Fp8KVProposal" in codes(planned(service(LLAMA_8B, "nvidia-l40s", 8, workload=ANSWERS)))
        spec = service(LLAMA_8B, "nvidia-l40s", 8, workload=ANSWERS, engine=pins)
        assert "Fp8KVProposal" not in codes(planned(spec)), "FLASH_ATTN reads FP8 KV on Hopper and Blackwell only"

    def test_a_gain_counts_beyond_what_the_less_known_step_times_may_be_off(self) -> None:
        """The rule of a split: here as much KV more, but no table has FP8 KV on Ampere."""
        ampere = service(LLAMA_8B, "nvidia-a100-40gb", 8, workload=ANSWERS)
        assert "Fp8KVProposal" not in codes(planned(ampere))
        fp8 = planned(
            service(LLAMA_8B, "nvidia-a100-40gb", 8, workload=ANSWERS, engine={"pins": {"kvCacheDtype": "fp8"}})
        )
        assert fp8.prediction is not None
        gain = (fp8.roles[0].capacity or 0) / (planned(ampere).roles[0].capacity or 1) - 1
        assert efficiencies(device("nvidia-l40s")).interval.decode < gain < fp8.prediction.relative_interval
        ada = planned(service(LLAMA_8B, "nvidia-l40s", 8, workload=ANSWERS))
        assert ada.prediction is not None
        off = f"more than step times may be off (+-{100 * ada.prediction.relative_interval:.0f} %)"
        assert off in reason(ada, "Fp8KVProposal")

    def test_not_where_kv_is_not_what_is_missing(self) -> None:
        """Long prompts, tokens promised soon: a step is too long before the cache is full."""
        slos = [{"metric": "TTFT", "target": "10s"}, {"metric": "TPOT", "target": "20ms"}]
        plan = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, workload=LONG, slos=slos))
        assert "Fp8KVProposal" not in codes(plan)


class TestFp8Weights:
    def test_what_the_weights_leave_is_kv(self) -> None:
        pins = {"pins": {"maxNumSeqs": 256}}  # with more KV more would run, and take a part of it for their sampler
        plan = planned(service(LLAMA_70B, "nvidia-h100-80gb", 8, engine=pins))
        then, now = held(reason(plan, "Fp8WeightsProposal"))
        saved = plan.memory.weights_bytes / 2
        assert (then - now) * plan.memory.kv_bytes_per_token == pytest.approx(saved, rel=0.05)

    def test_to_follow_it_brings_what_it_says(self) -> None:
        pins = {"pins": {"tensorParallel": 4}}
        said = reason(planned(service(LLAMA_70B, "nvidia-h100-80gb", 8, engine=pins)), "Fp8WeightsProposal")
        spec = service(LLAMA_70B, "nvidia-h100-80gb", 8, engine=pins, model={"quantization": "fp8"})
        followed = planned(spec)
        assert followed.memory.kv_cache_tokens == held(said)[0]
        assert alone(followed) == pytest.approx(carried(said)[0], rel=0.05)

    def test_not_twice_and_not_where_it_saves_no_time(self) -> None:
        assert "Fp8WeightsProposal" not in codes(planned(service(QWEN_7B, "nvidia-a100-80gb", 8)))
        eight = service(LLAMA_70B, "nvidia-h100-80gb", 8, model={"quantization": "fp8"})
        assert "Fp8WeightsProposal" not in codes(planned(eight))


def test_a_slow_fleet_makes_no_gain_of_other_formats() -> None:
    """What was measured of today's formats holds for the others too, or every proposal would gain the difference."""
    slos = [{"metric": "TTFT", "target": "60s"}, {"metric": "TPOT", "target": "1s"}]
    spec = service(LLAMA_8B, "nvidia-l40s", 8, workload=ANSWERS, engine={"pins": {"tensorParallel": 1}}, slos=slos)
    slow = Calibration(
        {
            Measured("nvidia-l40s", "llama-3.1-8b", "", "auto", 1, stage): Ratio(1.4, 0.05, 5000, 1)
            for stage in ("prefill", "decode")
        }
    )
    plain, calibrated = make_plan(spec, catalogue()), make_plan(spec, catalogue(), slow)
    assert isinstance(plain, Plan)
    assert isinstance(calibrated, Plan)
    both = codes(plain) & codes(calibrated) & {"Fp8KVProposal", "Fp8WeightsProposal"}
    assert "Fp8KVProposal" in both
    for code in both:
        (then, now), (slow_then, slow_now) = (carried(reason(p, code)) for p in (plain, calibrated))
        assert slow_now < 0.8 * now
        # Slower requests stay longer, so memory binds a little more; a gain of the difference would be 1.4 times this.
        assert slow_then / slow_now == pytest.approx(then / now, rel=0.12)


def sides(tpot: float) -> Sides:
    """Both layouts at one rate; together 1 s and 40 ms."""
    return Sides(4.0, True, 8, (1.0, 0.040), (1.2, tpot))


MORE, AS_MUCH = Tighter(0.02, 4.0, 9.0), Tighter(0.02, 8.0, 9.0)


@pytest.mark.parametrize(
    ("gain", "clear", "tpot", "tighter", "code", "said"),
    [
        (0.60, True, 0.040, None, "DisaggregationProposal", "the gain is more than the model may be off"),
        (0.00, False, 0.019, MORE, "DisaggregationProposal", "a split would carry 9 requests/s, colocated 4 (+125 %)"),
        (-0.09, False, 0.019, MORE, "DisaggregationProposal", "TPOT P95 within 20 ms"),
        (-0.09, False, 0.019, Tighter(0.02, 0.0, 9.0), "DisaggregationProposal", "colocated 0"),
        (-0.11, False, 0.010, MORE, "NoDisaggregation", "but 11 % fewer requests are carried"),
        (-0.51, False, 0.010, MORE, "NoDisaggregation", "but 51 % fewer requests are carried"),
        (0.02, False, 0.010, AS_MUCH, "NoDisaggregation", "colocated replicas can do as much"),
        (0.02, False, 0.010, None, "NoDisaggregation", "too little"),
        (0.50, False, 0.030, None, "NoDisaggregation", "tokens come 1.3 times as fast only"),
    ],
)
def test_M4_5_a_loss_is_bounded_whatever_the_interval(
    gain: float, *, clear: bool, tpot: float, tighter: Tighter | None, code: str, said: str
) -> None:
    comparison = Comparison(10.0, 10.0 * (1 + gain), gain, clear)
    found = split_reason(comparison, "2 prefill and 1 decode replica", 0.52, sides(tpot), tighter)
    assert found.code == code
    assert said in found.message
    assert f"TPOT P95 {tpot * 1000:.3g} ms instead of 40 ms" in found.message, "what a split costs and brings is said"
    assert "TTFT P95 would be 1.2 s instead of 1 s" in found.message


def split_text(**rest: Any) -> str:
    plan = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, workload={**LONG, **rest}))
    return reason(plan, "DisaggregationProposal" if "DisaggregationProposal" in codes(plan) else "NoDisaggregation")


def test_M4_5_both_layouts_are_shown_at_one_rate_and_it_is_said_which() -> None:
    assert re.search(
        r"at 1 requests/s in either layout \(.* instead of \d serve replicas\) TTFT", split_text(requestsPerSecond=1)
    )
    free = split_text()
    apart, together = (float(x) for x in re.search(r"carry ([\d.]+) .* GPUs, colocated ([\d.]+)", free).groups())  # type: ignore[union-attr]
    rate = float(re.search(r"at ([\d.]+) requests/s in either layout \(70 % of what the weaker", free)[1])  # type: ignore[index]
    assert rate == pytest.approx(0.7 * min(apart, together), rel=0.01)
    assert split_text(requestsPerSecond=1000).count("in either layout (70 % of") == 1, "nobody carries that"


@pytest.mark.parametrize("device", ["nvidia-h100-80gb", "nvidia-a100-40gb"])
@pytest.mark.parametrize(("rate", "scaling"), [(4, {"replicas": 8}), (4, {}), (0.5, {}), (0.5, {"minReplicas": 2})])
def test_M4_5_the_colocated_side_is_the_plan_s_own_prediction(
    device: str, rate: float, scaling: dict[str, int]
) -> None:
    """As many replicas behind the same router: the same figures in both sentences."""
    work = {**LONG, "requestsPerSecond": rate}
    plan = planned(service(LLAMA_8B, device, 8, workload=work, scaling=scaling))
    assert plan.prediction is not None
    text = reason(plan, "DisaggregationProposal" if "DisaggregationProposal" in codes(plan) else "NoDisaggregation")
    found = re.search(rf"at {rate:g} requests/s in .* instead of (.*), TPOT P95 .* instead of ([\d.]+ m?s) \(KV", text)
    if rate == 4 and device == "nvidia-a100-40gb":
        assert found is None, "they carry less than that"
        return
    assert found is not None, text
    assert found[1] == milliseconds(plan.prediction.ttft.p95)
    assert found[2] == milliseconds(plan.prediction.tpot.p95)


def test_M4_5_without_a_rate_what_is_compared_is_what_both_plans_carry() -> None:
    """The proposal's requests a second are those of the plan that it stands in, and of the plan that follows it."""
    asked = {"workload": LONG, "engine": {"pins": {"tensorParallel": 1}}}
    plan = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, **asked))
    apart = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, layout={"mode": "Disaggregated"}, **asked))
    text = reason(plan, "DisaggregationProposal" if "DisaggregationProposal" in codes(plan) else "NoDisaggregation")
    found = re.search(r"(\d) prefill and (\d) decode .* carry ([\d.]+) .* GPUs, colocated ([\d.]+)", text)
    assert found is not None
    serve = plan.roles[0]
    assert float(found[4]) == pytest.approx(serve.replicas * (serve.capacity or 0), rel=0.01)
    assert [int(found[1]), int(found[2])] == [r.replicas for r in apart.roles]
    assert float(found[3]) == pytest.approx(min(r.replicas * (r.capacity or 0) for r in apart.roles), rel=0.05)


def test_the_prediction_of_a_split_is_of_one_rate_in_both_roles() -> None:
    """Without a rate it is a part of what the weaker role carries: the other one has no rate of its own."""
    plan = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, layout={"mode": "Disaggregated"}, workload=LONG))
    assert plan.prediction is not None
    weaker = min(r.replicas * (r.capacity or 0) for r in plan.roles)
    assert plan.prediction.requests_per_second == pytest.approx(0.7 * weaker, rel=0.001)


def test_M4_5_a_split_is_proposed_for_the_devices_that_the_spec_names() -> None:
    def said(**types: str) -> str:
        accelerator = {role: {"type": device} for role, device in types.items()}
        plan = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, workload=LONG, accelerator=accelerator))
        assert [role.accelerator for role in plan.roles] == ["nvidia-h100-80gb"], "a proposal, nothing more"
        return reason(plan, "DisaggregationProposal" if "DisaggregationProposal" in codes(plan) else "NoDisaggregation")

    def carried_apart(text: str) -> float:
        return float(re.search(r"would carry ([\d.]+)", text)[1])  # type: ignore[index]

    same, faster, slower = said(), said(decode="nvidia-h200"), said(prefill="nvidia-l4")
    assert "of the same shape would carry" in same
    assert said(prefill="nvidia-h100-80gb") == same, "the device that it has anyway"
    assert re.search(r"prefill replicas? of 1 × NVIDIA H100 SXM and \d+ decode replicas? of 1 × NVIDIA H200", faster)
    assert re.search(r"prefill replicas? of \d+ × NVIDIA L4 and \d+ decode replicas? of \d+ × NVIDIA H100", slower)
    assert carried_apart(slower) < carried_apart(same) <= carried_apart(faster), "prefill may be what binds"
    assert "built for one vendor's devices" in said(decode="amd-mi300x")
    assert "no AcceleratorProfile is named 'nvidia-h300'" in said(decode="nvidia-h300")


def test_what_is_compared_on_other_devices_is_what_following_it_plans() -> None:
    asked = {"workload": {**LONG, "requestsPerSecond": 6}, "accelerator": {"decode": {"type": "nvidia-h200"}}}
    plan = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, **asked))
    said = reason(plan, "DisaggregationProposal" if "DisaggregationProposal" in codes(plan) else "NoDisaggregation")
    apart = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, layout={"mode": "Disaggregated"}, **asked))
    for role in apart.roles:
        assert f"{role.role} replica" in said
        assert f"of {role.gpus_per_replica} × {catalogue()[role.accelerator].product}" in said
