"""The largest rate at which one replica keeps its SLOs (goodput, as DistServe defines it)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken.api.quantities import duration_seconds
from firsttoken.api.service_inputs import SLO
from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.demand import PromptClass, RequestShape
from firsttoken.planning.load.replica import LoadModel, bucket_prompts
from firsttoken.planning.load.responses import Handover, Replica
from firsttoken.planning.load.steady import DECODE, PREFILL, SERVE
from firsttoken.planning.timing.step import StepModel

TTFT, TPOT, ALL = "TTFT", "TPOT", "all"

# Rates that are tried lie on one grid below the engine's capacity, the same for every SLO: a tighter one can't come out
# better. Less than a thousandth of the capacity counts as nothing.
GRID_STEP = 1.02
GRID_POINTS = math.ceil(math.log(1000) / math.log(GRID_STEP))
UNLOADED = 1e-6  # part of the capacity: no request meets another


@dataclass(frozen=True)
class Target:
    """One promise: that percentile of the metric stays within `seconds`, for one prompt-length bucket or `all`."""

    metric: str  # TTFT | TPOT
    percentile: int
    seconds: float
    bucket: str = ALL


@dataclass(frozen=True)
class Goodput:
    """Requests a second of one replica, and what keeps it from more."""

    rate: float
    binding: Target | None  # the first promise that a higher rate breaks; None: the engine's capacity
    binds: str  # Compute | RunningRequests | KVMemory: the scarcest resource there
    floor: float | None  # what an empty engine takes for the binding promise, seconds


def targets(slos: Sequence[SLO]) -> tuple[Target, ...]:
    """The promises of a spec or a profile."""
    return tuple(Target(s.metric, s.percentile, duration_seconds(s.target), s.prompt_tokens) for s in slos)


def goodput(
    model: StepModel,
    shape: RequestShape,
    engine: EngineLimits,
    promises: Sequence[Target],
    role: str = SERVE,
    *,
    handover: Handover | None = None,
) -> Goodput:
    """Of one replica. A prefill engine answers for TTFT only, a decode engine for TPOT only."""
    return largest_rate(LoadModel(model, shape, engine, role, handover), promises)


def largest_rate(load: LoadModel, promises: Sequence[Target]) -> Goodput:
    """The largest rate of the grid that keeps all of `promises`; 0 where even an empty engine breaks one."""
    own = [p for p in promises if p.metric != {PREFILL: TPOT, DECODE: TTFT}.get(load.role)]
    top = _capacity(load)
    empty = load.at(top * UNLOADED)
    broken = _broken(empty, own)
    if broken is not None:
        return Goodput(0.0, broken, empty.steady.binds, value(empty, broken))
    low, high, at_high = -1, GRID_POINTS, None
    while high - low > 1:
        middle = (low + high) // 2
        replica = load.at(_rate(top, middle))
        if not replica.steady.saturated and _broken(replica, own) is None:
            low = middle
        else:
            high, at_high = middle, replica
    replica = at_high or load.at(top)
    broken = None if replica.steady.saturated else _broken(replica, own)
    floor = value(empty, broken) if broken else None
    return Goodput(_rate(top, low) if low >= 0 else 0.0, broken, replica.steady.binds, floor)


def value(replica: Replica, target: Target) -> float:
    """What `target` speaks of, in seconds, for this replica."""
    if target.metric == TPOT:
        return replica.token_times.percentile(target.percentile / 100)
    return replica.first_tokens(prompts_of(replica.curves.shape, target.bucket)).percentile(target.percentile / 100)


def prompts_of(shape: RequestShape, bucket: str) -> tuple[PromptClass, ...]:
    """The prompts of a bucket such as `512-1024` or `16384+`, or of all. Empty where none can lie in it."""
    if bucket == ALL:
        return shape.prompt_classes
    low, _, high = bucket.rstrip("+").partition("-")
    return bucket_prompts(shape, int(low), int(high) if high else math.inf)


def _broken(replica: Replica, promises: Sequence[Target]) -> Target | None:
    """The first promise that is not kept: the probability of exceeding it decides, no percentile is searched for."""
    for target in promises:
        if target.metric == TPOT:
            above = replica.token_times.survival(target.seconds)
        else:
            prompts = prompts_of(replica.curves.shape, target.bucket)
            above = replica.first_tokens(prompts).survival(target.seconds) if prompts else 0.0
        if above > 1 - target.percentile / 100:
            return target
    return None


def _rate(top: float, point: int) -> float:
    return top * GRID_STEP ** (point - GRID_POINTS)


def _capacity(load: LoadModel) -> float:
    """A rate that the engine can't reach: full steps without decodes, or places taken by the fastest decodes."""
    curves, shape, engine = load.curves, load.curves.shape, load.engine
    bounds = []
    if load.role != DECODE:
        bounds.append(engine.token_budget / (shape.mean_uncached * curves.full(0)))
    if load.role != PREFILL and shape.mean_decodes:
        bounds.append(engine.max_running / (shape.mean_decodes * curves.decode(1)))
    return 1.05 * min(bounds, default=1 / curves.decode(1))
