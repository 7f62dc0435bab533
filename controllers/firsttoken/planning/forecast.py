"""What each shape of a replica would carry within the SLOs: step model, load model, goodput; for one planning call."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.calibration import STAGES_OF, Calibration, Measured, tells_more
from firsttoken.planning.floors import least_ratio
from firsttoken.planning.load.curves import EngineLimits, StepCurves
from firsttoken.planning.load.demand import RequestShape
from firsttoken.planning.load.goodput import TPOT, TTFT, Goodput, Target, ceiling, keeps, largest_rate, targets
from firsttoken.planning.load.replica import LoadModel, ReplicaState
from firsttoken.planning.load.responses import Handover
from firsttoken.planning.load.routers import Router
from firsttoken.planning.parallelism import Candidate
from firsttoken.planning.routing import ENVOY, router_before
from firsttoken.planning.timing.device import Device, device_from_profile
from firsttoken.planning.timing.efficiency import Accuracy
from firsttoken.planning.timing.step import StepModel, replica_steps
from firsttoken.planning.timing.tokens import TokenWork
from firsttoken.planning.types import CalibratedStage, ModelFacts, Percentiles, Prediction, Routing
from firsttoken.planning.words import milliseconds, number
from firsttoken.planning.workload import default_slos

# Without a rate, what is shown is how replicas answer at this part of their goodput: loaded, and not at the edge.
ASSUMED_LOAD = 0.7
# A promise that nobody made (the profile's own) is not followed where it leaves less than this of what a replica can
# serve: for a few milliseconds that no user asked for, a fleet many times as large would be bought.
LEAST_OF_CAPACITY = 0.15
LARGEST_BUDGET = 16384
# What is compared where nobody promised anything.
TTFT_P95, TPOT_P95 = Target(TTFT, 95, math.inf), Target(TPOT, 95, math.inf)


def figures(number: float) -> float:
    """Four significant digits: more is not known, and a plan stays the same, byte for byte, on every machine."""
    return float(f"{number:.4g}")


@dataclass(frozen=True)
class Question:
    """What all forecasts of one planning call share."""

    facts: ModelFacts
    shape: RequestShape
    promises: tuple[Target, ...]
    promised: bool  # the spec named them; else they are the profile's
    bounds: tuple[int, ...]  # of the prompt-length buckets
    rate: float | None  # requests a second of the service
    calibration: Calibration = field(default_factory=Calibration)
    routing: Routing = ENVOY
    _curves: dict[tuple[object, ...], StepCurves] = field(default_factory=dict, repr=False, compare=False)
    _tokens: dict[tuple[object, ...], TokenWork] = field(default_factory=dict, repr=False, compare=False)

    def curves(
        self, device: tuple[Device, str], candidate: Candidate, kv_cache_dtype: str, scale: tuple[float, float]
    ) -> StepCurves:
        """Step times of one shape, shared by the roles and token budgets that are asked about in this call."""
        tensor, stages = candidate.tensor_parallel, candidate.pipeline_parallel
        # The facts are kept alive by the model that has them.
        key = (id(self.facts), device[1], tensor, stages, kv_cache_dtype, scale)
        if key not in self._curves:
            known = self._tokens.get(key[:4])
            model = replica_steps(self.facts, device[0], tensor, stages, kv_cache_dtype, scale=scale, tokens=known)
            self._tokens[key[:4]] = model.tokens
            self._curves[key] = StepCurves(model, self.shape, LARGEST_BUDGET)
        return self._curves[key]

    def router(self, role: str, replicas: int) -> Router:
        """What chooses among so many replicas of a role."""
        return router_before(self.shape, self.routing, role, replicas)

    def target(self, metric: str) -> Target | None:
        """The promise of a metric that says most of its tail: over all requests if there is one, else of a bucket."""
        own = [p for p in self.promises if p.metric == metric]
        return min(own, key=lambda p: (p.bucket != "all", -p.percentile, p.seconds), default=None)


@dataclass(frozen=True)
class Forecast:
    """One shape of one role: how it is loaded, and what it carries."""

    role: str
    device: Device
    candidate: Candidate
    load: LoadModel
    calibrated: tuple[CalibratedStage, ...]  # of the role's own stages, those whose times follow the live fleet
    accuracy: Accuracy  # of step times; where they are calibrated, the band of that
    promises: tuple[Target, ...]
    kv_cache_dtype: str = "auto"  # vLLM's name
    promised: bool = False  # the spec made the promises
    near: float = 0.0  # requests a second that it is expected to carry, to begin the search with
    near_kept: bool = False  # it is known to keep the promises at that rate
    impossible: tuple[str, ...] = ()  # what was measured and is left out, in words: faster than the data sheet allows

    @property
    def interval(self) -> float:
        """Relative, of the less known of the role's own stages: half of a whole engine is not all."""
        return max(self.accuracy.of(stage) for stage in STAGES_OF[self.role])

    @cached_property
    def goodput(self) -> Goodput:
        """The largest rate that keeps the promises. Most of a forecast's work, so only done when asked for."""
        return largest_rate(self.load, self.promises, self.near, kept=self.near_kept)

    @cached_property
    def keeps_promises(self) -> bool:
        """Whether there is a rate at which the promises are kept, and, if nobody made them, one worth having."""
        return self.goodput.rate > 0 and (self.promised or self.uses(LEAST_OF_CAPACITY))

    @cached_property
    def most(self) -> float:
        """Requests a second that a replica can serve at all."""
        rate = self.goodput.rate  # with promises, so it is kept without
        return largest_rate(self.load, (), rate or self.near, kept=rate > 0).rate

    def uses(self, part: float) -> bool:
        """Whether the promises leave at least that part of `most`, which is only looked for if it is close."""
        rate = self.goodput.rate
        return rate >= part * ceiling(self.load) or rate >= part * self.most

    @property
    def capacity(self) -> float:
        """Requests a second of a replica: within the SLOs, or, where it can't keep them, all it can serve."""
        return figures(self.goodput.rate if self.keeps_promises else self.most)

    @property
    def gpus(self) -> int:
        """Of one replica."""
        return self.candidate.gpus

    @property
    def per_gpu(self) -> float:
        """`capacity` for each GPU."""
        return self.capacity / self.gpus

    def keeps(self, rate: float) -> bool:
        """Whether a replica keeps the promises at `rate` requests a second."""
        return keeps(self.load, self.promises, rate)

    def behind(self, router: Router) -> "Forecast":
        """The same replica among its like, expected to carry about as much as alone."""
        if router == self.load.router:
            return self
        return replace(self, load=self.load.behind(router), near=self.near or self.goodput.rate, near_kept=False)

    def with_limits(self, limits: EngineLimits, near: float = 0.0) -> "Forecast":
        """The same replica started with other limits, expected to carry about `near` requests a second."""
        if limits == self.load.engine:
            return self
        return replace(self, load=self.load.with_limits(limits), near=near, near_kept=False)


