"""A simulated service for programs: plain values, seconds, shares as fractions, null where there is nothing to say."""

import math
from collections.abc import Mapping
from typing import Any

from firsttoken.planning.types import Percentiles
from firsttoken.simulation.outcome import Outcome
from firsttoken.simulation.results import STAGES, BucketSummary, TimeSummary
from firsttoken.simulation.service_run import ServiceRun


def document(run: ServiceRun, seed: int) -> dict[str, Any]:
    """One run, in a fixed order of keys."""
    plan = run.plan
    return {
        "service": run.name,
        "layout": plan.layout,
        "gpus": plan.gpus,
        "traffic": {
            "source": run.traffic.source,
            "requestsPerSecond": _known(run.traffic.rate),
            "servedPerSecond": _known(run.served_rate),
            "assumedRate": run.traffic.assumed,
            "seed": seed,
        },
        "requests": len(run.outcome.requests),
        "refused": run.refused,
        "seconds": run.seconds,
        "queueGrows": run.overloaded,
        "queued": dict(zip(("halfway", "atLastArrival"), run.backlog, strict=True)),
        "utilizationWindowSeconds": list(run.window),
        "outputTokensPerSecond": run.output_rate(),
        "byPromptTokens": _buckets(run.buckets),
        **({"arms": {arm: _buckets(found) for arm, found in run.arms.items()}} if run.arms else {}),
        "replicas": [_replica(run, number, one) for number, one in enumerate(run.outcome.replicas)],
    }


def _buckets(found: Mapping[str, BucketSummary]) -> dict[str, Any]:
    return {name: _bucket(bucket) for name, bucket in found.items()}


def _bucket(bucket: BucketSummary) -> dict[str, Any]:
    return {
        "requests": bucket.requests,
        "ttftSeconds": _times(bucket.times["ttft"]),
        "stages": {name: _times(bucket.times[name]) for name in STAGES},
        "tpotSeconds": _times(bucket.times["tpot"]),
        "hitRate": _known(bucket.hit_rate),
        "preemptions": bucket.preemptions,
    }


def _times(found: TimeSummary) -> dict[str, float | None]:
    percentiles: Percentiles = found.percentiles
    return {"mean": _known(found.mean), **{name: _known(getattr(percentiles, name)) for name in ("p50", "p95", "p99")}}


def _replica(run: ServiceRun, number: int, one: Outcome) -> dict[str, Any]:
    totals = one.totals
    return {
        "role": run.outcome.roles[number],
        "requests": len(one.requests),
        "busy": run.busy(one),
        "compute": run.compute(one),
        "steps": totals.steps,
        "preemptions": totals.preemptions,
        "peakRunning": totals.peak_running,
        "peakWaiting": totals.peak_waiting,
        "peakKVBlocks": totals.peak_kv_blocks,
        "kvBlocks": run.kv_blocks[number],
    }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
