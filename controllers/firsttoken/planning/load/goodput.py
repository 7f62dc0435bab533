"""The largest rate at which one replica keeps its SLOs (goodput, as DistServe defines it)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken.api.quantities import duration_seconds
from firsttoken.api.service_inputs import SLO
from firsttoken.planning.load.demand import PromptClass, RequestShape
from firsttoken.planning.load.replica import LoadModel, bucket_prompts
from firsttoken.planning.load.responses import Replica
from firsttoken.planning.load.steady import DECODE, PREFILL

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

    def __str__(self) -> str:
        return f"{self.metric} P{self.percentile} {self.bucket} {self.seconds:.6g} s"


@dataclass(frozen=True)
class Goodput:
    """Requests a second of one replica, and what keeps it from more."""

    rate: float
    binding: Target | None  # the promise that a higher rate breaks by most; None: the engine's capacity
    binds: str  # Compute | RunningRequests | KVMemory: the scarcest resource there
    floor: float | None  # what an empty engine takes for the binding promise, seconds

    @property
    def missed_by(self) -> float:
        """The binding promise on an empty engine: what it takes over what was promised. 0 without a promise."""
        return (self.floor or 0.0) / self.binding.seconds if self.binding is not None else 0.0


def targets(slos: Sequence[SLO]) -> tuple[Target, ...]:
    """The promises of a spec or a profile."""
    return tuple(Target(s.metric, s.percentile, duration_seconds(s.target), s.prompt_tokens) for s in slos)


def largest_rate(load: LoadModel, promises: Sequence[Target]) -> Goodput:
    """The largest rate of the grid at which one replica keeps all of `promises`; 0 where even an empty engine breaks
    one. A prefill engine answers for TTFT only, a decode engine for TPOT only.
    """
    own = _own(load, promises)
    top = _capacity(load)
    empty = load.at(top * UNLOADED)
    if _broken(empty, own):
        worst = _worst(empty, own)
        return Goodput(0.0, worst, empty.steady.binds, value(empty, worst))
    low, high, at_high = -1, GRID_POINTS, None
    while high - low > 1:
        middle = (low + high) // 2
        replica = load.at(_rate(top, middle))
        if not replica.steady.saturated and not _broken(replica, own):
            low = middle
        else:
            high, at_high = middle, replica
    replica = at_high or load.at(top)
    broken = None if replica.steady.saturated or not _broken(replica, own) else _worst(replica, own)
    floor = value(empty, broken) if broken else None
    return Goodput(_rate(top, low) if low >= 0 else 0.0, broken, replica.steady.binds, floor)


def keeps(load: LoadModel, promises: Sequence[Target], rate: float) -> bool:
    """Whether one replica keeps all of its role's promises at `rate` requests a second."""
    replica = load.at(rate)
    return not replica.steady.saturated and not _broken(replica, _own(load, promises))


def missed_when_idle(load: LoadModel, promises: Sequence[Target]) -> tuple[tuple[Target, float], ...]:
    """Each promise that even an empty engine breaks, with what it takes there, seconds; the worst first."""
    return missed_at(load, promises, _capacity(load) * UNLOADED)


def missed_at(load: LoadModel, promises: Sequence[Target], rate: float) -> tuple[tuple[Target, float], ...]:
    """Each promise that is broken at `rate` requests a second, with what is predicted, seconds; the worst first."""
    replica = load.at(rate)
    found = [(p, value(replica, p)) for p in _own(load, promises) if _broken(replica, (p,))]
    return tuple(sorted(found, key=lambda f: f[0].seconds / f[1]))


def value(replica: Replica, target: Target) -> float:
    """What `target` speaks of, in seconds, for this replica; 0 for a bucket in which no prompt can lie."""
    if target.metric == TPOT:
        return replica.token_times.percentile(target.percentile / 100)
    prompts = prompts_of(replica.curves.shape, target.bucket)
    return replica.first_tokens(prompts).percentile(target.percentile / 100) if prompts else 0.0


def prompts_of(shape: RequestShape, bucket: str) -> tuple[PromptClass, ...]:
    """The prompts of a bucket such as `512-1024` or `16384+`, or of all. Empty where none can lie in it."""
    if bucket == ALL:
        return shape.prompt_classes
    low, _, high = bucket.rstrip("+").partition("-")
    return bucket_prompts(shape, int(low), int(high) if high else math.inf)


def _own(load: LoadModel, promises: Sequence[Target]) -> tuple[Target, ...]:
    """A prefill engine answers for TTFT only, a decode engine for TPOT only."""
    return tuple(p for p in promises if p.metric != {PREFILL: TPOT, DECODE: TTFT}.get(load.role))


def _worst(replica: Replica, promises: Sequence[Target]) -> Target:
    """The promise that is exceeded by most, as a ratio: seconds of TTFT and of TPOT are not of one size."""
    spoken = [p for p in promises if p.metric == TPOT or prompts_of(replica.curves.shape, p.bucket)]
    return max(spoken, key=lambda p: value(replica, p) / p.seconds)


def _broken(replica: Replica, promises: Sequence[Target]) -> bool:
    """Whether one is not kept: the probability of exceeding it decides, no percentile is searched for."""
    for target in promises:
        if target.metric == TPOT:
            above = replica.token_times.survival(target.seconds)
        else:
            prompts = prompts_of(replica.curves.shape, target.bucket)
            above = replica.first_tokens(prompts).survival(target.seconds) if prompts else 0.0
        if above > 1 - target.percentile / 100:
            return True
    return False


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
