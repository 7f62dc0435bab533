"""One service under one stream of requests: the requests, the run on the fleet of its plan, and what came of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firsttoken.planning.memory import block_tokens
from firsttoken.planning.types import ModelFacts, Plan
from firsttoken.planning.workload import ResolvedWorkload
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fleet import Fleet, pools_of
from firsttoken.simulation.fleet_outcome import FleetOutcome
from firsttoken.simulation.fleet_shape import Revision
from firsttoken.simulation.from_plan import Profiles, revision_of_plan, whole_blocks_of
from firsttoken.simulation.outcome import Outcome
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.results import BucketSummary, summarize
from firsttoken.simulation.scenario import ARMS, closed_loop, revisions_of, with_priorities
from firsttoken.simulation.traces import MOST_SPAN
from firsttoken.simulation.workload import Workload, cut_outputs
from firsttoken.simulation.workload_file import AS_PLANNED, WorkloadFile

# What a run keeps in memory is about 1 KB a request: more are for `stream.play` and its histograms.
MOST_REQUESTS = 2_000_000
# Bins of the time series: fine enough that single long prompts show, whatever the duration.
BINS, SHORTEST_BIN = 8192, 0.02
FILLING = 1.5  # mean times of a request until a fleet is as full as it gets
GROWTH, LEAST_GROWTH = 0.05, 10  # of the queue in the second half: part of the requests there, and requests


@dataclass(frozen=True)
class Traffic:
    """Requests, and where they are from."""

    requests: Requests
    source: str  # in words
    rate: float  # requests a second, mean, of all of them; NaN: all come at once
    assumed: bool = False  # nobody named the rate: 70 % of what the plan's replicas carry


@dataclass(frozen=True, eq=False)
class ServiceRun:
    """What users of one service saw. `refused`: prompts of the maximum model length or more, which vLLM answers 400."""

    name: str
    plan: Plan
    traffic: Traffic
    refused: int
    outcome: FleetOutcome
    buckets: Mapping[str, BucketSummary]
    kv_blocks: tuple[int, ...]  # of each replica
    arms: Mapping[str, Mapping[str, BucketSummary]]  # of stable and canary, where there are both

    @property
    def served_rate(self) -> float:
        """Requests a second, mean, without the refused; NaN: all come at once."""
        served = len(self.outcome.requests)
        return self.traffic.rate * served / (served + self.refused)

    @property
    def seconds(self) -> float:
        """To the end of the last step."""
        return max((one.totals.end for one in self.outcome.replicas), default=0.0)

    @cached_property
    def window(self) -> tuple[float, float]:
        """Seconds in which the fleet has filled and does not yet drain: what utilisation is of.

        From 1.5 times as long as a request is there on average to the last arrival; where that is most of the run, the
        whole of it.
        """
        last = float(self.outcome.arrival.max())
        begin = FILLING * float(np.nanmean(self.outcome.finish - self.outcome.arrival))
        return (begin, last) if begin < last / 2 else (0.0, self.seconds)

    def busy(self, one: Outcome) -> float:
        """Part of the window in which a replica's GPUs worked."""
        return self._mean(one.busy, one)

    def compute(self, one: Outcome) -> float:
        """Part of the dense peak that a replica's matrix products reached in the window."""
        return self._mean(one.compute, one)

    def _mean(self, series: NDArray[np.float64], one: Outcome) -> float:
        begin, end = self.window
        first, last = int(begin / one.bin_seconds), max(1, round(end / one.bin_seconds))
        return float(series[first:last].sum()) / max(1, last - first)

    @cached_property
    def backlog(self) -> tuple[int, int]:
        """Requests that have arrived and are in no step yet: half-way to the last arrival, and then."""
        last = float(self.outcome.arrival.max())
        halfway, end = (
            int(((self.outcome.arrival <= t) & ~(self.outcome.queued <= t)).sum()) for t in (last / 2, last)
        )
        return halfway, end

    @property
    def overloaded(self) -> bool:
        """Whether the queue grows through the run: the second half leaves a twentieth of its requests in it."""
        halfway, end = self.backlog
        later = int((self.outcome.arrival > self.outcome.arrival.max() / 2).sum())
        return end - halfway >= max(LEAST_GROWTH, GROWTH * later)

    def output_rate(self) -> float:
        """Tokens that all replicas made, a second."""
        done = ~np.isnan(self.outcome.finish)
        made = int(self.outcome.requests.output_tokens[done].sum(dtype=np.int64))
        return made / self.seconds if self.seconds else 0.0


def drawn_traffic(
    plan: Plan,
    work: ResolvedWorkload,
    *,
    seconds: float,
    rate: float | None,
    seed: int,
    given: WorkloadFile = AS_PLANNED,
) -> Traffic:
    """What spec.workload says, changed by `given`, for `seconds`; `rate`: requests a second in place of all others.

    Raises SimulationInputError: nobody says a rate, or there would be too many requests.
    """
    if given.clients is not None:
        return _of_clients(plan, work, given, seed)
    named = next((r for r in (rate, given.arrivals.requests_per_second, work.requests_per_second) if r), None)
    assumed = named is None
    if named is None and plan.prediction is not None:
        named = plan.prediction.requests_per_second
    if named is not None and named * seconds > MOST_REQUESTS:
        raise SimulationInputError(
            f"{named:g} requests a second for {seconds:g} s are more than {MOST_REQUESTS:,}: give a shorter --duration"
        )
    if named is None:
        raise SimulationInputError("spec.workload.requestsPerSecond is missing: say how many requests a second arrive")
    drawn = Workload(**given.parts(work, max(1, plan.max_model_length - 1), named))
    found = with_priorities(drawn.requests(seed, seconds=seconds), given.priorities, seed)
    if not len(found):
        raise SimulationInputError(
            f"no request arrives in {seconds:g} s at {named:g} a second: give a longer --duration or a higher --rate"
        )
    return Traffic(found, f"spec.workload of profile {work.profile.value}", float(named), assumed)


