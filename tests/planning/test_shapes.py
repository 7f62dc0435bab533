"""How a shape is picked out of forecasts: within a budget, for a rate, and steadily as the rate grows (M4.6)."""

import re
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.choice import Limits, best_shape
from firsttoken.planning.forecast import LEAST_OF_CAPACITY, Forecast
from firsttoken.planning.plan import make_plan
from firsttoken.planning.replicas import margin
from firsttoken.planning.types import Plan
from planning.specs import DEEPSEEK, FALCON_7B, LLAMA_70B, planned, reason, service

LLAMA_8B = "hf://meta-llama/Llama-3.1-8B-Instruct"
INTERVAL = 0.16
RATES = [0.05 * 1.1**n for n in range(90)]


@dataclass(frozen=True)
class Stages:
    """What is read of a Candidate."""

    pipeline_parallel: int = 1


@dataclass(frozen=True)
class Shape:
    """What is read of a Forecast."""

    gpus: int
    capacity: float
    interval: float = INTERVAL
    candidate: Stages = Stages()

    @property
    def per_gpu(self) -> float:
        return self.capacity / self.gpus


def chosen(shapes: list[Shape], limits: Limits) -> Shape:
    return cast(Shape, best_shape(cast(list[Forecast], shapes), limits))


def carried(shape: Shape, limits: Limits) -> float:
    return limits.count(cast(Forecast, shape)) * shape.capacity


capacities = st.lists(st.floats(0.1, 50), min_size=1, max_size=4)


def shapes_of(capacities: list[float]) -> list[Shape]:
    return [Shape(2**n, c) for n, c in enumerate(capacities)]


@given(
    capacities=capacities,
    gpus=st.none() | st.integers(8, 40),
    least=st.integers(1, 3),
    more=st.none() | st.integers(0, 8),
)
def test_a_growing_rate_never_brings_less_nor_goes_back_to_a_shape(
    capacities: list[float], gpus: int | None, least: int, more: int | None
) -> None:
    shapes = shapes_of(capacities)
    before, seen = 0.0, [-1]
    for rate in RATES:
        limits = Limits(rate, gpus, least=least, most=None if more is None else least + more)
        shape = chosen(shapes, limits)
        now = carried(shape, limits)
        most = max(carried(s, Limits(1e9, gpus, least=least, most=limits.most)) for s in shapes)
        wanted = rate * (1 + margin(INTERVAL))
        assert now >= min(wanted, most) * 0.999
        assert now >= before * 0.999 or now >= wanted * 0.999
        before = now
        if shape.gpus != seen[-1]:
            assert shape.gpus not in seen, "back to a shape that was left"
            seen.append(shape.gpus)


@given(capacities=capacities, rate=st.floats(0.1, 100))
def test_no_shape_of_fewer_gpus_would_do_with_one_replica(capacities: list[float], rate: float) -> None:
    shapes = shapes_of(capacities)
    limits = Limits(rate, None)
    shape = chosen(shapes, limits)
    alone = [s.gpus for s in shapes if s.capacity >= rate * (1 + INTERVAL)]
    assert limits.count(cast(Forecast, shape)) * shape.gpus <= min(alone, default=10**9) * 1.25


@pytest.mark.parametrize(
    ("limits", "gpus"),
    [
        (Limits(None, None), 2),  # the most of each GPU; 8 is not enough better to be worth a larger replica
        (Limits(None, 8), 2),
        (Limits(None, 8, fixed=1), 8),  # one replica may have the whole budget
        (Limits(None, None, fixed=1), 2),  # nobody gave a budget to use up
        (Limits(None, None, most=1), 2),  # and a bound is no wish
        (Limits(None, None, fixed=0), 2),  # a service that sleeps
        (Limits(1.0, 8), 1),  # a small rate needs no large replica
        (Limits(1.0, 8, least=4), 1),
        (Limits(9.0, None, fixed=1), 8),
        (Limits(9.0, 8), 2),
        (Limits(9.0, 8, most=1), 8),  # as the bound leaves one replica
    ],
)
def test_what_decides(limits: Limits, gpus: int) -> None:
    shapes = [Shape(1, 1.5), Shape(2, 5.0), Shape(8, 24.0)]
    assert chosen(shapes, limits).gpus == gpus


def test_70b_on_sixteen_h200_keeps_its_shape_and_gains_with_the_rate() -> None:
    plans = [
        planned(service(LLAMA_70B, "nvidia-h200", 16, workload={"profile": "Chat", "requestsPerSecond": rate}))
        for rate in (2, 8, 20, 41, 45, 60)
    ]
    have = [p.roles[0].replicas * (p.roles[0].capacity or 0.0) for p in plans]
    assert have == sorted(have)
    sizes = [p.roles[0].gpus_per_replica for p in plans]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("rates", [(5.6, 5.7, 5.8, 5.9, 6.0), (11.4, 11.6, 11.8, 12.0)])
def test_a_little_more_traffic_never_needs_fewer_gpus(rates: tuple[float, ...]) -> None:
    """The token budget that a replica starts with must not cost one more: 2048 tokens carry a little less than 1024."""
    gpus = [
        planned(service(LLAMA_70B, "nvidia-h100-80gb", workload={"profile": "Chat", "requestsPerSecond": rate})).gpus
        for rate in rates
    ]
    assert gpus == sorted(gpus)


