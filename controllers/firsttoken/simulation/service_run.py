"""One service under one stream of requests: the requests, the run on the fleet of its plan, and what came of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firsttoken.planning.memory import block_tokens
from firsttoken.planning.types import ModelFacts, Plan
from firsttoken.planning.workload import ResolvedWorkload
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fleet import Fleet
from firsttoken.simulation.fleet_outcome import FleetOutcome
from firsttoken.simulation.from_plan import Profiles, revision_of_plan, whole_blocks_of
from firsttoken.simulation.outcome import Outcome
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.results import BucketSummary, summarize
from firsttoken.simulation.traces import MOST_SPAN
from firsttoken.simulation.workload import cut_outputs, service_workload

# What a run keeps in memory is about 1 KB a request: more are for `stream.play` and its histograms.
MOST_REQUESTS = 2_000_000
# Bins of the time series: fine enough that single long prompts show, whatever the duration.
BINS, SHORTEST_BIN = 8192, 0.02


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

    @property
    def served_rate(self) -> float:
        """Requests a second, mean, without the refused; NaN: all come at once."""
        served = len(self.outcome.requests)
        return self.traffic.rate * served / (served + self.refused)

    @property
    def seconds(self) -> float:
        """To the end of the last step."""
        return max((one.totals.end for one in self.outcome.replicas), default=0.0)

    def busy(self, one: Outcome) -> float:
        """Part of the whole run in which a replica's GPUs worked."""
        return one.totals.gpu_seconds / self.seconds if self.seconds else 0.0

    def compute(self, one: Outcome) -> float:
        """Part of the dense peak that a replica's matrix products reached over the whole run."""
        return float((one.compute * one.bin_seconds).sum()) / self.seconds if self.seconds else 0.0

    def output_rate(self) -> float:
        """Tokens that all replicas made, a second."""
        done = ~np.isnan(self.outcome.finish)
        made = int(self.outcome.requests.output_tokens[done].sum(dtype=np.int64))
        return made / self.seconds if self.seconds else 0.0


def drawn_traffic(plan: Plan, work: ResolvedWorkload, *, seconds: float, rate: float | None, seed: int) -> Traffic:
    """What spec.workload says, for `seconds`; `rate`: requests a second in place of the spec's or the plan's assumed.

    Raises SimulationInputError: nobody says a rate, or there would be too many requests.
    """
    named = rate if rate is not None else work.requests_per_second
    assumed = named is None
    if named is None and plan.prediction is not None:
        named = plan.prediction.requests_per_second
    if named is not None and named * seconds > MOST_REQUESTS:
        raise SimulationInputError(
            f"{named:g} requests a second for {seconds:g} s are more than {MOST_REQUESTS:,}: give a shorter --duration"
        )
    found = service_workload(work, plan.max_model_length, requests_per_second=named).requests(seed, seconds=seconds)
    if not len(found):
        raise SimulationInputError(
            f"no request arrives in {seconds:g} s at {named:g} a second: give a longer --duration or a higher --rate"
        )
    return Traffic(found, f"spec.workload of profile {work.profile.value}", float(named or 0.0), assumed)


def traced_traffic(given: Requests, name: str, *, seconds: float | None, rate: float | None) -> Traffic:
    """A trace, its times stretched so that `rate` requests a second arrive on average, then cut after `seconds`.

    Raises SimulationInputError: nothing is left, or times can't be stretched to that rate.
    """
    if len(given) > MOST_REQUESTS:
        raise SimulationInputError(f"{name} has more than {MOST_REQUESTS:,} requests: split it")
    own = _mean_rate(given)
    if rate is not None:
        if not math.isfinite(own):
            raise SimulationInputError(f"{name}: all requests come at once, so --rate can't stretch it: leave it out")
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
) -> ServiceRun:
    """All requests to their ends. `bounds`: of the prompt-length buckets. Raises SimulationInputError."""
    revision = revision_of_plan(plan, facts, profiles)
    fits = traffic.requests.prompt_tokens < plan.max_model_length
    if not fits.any():
        raise SimulationInputError(
            f"{name}: every prompt has {plan.max_model_length} tokens or more, the maximum model length: raise "
            "spec.model.maxModelLength"
        )
    served = cut_outputs(traffic.requests.take(np.flatnonzero(fits)), plan.max_model_length)
    served = whole_blocks_of(served, max(block_tokens(profiles[role.accelerator]) for role in plan.roles))
    span = float(served.arrival[-1]) + 1.0
    fleet = Fleet(served, [revision], seed=seed, bins=BINS, bin_seconds=max(SHORTEST_BIN, span / BINS))
    outcome = fleet.run()
    blocks = tuple(one.settings.kv_blocks for one in fleet.replicas)
    return ServiceRun(name, plan, traffic, int((~fits).sum()), outcome, summarize(outcome, bounds), blocks)
