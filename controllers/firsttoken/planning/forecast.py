"""What each shape of a replica would carry within the SLOs: step model, load model, goodput; for one planning call."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.calibration import STAGES, Calibration, Ratio
from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.demand import RequestShape
from firsttoken.planning.load.goodput import TPOT, TTFT, Goodput, Target, largest_rate
from firsttoken.planning.load.replica import LoadModel, ReplicaState
from firsttoken.planning.load.responses import Handover
from firsttoken.planning.parallelism import Candidate
from firsttoken.planning.timing.device import Device, device_from_profile
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import ModelFacts, Percentiles, Prediction

# Decodes beside which a prefill engine's first token is made on the other side: the step is nearly flat up to there.
HANDOVER_BATCH = 16
# Without a rate, what is shown is how replicas answer at this part of their goodput: loaded, and not at the edge.
ASSUMED_LOAD = 0.7
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
    calibrated: tuple[str, ...]  # stages whose times follow the live fleet
    interval: float  # relative, of step times
    promises: tuple[Target, ...]

    @cached_property
    def goodput(self) -> Goodput:
        """The largest rate that keeps the promises. Most of a forecast's work, so only done when asked for."""
        return largest_rate(self.load, self.promises)

    @property
    def gpus(self) -> int:
        """Of one replica."""
        return self.candidate.gpus

    @property
    def per_gpu(self) -> float:
        """Requests a second and GPU within the SLOs."""
        return self.goodput.rate / self.gpus

    def operating_rate(self, rate: float | None, replicas: int) -> float:
        """Requests a second of one replica: its share of the service's, or the assumed part of its goodput."""
        if rate is not None:
            return rate / max(1, replicas)
        return self.goodput.rate * ASSUMED_LOAD


def forecast(
    question: Question,
    role: str,
    device_of: tuple[str, AcceleratorProfileSpec],
    candidate: Candidate,
    limits: EngineLimits,
    *,
    kv_cache_dtype: str = "auto",
    handover: Handover | None = None,
) -> Forecast:
    """Of one shape on an accelerator (its name and profile). Nothing is remembered beyond the call."""
    accelerator, profile = device_of
    device = device_from_profile(profile)
    ratios = {s: question.calibration.of(accelerator, candidate.tensor_parallel, s) for s in STAGES}
    known = {stage: ratio for stage, ratio in ratios.items() if ratio is not None}
    model = StepModel(
        question.facts,
        device,
        tensor_parallel=candidate.tensor_parallel,
        pipeline_parallel=candidate.pipeline_parallel,
        kv_cache_dtype=kv_cache_dtype,
        scale=(_ratio(known, "prefill"), _ratio(known, "decode")),
    )
    interval = max([r.band for r in known.values()]) if len(known) == len(STAGES) else model.relative_interval
    load = LoadModel(model, question.shape, limits, role, handover)
    return Forecast(role, device, candidate, load, tuple(known), interval, question.promises)


def _ratio(known: Mapping[str, Ratio], stage: str) -> float:
    return known[stage].value if stage in known else 1.0


def handover_to(decode: Forecast) -> Handover:
    """What the first token of a split waits for on the decode side."""
    context = round(decode.load.curves.shape.context)
    return Handover(decode_step=decode.load.curves.model.decode_seconds(HANDOVER_BATCH, context))


def predict(question: Question, forecasts: Sequence[Forecast], replicas: Sequence[int]) -> Prediction:
    """What users see: TTFT of the role that computes prompts, TPOT of the one that makes tokens."""
    states = [
        f.load.state(max(f.operating_rate(question.rate, n), 1e-9), question.bounds)
        for f, n in zip(forecasts, replicas, strict=True)
    ]
    first, last = states[0], states[-1]
    fullest = max(states, key=lambda s: s.utilization)
    carried = min(f.operating_rate(question.rate, n) * n for f, n in zip(forecasts, replicas, strict=True))
    return Prediction(
        requests_per_second=figures(question.rate if question.rate is not None else carried),
        assumed_rate=question.rate is None,
        ttft=_rounded(first.ttft),
        tpot=_rounded(last.tpot),
        by_prompt_tokens=_buckets(first),
        utilization=figures(fullest.utilization),
        binds=fullest.binds,
        relative_interval=figures(max(f.interval for f in forecasts)),
        calibrated=tuple(dict.fromkeys(stage for f in forecasts for stage in f.calibrated)),
    )


def _buckets(found: ReplicaState) -> Mapping[str, Percentiles]:
    return {name: _rounded(bucket.ttft) for name, bucket in found.by_bucket.items()}


def _rounded(seconds: Percentiles) -> Percentiles:
    return Percentiles(figures(seconds.p50), figures(seconds.p95), figures(seconds.p99))


def describe(target: Target) -> str:
    """A promise in words: `TTFT P95 of 512-1024 within 200 ms`."""
    where = "" if target.bucket == "all" else f" of {target.bucket} tokens"
    return f"{target.metric} P{target.percentile}{where} within {milliseconds(target.seconds)}"


def milliseconds(seconds: float) -> str:
    """For people: two or three digits, and seconds where that reads better."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
