"""The largest rate at which one replica keeps its SLOs (goodput, as DistServe defines it)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from firsttoken.api.quantities import duration_seconds
from firsttoken.api.service_inputs import SLO
from firsttoken.planning.load.demand import PromptClass, RequestShape
from firsttoken.planning.load.replica import LoadModel
from firsttoken.planning.load.responses import Replica
from firsttoken.planning.load.search import GRID_POINTS, GRID_STEP, Search, Trial
from firsttoken.planning.load.steady import DECODE, PREFILL

TTFT, TPOT, ALL = "TTFT", "TPOT", "all"

USUAL = 0.45  # part of the capacity that most promises leave: where a search without a guess begins
UNLOADED = 1e-6  # part of the capacity: no request meets another
# The part of requests that breaks a promise grows about so much faster with the rate than the load does; below the
# least one, nothing is gained by telling how small it is.
STEEPER, LEAST_STRAIN = 12.0, 1e-6


@dataclass(frozen=True)
class Target:
    """One promise: that percentile of the metric stays within `seconds`, for one prompt-length bucket or `all`."""

    metric: str  # TTFT | TPOT
    percentile: int
    seconds: float
    bucket: str = ALL
    default: bool = False  # the profile's: nobody named it

    def __str__(self) -> str:
        return f"{self.metric} P{self.percentile} {self.bucket} {self.seconds:.6g} s"


@dataclass(frozen=True)
class Goodput:
    """Requests a second of one replica, and what keeps it from more."""

    rate: float
    binding: Target | None  # the promise that a higher rate breaks by most; None: the engine's capacity
    binds: str  # Compute | RunningRequests | KVMemory | APIServer: the scarcest resource there
    load: LoadModel | None = None  # of the replica, where a promise binds

    @cached_property
    def floor(self) -> float | None:
        """What an empty engine takes for the binding promise, seconds."""
        return value(_idle(self.load), self.binding) if self.load and self.binding else None

    @property
    def missed_by(self) -> float:
        """The binding promise on an empty engine: what it takes over what was promised. 0 without a promise."""
        return (self.floor or 0.0) / self.binding.seconds if self.binding is not None else 0.0


def targets(slos: Sequence[SLO], *, default: bool = False) -> tuple[Target, ...]:
    """The promises of a spec or, with `default`, of a profile."""
    return tuple(Target(s.metric, s.percentile, duration_seconds(s.target), s.prompt_tokens, default) for s in slos)


def largest_rate(load: LoadModel, promises: Sequence[Target], near: float = 0.0, *, kept: bool = False) -> Goodput:
    """The largest rate of the grid at which one replica keeps all of `promises`; 0 where even an empty engine breaks
    one. A prefill engine answers for TTFT only, a decode engine for TPOT only.

    `near`: a rate close to which it is expected; the search begins there. `kept`: it is known to keep the promises.
    """
    own, top = _own(load, promises), ceiling(load)
    search = Search(lambda point: _trial(load.at(_rate(top, point)), own))
    begin = _point(top, near or USUAL * top)
    if kept and near < top:
        search.learn(begin, _trial(load.at(near), own))
    else:
        search.look(begin)
    if search.low < 0 and not search.look_outwards():
        empty = _idle(load)  # it keeps what is kept at any rate: waiting never falls when load rises
        if _broken(empty, own):
            return Goodput(0.0, _worst(empty, own), empty.steady.binds, load)
    search.close()
    replica = search.above or load.at(top)
    broken = None if replica.steady.saturated or not _broken(replica, own) else _worst(replica, own)
    rate = _rate(top, search.low) if search.low >= 0 else 0.0
    return Goodput(rate, broken, replica.steady.binds, load)


def keeps(load: LoadModel, promises: Sequence[Target], rate: float) -> bool:
    """Whether one replica keeps all of its role's promises at `rate` requests a second."""
    replica = load.at(rate)
    return not replica.steady.saturated and not _broken(replica, _own(load, promises))


def missed_when_idle(load: LoadModel, promises: Sequence[Target]) -> tuple[tuple[Target, float], ...]:
    """Each promise that even an empty engine breaks, with what it takes there, seconds; the worst first."""
    return _missed(_idle(load), load, promises)


