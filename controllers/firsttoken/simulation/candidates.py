"""What was considered for a plan, run through the simulator under the same requests: does it choose the same?

The load model that chooses (planning/load) is a closed form; here its candidates are held against an engine in virtual
time, at the rate of the plan's prediction.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.forecast import describe, promises_of
from firsttoken.planning.lengths import choose_lengths
from firsttoken.planning.load.goodput import ALL, TPOT, Target
from firsttoken.planning.roles import disaggregated, own_devices
from firsttoken.planning.types import ModelFacts, Plan, Prediction
from firsttoken.planning.words import count, milliseconds
from firsttoken.planning.workload import resolve
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fleet_outcome import FleetOutcome
from firsttoken.simulation.from_plan import Profiles
from firsttoken.simulation.quantiles import quantile
from firsttoken.simulation.results import BucketSummary, summarize
from firsttoken.simulation.service_run import Traffic, run_service
from firsttoken.simulation.workload import service_workload

MEASURED = 2000  # requests that are looked at
SCATTER = 1.05  # percentiles of so many differ by a few per cent from seed to seed: less is no promise broken
# As many as are on their way at once, and half as many again, come before them and after: a fleet fills, and drains.
EDGE, MOST_EDGE = 1.5, 3000
LEAST_BEYOND = 5  # requests that must lie beyond a percentile to speak of it
MOST_CANDIDATES = 5

Replan = Callable[[InferenceServiceSpec, Mapping[str, tuple[int, int]]], object]


@dataclass(frozen=True)
class Candidate:
    """A deployment that was considered."""

    name: str
    plan: Plan


@dataclass(frozen=True)
class Simulated:
    """One candidate under the requests. `why_not`: it can't be simulated; the rest is then empty."""

    name: str
    plan: Plan
    buckets: Mapping[str, BucketSummary]  # those with requests, and `all`
    missed: tuple[str, ...] = ()  # promises that are not kept, in words
    why_not: str = ""

    @property
    def keeps_slos(self) -> bool:
        """Whether all promises are kept that enough requests speak of."""
        return not self.missed and not self.why_not


@dataclass(frozen=True)
class Comparison:
    """All candidates under the same requests, the plan's own first."""

    rate: float  # requests a second
    assumed: bool  # nobody named it
    requests: int  # that were looked at
    seed: int
    simulated: tuple[Simulated, ...]

    @property
    def disagreement(self) -> str | None:
        """One sentence where the simulator would choose otherwise; None where it agrees or can't tell."""
        chosen, *others = self.simulated
        keeping = [s for s in others if s.keeps_slos and (not chosen.keeps_slos or s.plan.gpus < chosen.plan.gpus)]
        best = min(keeping, key=lambda s: s.plan.gpus, default=None)
        if chosen.why_not or (chosen.keeps_slos and best is None):
            return None
        instead = "" if best is None else f"{best.name} keeps the SLOs on {count(best.plan.gpus, 'GPU')}"
        if chosen.keeps_slos:
            return f"simulated, {instead} instead of {chosen.plan.gpus}"
        text = f"simulated, the plan misses {'; '.join(chosen.missed)}"
        return f"{text}; {instead}" if instead else text


def compare_candidates(
    spec: InferenceServiceSpec, plan: Plan, facts: ModelFacts, profiles: Profiles, replan: Replan, *, seed: int = 0
) -> Comparison | None:
    """`plan`, its alternatives and the split it proposes, in virtual time. `replan(spec, shapes)`: make_plan with the
    rest of what `plan` was made with. None where the plan predicts nothing, or no request: there is no rate to take.
    """
    predicted = plan.prediction
    if predicted is None or not predicted.requests_per_second:
        return None
    work = choose_lengths(spec, facts, resolve(spec.workload)).workload
    drawn = service_workload(work, plan.max_model_length, requests_per_second=predicted.requests_per_second)
    edge = _edge(predicted, work.output.p50)
    given = drawn.requests(seed, count=MEASURED + 2 * edge)
    traffic = Traffic(given, "spec.workload", predicted.requests_per_second, predicted.assumed_rate)
    window = (float(given.arrival[edge]), float(given.arrival[edge + MEASURED - 1]))
    tried = tuple(
        _simulated(one, spec, facts, profiles, traffic=traffic, window=window, seed=seed)
        for one in candidates(spec, plan, replan)
    )
    return Comparison(traffic.rate, traffic.assumed, MEASURED, seed, tried)


