"""Who asks what and when: spec.workload, as the world changes it. Drawn before anything runs, so nothing changes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from firsttoken.api.quantities import duration_seconds
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.api.service_inputs import TokenDistribution
from firsttoken.planning.lengths import choose_lengths
from firsttoken.planning.models import model_facts
from firsttoken.planning.plan import make_plan
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import Infeasible
from firsttoken.planning.workload import ResolvedWorkload, resolve
from firsttoken.rehearsal.errors import NotRehearsedError, WorldError
from firsttoken.rehearsal.world import Burst, Event, Traffic
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.service_run import MOST_REQUESTS
from firsttoken.simulation.workload import Workload, cut_outputs, service_workload


@dataclass(frozen=True)
class Demand:
    """What spec.workload says, and the rate (requests a second) that it or the plan gives."""

    work: ResolvedWorkload
    rate: float
    max_model_length: int
    assumed: bool = False  # nobody named the rate: 70 % of what the plan's replicas carry


def demand_of(
    spec: InferenceServiceSpec,
    profiles: Mapping[str, AcceleratorProfileSpec],
    config: Mapping[str, Any] | None,
    rate: float | None,
) -> Demand:
    """What the first plan is made for; `rate` goes before its own.

    Raises InfeasibleError; WorldError: no rate; NotRehearsedError: nobody plays what the plan needs.
    """
    plan, facts = make_plan(spec, profiles, config=config), model_facts(spec.model, config)
    for outcome in (plan, facts):
        if isinstance(outcome, Infeasible):
            raise InfeasibleError(outcome.constraint, outcome.message, outcome.nearest)
    assert not isinstance(plan, Infeasible)  # noqa: S101 - as just found
    assert not isinstance(facts, Infeasible)  # noqa: S101
    if any(role.nodes > 1 for role in plan.roles):
        raise NotRehearsedError(
            "a replica of the plan lies on several nodes, as a LeaderWorkerSet, whose controller is not played: choose "
            "GPUs of which one node holds a replica"
        )
    work = choose_lengths(spec, facts, resolve(spec.workload)).workload
    named = rate or work.requests_per_second
    if named is None and plan.prediction is not None:
        return Demand(work, plan.prediction.requests_per_second, plan.max_model_length, True)
    if named is None:
        raise WorldError("nobody says a rate: set requestsPerSecond in the world, or spec.workload.requestsPerSecond")
    return Demand(work, named, plan.max_model_length)


def draw(demand: Demand, events: Sequence[Event], seconds: float, seed: int) -> Requests:
    """All requests of `seconds`, by arrival. Raises SimulationInputError: too many, or none."""
    parts = []
    bounds = sorted({0.0, seconds, *(t for e in events for t in _bounds(e) if 0 < t < seconds)})
    for number, (start, end) in enumerate(pairwise(bounds)):
        workload, rate = _workload(demand, _in_force(events, start))
        if rate * (end - start) > MOST_REQUESTS:
            raise SimulationInputError(f"more than {MOST_REQUESTS:,} requests: give a shorter duration or a lower rate")
        found = workload.requests(_seed(seed, number), seconds=end - start)
        parts.append(replace(found, arrival=found.arrival + start))
    for number, event in enumerate(e for e in events if isinstance(e.what, Burst) and e.seconds < seconds):
        workload = replace(_workload(demand, _in_force(events, event.seconds))[0], arrivals=None)
        found = workload.requests(_seed(seed, 10**6 + number), count=event.what.requests)
        parts.append(replace(found, arrival=found.arrival + event.seconds))
    return cut_outputs(_joined(parts), demand.max_model_length)


def _bounds(event: Event) -> list[float]:
    change = event.what
    if not isinstance(change, Traffic):
        return []
    return [event.seconds, *([event.seconds + duration_seconds(change.lasts)] if change.lasts else [])]


def _in_force(events: Sequence[Event], now: float) -> list[Traffic]:
    """Changes of traffic at this time; those that overlap multiply."""
    found = []
    for event in events:
        if isinstance(event.what, Traffic):
            start, *end = _bounds(event)
            if start <= now < (end[0] if end else np.inf):
                found.append(event.what)
    return found


def _workload(demand: Demand, changes: Sequence[Traffic]) -> tuple[Workload, float]:
    work, rate = demand.work, demand.rate
    for change in changes:
        rate *= change.rate
        work = replace(
            work,
            prompt=_times(work.prompt, change.prompt_tokens),
            output=_times(work.output, change.output_tokens),
            shared_prefix=work.shared_prefix if change.shared_prefix else 0,
        )
    return service_workload(work, demand.max_model_length, requests_per_second=rate), rate


def _times(lengths: TokenDistribution, factor: float) -> TokenDistribution:
    p50, p95 = (max(1, round(n * factor)) for n in (lengths.p50, lengths.p95))
    return TokenDistribution.model_construct(p50=p50, p95=p95)


def _seed(seed: int, number: int) -> int:
    """Another for each part, so that a change later on leaves what was before as it is."""
    return int(np.random.SeedSequence((seed, number)).generate_state(1, np.uint64)[0])


def _joined(parts: Sequence[Requests]) -> Requests:
    """By arrival. Raises SimulationInputError: there is none."""
    parts = [p for p in parts if len(p)]
    if not parts:
        raise SimulationInputError("no request arrives: give a longer duration or a higher rate")
    ends = np.cumsum([0, *(len(p.hashes) for p in parts)])
    offsets = [p.hash_offsets[1:] + end for p, end in zip(parts, ends, strict=False)]
    columns = ("arrival", "prompt_tokens", "output_tokens", "priority", "hashes")
    values: dict[str, Any] = {n: np.concatenate([getattr(p, n) for p in parts]) for n in columns}
    whole = Requests(**values, hash_offsets=np.concatenate([[0], *offsets]), hash_tokens=parts[0].hash_tokens)
    return whole.take(np.argsort(whole.arrival, kind="stable"))