def _of_clients(plan: Plan, work: ResolvedWorkload, given: WorkloadFile, seed: int) -> Traffic:
    """All requests of a closed loop; when they leave is decided by who answers."""
    clients = given.clients
    assert clients is not None  # noqa: S101 - the caller looked
    if clients.count * clients.requests_each > MOST_REQUESTS:
        raise SimulationInputError(f"clients send more than {MOST_REQUESTS:,} requests: lower count or requestsEach")
    parts = given.parts(work, max(1, plan.max_model_length - 1), 1.0)
    drawn = Workload(**{**parts, "arrivals": None}).requests(seed, count=clients.count * clients.requests_each)
    return Traffic(with_priorities(drawn, given.priorities, seed), f"{clients.count} clients", 0.0)


def traced_traffic(given: Requests, name: str, *, seconds: float | None, rate: float | None) -> Traffic:
    """A trace, its times stretched so that `rate` requests a second arrive on average, then cut after `seconds`.

    Raises SimulationInputError: nothing is left, or times can't be stretched to that rate.
    """
    if len(given) > MOST_REQUESTS:
        raise SimulationInputError(f"{name} has more than {MOST_REQUESTS:,} requests: split it")
    own = _mean_rate(given)
    if rate is not None:
        if not math.isfinite(own):
            raise SimulationInputError(
                f"{name}: all requests arrive at once, so --rate can't stretch them: leave it out or give other times"
            )
        if (len(given) - 1) / MOST_SPAN > rate:
            raise SimulationInputError(
                f"{name} at {rate:g} requests a second lasts over ten years: give a higher --rate"
            )
        given = replace(given, arrival=given.arrival * (own / rate))
    if seconds is not None:
        given = given.take(np.flatnonzero(given.arrival < seconds))
    if not len(given):
        raise SimulationInputError(f"{name}: no request arrives in {seconds:g} s: give a longer --duration")
    found = _mean_rate(given)
    return Traffic(given, name, found if math.isfinite(found) else math.nan)


def _mean_rate(given: Requests) -> float:
    """Requests a second from the first to the last; infinite where they come at once."""
    span = float(given.arrival[-1] - given.arrival[0]) if len(given) else 0.0
    return (len(given) - 1) / span if span > 0 else math.inf


def run_service(
    name: str,
    plan: Plan,
    facts: ModelFacts,
    profiles: Profiles,
    traffic: Traffic,
    *,
    bounds: Sequence[int],
    seed: int,
    given: WorkloadFile = AS_PLANNED,
) -> ServiceRun:
    """All requests to their ends. `bounds`: of the prompt-length buckets. Raises SimulationInputError."""
    revisions = revisions_of(revision_of_plan(plan, facts, profiles), given, plan.max_model_length)
    _check_priorities(traffic, revisions)
    fits = traffic.requests.prompt_tokens < plan.max_model_length
    if not fits.any():
        raise SimulationInputError(
            f"{name}: every prompt has {plan.max_model_length} tokens or more, the maximum model length: raise "
            "spec.model.maxModelLength"
        )
    served = cut_outputs(traffic.requests.take(np.flatnonzero(fits)), plan.max_model_length)
    served = whole_blocks_of(served, max(block_tokens(profiles[role.accelerator]) for role in plan.roles))
    span = float(served.arrival[-1]) + 1.0
    bins: dict[str, Any] = {"bins": BINS, "bin_seconds": max(SHORTEST_BIN, span / BINS)}
    if given.clients is not None:
        outcome = closed_loop(served, revisions[0], given.clients, **bins)
        traffic = replace(traffic, rate=len(served) / float(np.nanmax(outcome.finish)))
    else:
        outcome = Fleet(served, revisions, seed=seed, **bins).run()
    blocks = tuple(one.settings.kv_blocks for pool, *_ in pools_of(revisions) for one in pool.replicas)
    arms = {}
    for number, arm in enumerate(ARMS if len(revisions) > 1 else ()):
        mine = np.where(outcome.revision == number, outcome.finish, np.nan)
        arms[arm] = summarize(replace(outcome, finish=mine), bounds)
    return ServiceRun(name, plan, traffic, int((~fits).sum()), outcome, summarize(outcome, bounds), blocks, arms)


def _check_priorities(traffic: Traffic, revisions: Sequence[Revision]) -> None:
    """Raises SimulationInputError: requests differ in priority, and engines that would not look at it."""
    if len(np.unique(traffic.requests.priority)) > 1 and not all(
        one.settings.priorities for r in revisions for one in r.pool.replicas
    ):
        raise SimulationInputError(
            f"{traffic.source} has priorities, and the engines serve first come, first served: set engine.priorities "
            "in a --workload file, or leave the column out"
        )