def _edge(predicted: Prediction, output: int) -> int:
    there = predicted.requests_per_second * (predicted.ttft.p50 + output * predicted.tpot.p50)
    return min(MOST_EDGE, math.ceil(EDGE * there))


def candidates(spec: InferenceServiceSpec, plan: Plan, replan: Replan) -> tuple[Candidate, ...]:
    """The plan itself, then its alternatives in their order and the split it proposes, each planned in full."""
    found = [Candidate("the plan", plan)]
    for name, asked, shapes in _asked(spec, plan):
        other = replan(asked, shapes)
        if isinstance(other, Plan):
            found.append(Candidate(name, other))
    return tuple(found[:MOST_CANDIDATES])


def _asked(
    spec: InferenceServiceSpec, plan: Plan
) -> Iterator[tuple[str, InferenceServiceSpec, Mapping[str, tuple[int, int]]]]:
    shapes = {role.role: (role.tensor_parallel, role.pipeline_parallel) for role in plan.roles}
    if any(reason.code == "DisaggregationProposal" for reason in plan.reasons):
        same = {} if own_devices(spec) else dict.fromkeys(("prefill", "decode"), shapes["serve"])
        yield "prefill and decode apart", disaggregated(spec), same
    last = plan.roles[-1].role
    for other in plan.alternatives:
        name = f"tensor parallel {other.tensor_parallel}" + ("" if len(plan.roles) == 1 else f" for {last}")
        yield name, spec, {**shapes, last: (other.tensor_parallel, other.pipeline_parallel)}


def _simulated(
    one: Candidate,
    spec: InferenceServiceSpec,
    facts: ModelFacts,
    profiles: Profiles,
    *,
    traffic: Traffic,
    window: tuple[float, float],
    seed: int,
) -> Simulated:
    bounds = tuple(spec.measurement.prompt_token_buckets)
    try:
        run = run_service(one.name, one.plan, facts, profiles, traffic, bounds=bounds, seed=seed)
    except SimulationInputError as error:
        return Simulated(one.name, one.plan, {}, why_not=str(error))
    seen = _inside(run.outcome, window)
    buckets = {name: found for name, found in summarize(seen, bounds).items() if found.requests}
    return Simulated(one.name, one.plan, buckets, tuple(_missed(seen, promises_of(spec))))


def _inside(outcome: FleetOutcome, window: tuple[float, float]) -> FleetOutcome:
    """The same with only the requests that arrive within the window ended: those count."""
    counts = (outcome.arrival >= window[0]) & (outcome.arrival <= window[1])
    return replace(outcome, finish=np.where(counts, outcome.finish, np.nan))


def _missed(outcome: FleetOutcome, promises: Sequence[Target]) -> Iterator[str]:
    """Promises that are broken. Of a bucket with too few requests nothing is said."""
    prompts, ended = outcome.requests.prompt_tokens, ~np.isnan(outcome.finish)
    for promise in promises:
        low, high = _bounds(promise.bucket)
        times = (outcome.tpot if promise.metric == TPOT else outcome.ttft)[ended & (prompts > low) & (prompts <= high)]
        times = times[~np.isnan(times)]
        if len(times) * (1 - promise.percentile / 100) < LEAST_BEYOND:
            continue
        seconds = quantile(times, promise.percentile / 100)
        if seconds > promise.seconds * SCATTER:
            yield f"{describe(promise)} ({milliseconds(seconds)})"


def _bounds(bucket: str) -> tuple[float, float]:
    """Prompt tokens: above the first, up to the second."""
    if bucket == ALL:
        return 0, math.inf
    low, _, high = bucket.rstrip("+").partition("-")
    return int(low), int(high) if high else math.inf