def forecast(
    question: Question,
    role: str,
    device_of: tuple[str, AcceleratorProfileSpec],
    candidate: Candidate,
    limits: EngineLimits,
    *,
    kv_cache_dtype: str = "auto",
    handover: Handover | None = None,
    near: float = 0.0,
) -> Forecast:
    """Of one shape on an accelerator (its name and profile). Nothing is remembered beyond the call.

    `near`: requests a second that it is expected to carry.
    """
    accelerator, profile = device_of
    device = device_from_profile(profile)
    own = STAGES_OF[role]
    curves = question.curves((device, accelerator), candidate, kv_cache_dtype, (1.0, 1.0))
    kind = measured_kind(question.facts, accelerator, candidate, kv_cache_dtype)
    known, impossible = _calibrated(question.calibration, kind, curves.model, candidate.gpus, own)
    if known:
        scale = tuple(known[stage].ratio if stage in known else 1.0 for stage in ("prefill", "decode"))
        curves = question.curves((device, accelerator), candidate, kv_cache_dtype, (scale[0], scale[1]))
    # Each stage's own: what is known of decode says nothing of prompts.
    prefill, decode = (known[s].band if s in known else curves.model.interval.of(s) for s in ("prefill", "decode"))
    accuracy = Accuracy(figures(prefill), figures(decode))
    load = LoadModel.of(curves, limits, role, handover)
    calibrated = tuple(known.values())
    return Forecast(
        role, device, candidate, load, calibrated, accuracy, question.promises, kv_cache_dtype, question.promised, near,
        impossible=impossible,
    )  # fmt: skip


def measured_kind(facts: ModelFacts, accelerator: str, candidate: Candidate, kv_cache_dtype: str) -> Measured:
    """What a measurement has to be of to count for such a replica, without the stage."""
    return Measured(
        accelerator,
        facts.name,
        facts.quantization,
        kv_cache_dtype,
        candidate.tensor_parallel,
        stage="",
        pipeline_parallel=candidate.pipeline_parallel,
        nodes=candidate.nodes,
    )