@pytest.mark.parametrize(("target", "replicas"), [("9ms", 3), ("10ms", 2), ("12ms", 2)])
def test_M4_2_all_token_budgets_are_looked_at(target: str, replicas: int) -> None:
    """At 10 ms a dip at 4096 hides that 256 carries twice what 8192 does."""
    plan = planned(
        service(
            LLAMA_8B, "nvidia-h100-80gb", workload={"profile": "Chat", "requestsPerSecond": 20},
            engine={"pins": {"tensorParallel": 1}}, slos=[{"metric": "TPOT", "target": target}],
        )
    )  # fmt: skip
    assert plan.roles[0].replicas == replicas
    assert plan.settings.token_budget < 1024


def test_where_nothing_keeps_the_promises_the_budget_misses_them_by_least() -> None:
    """The fastest tokens alone would be a first token after a minute."""
    slos = [{"metric": "TTFT", "target": "1s"}, {"metric": "TPOT", "target": "6ms"}]
    plan = planned(service(LLAMA_70B, "nvidia-h100-80gb", 8, slos=slos))
    assert plan.prediction is not None
    assert plan.prediction.ttft.p95 < 6


def test_for_a_profile_s_own_slo_nobody_buys_ten_times_the_gpus() -> None:
    """With falcon-7b on an L4 of more bandwidth a step keeps the default TPOT, alone and at next to no load."""
    work = {"profile": "KnowledgeQA", "requestsPerSecond": 10,
            "promptTokens": {"p50": 500, "p95": 900}, "outputTokens": {"p50": 100, "p95": 200}}  # fmt: skip
    gpus = []
    for bandwidth in range(360, 430, 10):
        profile = AcceleratorProfileSpec.model_validate(
            {**catalogue()["nvidia-l4"].wire(), "memoryBandwidthGbPerSecond": bandwidth}
        )
        plan = make_plan(service(FALCON_7B, "faster", workload=work), {"faster": profile})
        assert isinstance(plan, Plan)
        gpus.append(plan.gpus)
    assert max(gpus) <= gpus[0] / LEAST_OF_CAPACITY, gpus


def test_where_even_an_idle_replica_misses_a_promise_the_rate_still_counts() -> None:
    slos = [{"metric": "TPOT", "percentile": 95, "target": "7ms"}]

    def at(rate: float | None) -> Plan:
        work = {"profile": "Chat", **({"requestsPerSecond": rate} if rate else {})}
        return planned(service(LLAMA_70B, "nvidia-h100-80gb", 16, slos=slos, workload=work))

    small, large = at(1), at(30)
    assert "no rate worth having keeps all SLOs" in reason(small, "Replicas")
    assert "SLOMissed" in {r.code for r in small.reasons}
    assert small.gpus < large.gpus
    assert not small.roles[0].keeps_slos


def test_named_replicas_that_can_not_carry_the_rate_are_kept_and_that_is_said() -> None:
    work = {"profile": "Chat", "requestsPerSecond": 100}
    plan = planned(service(LLAMA_70B, "nvidia-h100-80gb", 8, workload=work, scaling={"replicas": 1}))
    assert (plan.roles[0].replicas, plan.roles[0].tensor_parallel) == (1, 8)
    assert "of the 100 requests/s" in reason(plan, "Replicas")


def test_deepseek_on_two_nodes_of_h200_is_a_replica_a_node_and_says_why() -> None:
    plan = planned(service(DEEPSEEK, "nvidia-h200", 16))
    assert [(r.role, r.replicas, r.tensor_parallel) for r in plan.roles] == [("serve", 2, 8)]
    said = reason(plan, "WithinNode")
    assert "on two nodes (tensor parallel 16) would take" in said
    found = re.search(r"all of a node: (\d+) GB of weights against 8 x (\d+) GB, (\d) of which they would fill", said)
    assert found, said
    weights, each, filled = map(int, found.groups())
    assert weights == pytest.approx(671, rel=0.01), "one byte a parameter"
    assert (filled - 1) * each < weights < filled * each
    assert "each further replica is another copy of them on another node" in said
    half = planned(service(LLAMA_70B, "nvidia-h200", 16, engine={"pins": {"tensorParallel": 4}}))
    assert "copy" not in reason(half, "WithinNode"), "two replicas fit a node"


def test_a_decode_cap_that_the_spec_begins_with_counts_for_every_shape() -> None:
    """Else shapes are judged with requests that never run, and alternatives promise what they can't carry."""
    spec = {"workload": {"profile": "Chat", "requestsPerSecond": 30}, "engine": {"initial": {"decodeCap": 8}}}
    plan = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, **spec))
    for other in plan.alternatives:
        pinned = {**spec, "engine": {**spec["engine"], "pins": {"tensorParallel": other.tensor_parallel}}}
        alone = planned(service(LLAMA_8B, "nvidia-h100-80gb", 8, **pinned)).roles[0]
        assert other.requests_per_second / other.replicas <= 1.1 * (alone.capacity or 0.0)
    assert plan.alternatives