def missed_at(load: LoadModel, promises: Sequence[Target], rate: float) -> tuple[tuple[Target, float], ...]:
    """Each promise that is broken at `rate` requests a second, with what is predicted, seconds; the worst first."""
    return _missed(load.at(rate), load, promises)


def _missed(replica: Replica, load: LoadModel, promises: Sequence[Target]) -> tuple[tuple[Target, float], ...]:
    found = [(p, value(replica, p)) for p in _own(load, promises) if _broken(replica, (p,))]
    return tuple(sorted(found, key=lambda f: f[0].seconds / f[1]))


def excess(load: LoadModel, promises: Sequence[Target], rate: float) -> float:
    """The worst promise at `rate` requests a second: what is predicted over what is promised. 0 without a promise."""
    replica = load.at(rate)
    return max((value(replica, p) / p.seconds for p in _own(load, promises)), default=0.0)


def at_least(load: LoadModel, target: Target) -> float:
    """What `target` speaks of at the least rate that counts as one, seconds: to promise less is to carry nothing."""
    return value(load.at(_rate(ceiling(load), 0)), target)


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
    return shape.bucket_classes(int(low), int(high) if high else math.inf)


def _own(load: LoadModel, promises: Sequence[Target]) -> tuple[Target, ...]:
    """A prefill engine answers for TTFT only, a decode engine for TPOT only. TPOT first: it is told sooner."""
    own = (p for p in promises if p.metric != {PREFILL: TPOT, DECODE: TTFT}.get(load.role))
    return tuple(sorted(own, key=lambda p: p.metric != TPOT))


def _worst(replica: Replica, promises: Sequence[Target]) -> Target:
    """Of promises that are broken, the one exceeded by most, as a ratio: seconds of TTFT and TPOT differ in size."""
    broken = [p for p in promises if _broken(replica, (p,))]
    return broken[0] if len(broken) == 1 else max(broken, key=lambda p: value(replica, p) / p.seconds)


def _broken(replica: Replica, promises: Sequence[Target]) -> bool:
    """Whether one is not kept: the probability of exceeding it decides, no percentile is searched for."""
    return any(_above(replica, target) > _allowed(target) for target in promises)


def _trial(replica: Replica, promises: Sequence[Target]) -> Trial:
    """How far a replica is from its limits; no further promise is looked at once one is broken."""
    used = replica.steady.utilization
    strain = math.log(max(used, LEAST_STRAIN))
    if used >= 1:
        return Trial(replica, False, strain)
    for target in promises:
        above, allowed = _above(replica, target), _allowed(target)
        strain = max(strain, math.log(max(above, LEAST_STRAIN) / allowed) / STEEPER)
        if above > allowed:
            return Trial(replica, False, strain)
    return Trial(replica, True, strain)


def _above(replica: Replica, target: Target) -> float:
    """Part of the requests that take longer than promised; 0 for a bucket in which no prompt can lie."""
    if target.metric == TPOT:
        return replica.token_times.survival(target.seconds)
    prompts = prompts_of(replica.curves.shape, target.bucket)
    return replica.first_tokens(prompts).survival(target.seconds) if prompts else 0.0


def _allowed(target: Target) -> float:
    return 1 - target.percentile / 100


def _rate(top: float, point: int) -> float:
    return top * GRID_STEP ** (point - GRID_POINTS)


def _point(top: float, rate: float) -> int:
    """The grid point below a rate."""
    return max(0, min(GRID_POINTS - 1, math.floor(math.log(rate / top) / math.log(GRID_STEP)) + GRID_POINTS))


def _idle(load: LoadModel) -> Replica:
    return load.at(ceiling(load) * UNLOADED)


def ceiling(load: LoadModel) -> float:
    """A rate that the engine can't reach: full steps without decodes, places taken by the fastest decodes, or the API
    server with a request at every moment.
    """
    curves, shape, engine = load.curves, load.curves.shape, load.engine
    bounds = []
    if load.role != DECODE:
        bounds.append(curves.room(0) / (shape.mean_uncached * curves.full(0)))
    if load.role != PREFILL and shape.mean_decodes:
        bounds.append(engine.max_running / (shape.mean_decodes * curves.decode(1)))
    if curves.mean_api:
        bounds.append(1 / curves.mean_api)
    return 1.05 * min(bounds, default=1 / curves.decode(1))
