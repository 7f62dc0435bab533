"""TTFT and TPOT percentiles of one replica under a demand, overall and for each prompt-length bucket."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firsttoken.planning.load.curves import EngineLimits, StepCurves
from firsttoken.planning.load.demand import RequestShape
from firsttoken.planning.load.responses import Handover, Replica
from firsttoken.planning.load.routers import ALONE, Router
from firsttoken.planning.load.steady import SERVE
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import Percentiles
from firsttoken.planning.workload import bucket_names

DEFAULT_BOUNDS = (64, 256, 512, 1024, 4096, 16384)  # DESIGN section 7
# A bucket with a smaller part of the requests is left out: none of a thousand lies in it, and what it would take is
# asked for by a promise, if at all.
LEAST_SHARE = 1e-3


@dataclass(frozen=True)
class BucketPrediction:
    """One prompt-length bucket. Seconds."""

    ttft: Percentiles
    share: float  # of the requests


@dataclass(frozen=True)
class ReplicaState:
    """One replica in its steady state. Seconds; shares of 1."""

    utilization: float  # of the scarcest resource, which `binds` names
    running: float  # requests that decode, mean
    binds: str  # Compute | RunningRequests | KVMemory | APIServer
    saturated: bool  # more arrives than can be served; times are then what they are after ten minutes of it
    ttft: Percentiles
    tpot: Percentiles
    by_bucket: Mapping[str, BucketPrediction]


class LoadModel:
    """One replica of one role at any rate. Lives as long as a planning call: rates share what they evaluate."""

    def __init__(
        self,
        model: StepModel,
        shape: RequestShape,
        engine: EngineLimits,
        role: str = SERVE,
        handover: Handover | None = None,
    ) -> None:
        """`role`: serve, prefill or decode. `handover`: how a prefill engine's KV reaches decode.

        TTFT of a prefill engine includes the way to decode, as `handover` says; that of a decode engine is its own
        part: a place, and the first step.
        """
        self.engine, self.role, self.handover, self.router = engine, role, handover, ALONE
        self.curves = StepCurves(model, shape, engine.token_budget)

    def with_limits(self, engine: EngineLimits) -> "LoadModel":
        """The same replica started otherwise; step times are shared."""
        return self.of(
            self.curves.for_budget(engine.token_budget), engine, self.role, self.handover, router=self.router
        )

    @classmethod
    def of(
        cls,
        curves: StepCurves,
        engine: EngineLimits,
        role: str = SERVE,
        handover: Handover | None = None,
        *,
        router: Router = ALONE,
    ) -> "LoadModel":
        """Of step times that are there already."""
        found = cls.__new__(cls)
        found.engine, found.role, found.handover, found.router = engine, role, handover, router
        found.curves = curves.for_budget(engine.token_budget)
        return found

    def handed_to(self, decode: Replica) -> "LoadModel":
        """The same prefill engine in front of a decode engine that is in this state."""
        return self.of(self.curves, self.engine, self.role, decode.handover(), router=self.router)

    def behind(self, router: Router) -> "LoadModel":
        """The same replica among others behind a router."""
        return self.of(self.curves, self.engine, self.role, self.handover, router=router)

    def at(self, rate: float) -> Replica:
        """Its distributions at `rate` requests a second, remembered with the step times: rates are asked for again."""
        key, known = (self.engine, self.role, self.handover, self.router, rate), self.curves.replicas
        if key not in known:
            known[key] = Replica(self.curves, self.engine, rate, self.role, self.handover, router=self.router)
        found: Replica = known[key]
        return found

    def state(self, rate: float, bounds: Sequence[int] = DEFAULT_BOUNDS) -> ReplicaState:
        """Its percentiles at `rate` requests a second; `bounds` are the rising upper bounds of the buckets, tokens."""
        return _state(self.at(rate), bounds)


def _state(replica: Replica, bounds: Sequence[int]) -> ReplicaState:
    steady, prompts = replica.steady, replica.curves.shape.prompt_classes
    return ReplicaState(
        utilization=steady.utilization,
        running=steady.running,
        binds=steady.binds,
        saturated=steady.saturated,
        ttft=replica.ttft(prompts),
        tpot=replica.tpot(),
        by_bucket=_by_bucket(replica, bounds),
    )


def _by_bucket(replica: Replica, bounds: Sequence[int]) -> dict[str, BucketPrediction]:
    """Each bucket that a thousandth of the prompts lie in."""
    shape = replica.curves.shape
    edges = (0, *bounds, math.inf)
    found = {}
    for name, low, high in zip(bucket_names(bounds), edges, edges[1:], strict=False):
        share = shape.prompts.below(high) - shape.prompts.below(low)
        if share < LEAST_SHARE:
            continue
        prompts = shape.bucket_classes(low, high)
        found[name] = BucketPrediction(replica.ttft(prompts), share)
    return found