def _calibrated(
    calibration: Calibration, kind: Measured, model: StepModel, gpus: int, stages: tuple[str, ...]
) -> tuple[dict[str, CalibratedStage], tuple[str, ...]]:
    """What the live fleet has shown of these stages of one kind of replica, where that says more than the model; and
    what is left out, since no hardware of that kind can be so fast.
    """
    found, impossible = {}, []
    for stage in stages:
        ratio = calibration.of(replace(kind, stage=stage))
        if ratio is None or not tells_more(ratio, model.interval.of(stage)):
            continue
        band, least = figures(ratio.band), least_ratio(model, gpus, kind.kv_cache_dtype, stage)
        if ratio.value * (1 + band) < least:
            impossible.append(f"{stage} x{number(ratio.value)} (x{number(least)} is the data sheet's peak)")
            continue
        value = max(ratio.value, figures(least))
        found[stage] = CalibratedStage(stage, value, band, ratio.requests, ratio.tensor_parallel)
    return found, tuple(impossible)


def handover_to(decode: Forecast) -> Handover:
    """What the first token of a split waits for on the decode side, which is loaded as one without a rate is shown."""
    return decode.load.at(ASSUMED_LOAD * decode.capacity).handover()


def rate_of(question: Question, forecasts: Sequence[Forecast], replicas: Sequence[int]) -> float:
    """Requests a second that a prediction is for: the spec's, else the assumed part of what the service carries."""
    if question.rate is not None:
        return question.rate
    return ASSUMED_LOAD * min(f.capacity * max(1, n) for f, n in zip(forecasts, replicas, strict=True))


def at_work(
    question: Question, forecasts: Sequence[Forecast], rate: float, replicas: Sequence[int]
) -> tuple[Forecast, ...]:
    """The same behind the router of as many as there are; prefill replicas hand over to the decode replicas that there
    are, at `rate` of the service.
    """
    among = tuple(f.behind(question.router(f.role, n)) for f, n in zip(forecasts, replicas, strict=True))
    if len(among) == 1:
        return among
    first, last = among
    decode = last.load.at(rate_of_each(rate, replicas[1]))
    return replace(first, load=first.load.handed_to(decode)), last


def rate_of_each(rate: float, replicas: int) -> float:
    """Requests a second of one replica; above 0 even where figures round to nothing, since times divide by it."""
    return max(rate / max(1, replicas), 1e-9)


def predict(question: Question, forecasts: Sequence[Forecast], replicas: Sequence[int], rate: float) -> Prediction:
    """What users see at `rate`: TTFT of the role that computes prompts, TPOT of the one that makes tokens."""
    states = [f.load.state(rate_of_each(rate, n), question.bounds) for f, n in zip(forecasts, replicas, strict=True)]
    first, last = states[0], states[-1]
    fullest = max(states, key=lambda s: s.utilization)
    return Prediction(
        requests_per_second=figures(rate),
        assumed_rate=question.rate is None,
        ttft=_rounded(first.ttft),
        tpot=_rounded(last.tpot),
        by_prompt_tokens=_buckets(first),
        utilization=figures(fullest.utilization),
        binds=fullest.binds,
        ttft_interval=forecasts[0].accuracy.prefill,
        tpot_interval=forecasts[-1].accuracy.decode,
        promises=tuple(str(p) for p in question.promises),
        calibrated=tuple(stage for f in forecasts for stage in f.calibrated),
    )


def _buckets(found: ReplicaState) -> Mapping[str, Percentiles]:
    return {name: _rounded(bucket.ttft) for name, bucket in found.by_bucket.items()}


def _rounded(seconds: Percentiles) -> Percentiles:
    return Percentiles(figures(seconds.p50), figures(seconds.p95), figures(seconds.p99))


def promises_of(spec: InferenceServiceSpec) -> tuple[Target, ...]:
    """Those of the spec, else the profile's."""
    return targets(spec.slos) if spec.slos else targets(default_slos(spec.workload.profile), default=True)


def promises_in_words(spec: InferenceServiceSpec) -> tuple[str, ...]:
    """The same, as a Prediction names them."""
    return tuple(str(p) for p in promises_of(spec))


def describe(target: Target) -> str:
    """A promise in words: `TTFT P95 of 512-1024 tokens within 200 ms`, and whether it is anybody's own."""
    where = "" if target.bucket == "all" else f" of {target.bucket} tokens"
    whose = " (the profile's default)" if target.default else ""
    return f"{target.metric} P{target.percentile}{where} within {milliseconds(target.seconds)}{whose}"
