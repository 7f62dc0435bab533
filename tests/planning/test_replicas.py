"""Replicas under the hard budget; they change without a new revision."""

from typing import Any

import pytest

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.plan import with_replicas
from firsttoken.planning.types import Infeasible, Plan
from firsttoken.planning.words import number
from planning.specs import QWEN_7B, planned, reason, refused, service


def spec(count: int | None = 8, **scaling: Any) -> InferenceServiceSpec:
    return service(QWEN_7B, "nvidia-a100-40gb", count, scaling=scaling)


def replicas(count: int | None = 8, **scaling: Any) -> int:
    return planned(spec(count, **scaling)).roles[0].replicas


def test_the_budget_is_filled_within_the_bounds() -> None:
    assert replicas(8) == 8
    assert replicas(8, maxReplicas=3) == 3
    assert replicas(8, minReplicas=2) == 8
    assert replicas(None) == 1
    assert replicas(None, minReplicas=3) == 3


def test_a_fixed_number_is_a_fixed_number() -> None:
    assert replicas(8, replicas=2) == 2
    assert replicas(8, replicas=0) == 0
    assert replicas(None, replicas=5) == 5
    assert replicas(None, minReplicas=0) == 0


def test_more_than_the_budget_is_refused_with_both_ways_out() -> None:
    plan = planned(spec(8))
    outcome = with_replicas(plan, spec(4, replicas=6))
    assert isinstance(outcome, Infeasible)
    assert outcome.constraint == "MaxCount"
    assert outcome.nearest == {"spec.accelerator.maxCount": 6, "spec.scaling.replicas": 4}
    outcome = with_replicas(plan, spec(2, minReplicas=3))
    assert isinstance(outcome, Infeasible)
    assert outcome.nearest["spec.scaling.minReplicas"] == 2


def test_make_plan_refuses_it_too() -> None:
    refusal = refused(spec(2, minReplicas=3))
    assert (refusal.constraint, refusal.nearest["spec.accelerator.maxCount"]) == ("MaxCount", 3)


def test_an_autoscaler_s_wish_is_cut_to_the_budget_and_said() -> None:
    plan = planned(spec(4, mode="External", replicas=9))
    assert plan.roles[0].replicas == 4
    assert "asks for 9" in reason(plan, "Replicas")
    assert replicas(4, mode="External", replicas=0) == 0
    assert replicas(4, mode="External", replicas=1, minReplicas=2) == 2


def test_nothing_but_replicas_and_their_reason_changes() -> None:
    plan = planned(spec(8))
    scaled = with_replicas(plan, spec(8, replicas=3))
    assert isinstance(scaled, Plan)
    assert [r.replicas for r in scaled.roles] == [3]
    assert scaled.roles[0].engine_args == plan.roles[0].engine_args
    assert (scaled.settings, scaled.memory, scaled.router) == (plan.settings, plan.memory, plan.router)
    assert [r.code for r in scaled.reasons].count("Replicas") == 1
    assert with_replicas(scaled, spec(8)) == plan


def test_a_revision_without_a_router_that_is_scaled_says_so() -> None:
    plan = planned(spec(1))
    assert not plan.router
    scaled = with_replicas(plan, spec(8))
    assert isinstance(scaled, Plan)
    assert "8 replicas" in reason(scaled, "RouterMissing")
    assert "next revision" in reason(scaled, "RouterMissing")
    assert with_replicas(scaled, spec(1)) == plan
    uncached = planned(service(QWEN_7B, "nvidia-a100-40gb", 1, engine={"pins": {"prefixCaching": False}}))
    for unconcerned in (with_replicas(planned(spec(8)), spec(8)), with_replicas(uncached, spec(8))):
        assert isinstance(unconcerned, Plan)
        assert "RouterMissing" not in [r.code for r in unconcerned.reasons]


def test_roles_share_an_odd_budget_and_keep_one_each() -> None:
    def split(count: int, **scaling: Any) -> list[int]:
        layout = {"mode": "Disaggregated"}
        return [
            r.replicas
            for r in planned(service(QWEN_7B, "nvidia-a100-40gb", count, layout=layout, scaling=scaling)).roles
        ]

    assert split(2) == [1, 1]
    assert split(5) == [3, 2], "what carries most: of three behind their router, prefill replicas fill 1.1 of decode"
    assert split(8, maxReplicas=2) == [2, 1]
    assert split(8, replicas=3) == [3, 3]
    assert split(8, replicas=0) == [0, 0]


def test_a_router_stands_where_the_budget_allows_several_replicas() -> None:
    assert planned(spec(8, replicas=1)).router  # scaling changes without a new revision, the router does not
    assert not planned(spec(1)).router
    assert not planned(spec(None)).router
    assert planned(spec(None, minReplicas=2)).router
    assert planned(spec(None, mode="External", replicas=1)).router


def test_what_max_replicas_leaves_of_the_rate_is_said() -> None:
    rate = {"profile": "Chat", "requestsPerSecond": 200}
    plan = planned(service(QWEN_7B, "nvidia-a100-40gb", 8, workload=rate, scaling={"maxReplicas": 2}))
    (role,) = plan.roles
    assert role.replicas == 2
    carried = 2 * (role.capacity or 0.0)
    assert carried < 200
    assert f"maxReplicas leaves about {number(carried)} of them" in reason(plan, "Replicas")
    assert "maxReplicas" not in reason(planned(service(QWEN_7B, "nvidia-a100-40gb", 8, workload=rate)), "Replicas")


def test_a_split_without_a_rate_names_one_figure_a_replica() -> None:
    """Sentences about the same prefill replica agree, and with the plan's capacity."""
    work = {"profile": "Summarization", "promptTokens": {"p50": 32_000, "p95": 36_000},
            "outputTokens": {"p50": 200, "p95": 200}}  # fmt: skip
    uri, layout = "hf://meta-llama/Llama-3.1-8B-Instruct", {"mode": "Disaggregated"}
    plan = planned(service(uri, "nvidia-a100-40gb", 8, workload=work, layout=layout))
    prefill = plan.roles[0]
    figure = f"{prefill.capacity:.3g} requests/s"
    assert f"one of {prefill.replicas} prefill replicas carries {figure}" in reason(plan, "SpreadByRouter")
    assert f"a prefill replica {figure}" in reason(plan, "Replicas")
    assert f"ends the rate of a prefill replica at {figure}" in reason(plan, "PromisesBind")
    weaker = min(r.replicas * (r.capacity or 0) for r in plan.roles)
    assert plan.prediction is not None
    assert plan.prediction.requests_per_second == pytest.approx(0.7 * weaker, rel=0.001)
