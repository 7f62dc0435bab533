"""A plan's candidates under the same requests: what is tried, what is said, and that it is the same every time."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.models import model_facts
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import Infeasible, ModelFacts, Plan
from firsttoken.simulation.candidates import MEASURED, Comparison, Simulated, candidates, compare_candidates
from planning.specs import LLAMA_70B, QWEN_7B, planned, service

CHAT = {"profile": "Chat", "requestsPerSecond": 4}
LLAMA_8B = "hf://meta-llama/Llama-3.1-8B-Instruct"
LONG = {"profile": "Summarization", "promptTokens": {"p50": 24_000, "p95": 30_000},
        "outputTokens": {"p50": 150, "p95": 200}}  # fmt: skip
LONGER = {**LONG, "promptTokens": {"p50": 32_000, "p95": 36_000}, "outputTokens": {"p50": 200, "p95": 200}}


def replan(spec: InferenceServiceSpec, shapes: Mapping[str, tuple[int, int]]) -> Plan | Infeasible:
    return make_plan(spec, catalogue(), shapes=shapes)


def compared(spec: InferenceServiceSpec, seed: int = 0) -> Comparison:
    facts = model_facts(spec.model)
    assert isinstance(facts, ModelFacts)
    found = compare_candidates(spec, planned(spec), facts, catalogue(), replan, seed=seed)
    assert found is not None
    return found


@cache
def small() -> InferenceServiceSpec:
    return service(QWEN_7B, "nvidia-a100-40gb", 4, workload=CHAT)


def shapes(found: list[Plan]) -> list[list[tuple[str, int]]]:
    return [[(role.role, role.tensor_parallel) for role in plan.roles] for plan in found]


def test_the_plan_comes_first_and_its_alternatives_are_planned_in_full() -> None:
    plan = planned(small())
    first, *others = candidates(small(), plan, replan)
    assert first.plan is plan
    assert shapes([c.plan for c in others]) == [[("serve", a.tensor_parallel)] for a in plan.alternatives]
    assert [c.plan.gpus for c in others] == [a.gpus for a in plan.alternatives]


def test_a_proposed_split_is_among_them() -> None:
    spec = service(LLAMA_8B, "nvidia-a100-40gb", 8, workload=LONGER)
    plan = planned(spec)
    assert "DisaggregationProposal" in {r.code for r in plan.reasons}
    second = candidates(spec, plan, replan)[1]
    tensor = plan.roles[0].tensor_parallel
    assert (second.name, shapes([second.plan])) == (
        "prefill and decode apart",
        [[("prefill", tensor), ("decode", tensor)]],
    )


def test_another_shape_of_a_split_keeps_the_other_role() -> None:
    spec = service(LLAMA_8B, "nvidia-h100-80gb", 8, workload=LONG, layout={"mode": "Disaggregated"})
    plan = planned(spec)
    for other in candidates(spec, plan, replan)[1:]:
        assert other.plan.roles[0].tensor_parallel == plan.roles[0].tensor_parallel
        assert other.name.endswith("for decode")


def test_the_same_seed_gives_the_same_bytes_and_another_one_other_requests() -> None:
    assert repr(compared(small())) == repr(compared(small()))
    assert repr(compared(small())) != repr(compared(small(), seed=1))


def test_all_have_the_same_requests_and_only_those_of_a_filled_fleet_count() -> None:
    found = compared(small())
    assert {s.buckets["all"].requests for s in found.simulated} == {MEASURED} == {found.requests}
    assert (found.rate, found.assumed) == (4, False)
    buckets = found.simulated[0].buckets
    assert sum(b.requests for name, b in buckets.items() if name != "all") == MEASURED


def test_what_is_overloaded_misses_its_promises() -> None:
    """The rate is that of the plan on 8 GPUs: one engine of tensor parallel 8 carries clearly less here."""
    found = compared(service(LLAMA_8B, "nvidia-h100-80gb", 8, workload=LONG))
    one = next(s for s in found.simulated if s.name == "tensor parallel 8")
    assert one.plan.prediction is not None
    assert one.plan.prediction.requests_per_second < found.rate
    assert not one.keeps_slos
    assert one.missed[0].startswith("TTFT P95 within 10 s")


def test_pipeline_stages_are_listed_with_why_they_are_not_simulated() -> None:
    pins = {"tensorParallel": 1, "pipelineParallel": 2}
    found = compared(service(QWEN_7B, "nvidia-a100-40gb", 2, workload=CHAT, engine={"pins": pins}))
    assert "2 pipeline stages" in found.simulated[0].why_not
    assert not found.simulated[0].keeps_slos
    assert found.disagreement is None, "of a plan that can't be simulated nothing is said"


def test_a_fleet_that_sleeps_is_not_simulated() -> None:
    found = compared(service(LLAMA_70B, "nvidia-h100-80gb", 8, workload=CHAT, scaling={"replicas": 0}))
    assert "0 serve replicas" in found.simulated[0].why_not


def one(name: str, gpus: int, missed: tuple[str, ...] = ()) -> Simulated:
    plan = planned(small())
    return Simulated(name, replace(plan, roles=(replace(plan.roles[0], replicas=gpus),)), {}, missed)


def said(*simulated: Simulated) -> str | None:
    return Comparison(4.0, False, 100, 0, simulated).disagreement


def test_it_speaks_where_the_plan_misses_or_others_need_less() -> None:
    late: dict[str, Any] = {"missed": ("TTFT P95 within 1 s (2 s)",)}
    assert said(one("the plan", 4)) is None
    assert said(one("the plan", 4), one("b", 4), one("c", 2, **late)) is None
    assert said(one("the plan", 4), one("b", 3), one("c", 2)) == "simulated, c keeps the SLOs on 2 GPUs instead of 4"
    misses = "simulated, the plan misses TTFT P95 within 1 s (2 s)"
    assert said(one("the plan", 4, **late), one("b", 2, **late)) == misses
    assert said(one("the plan", 4, **late), one("b", 8)) == f"{misses}; b keeps the SLOs on 8 GPUs"
