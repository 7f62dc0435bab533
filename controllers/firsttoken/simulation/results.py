"""What users saw, for each prompt-length bucket: TTFT and its stages, TPOT, cache hits, preemptions (M1, M2)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firsttoken.planning.load.replica import DEFAULT_BOUNDS
from firsttoken.planning.types import Percentiles
from firsttoken.planning.workload import bucket_names
from firsttoken.simulation.fleet_outcome import FleetOutcome
from firsttoken.simulation.outcome import Outcome
from firsttoken.simulation.quantiles import Kept, LogHistogram

ALL = "all"
# `transfer` is 0 but where a decode replica makes the first token.
STAGES = ("gateway", "input", "queue", "prefill", "transfer", "delivery")
TIMES = ("ttft", *STAGES, "tpot")


@dataclass(frozen=True)
class TimeSummary:
    """Seconds; NaN where there is no request (or for TPOT none with a second token)."""

    mean: float
    percentiles: Percentiles


@dataclass(frozen=True)
class BucketSummary:
    """Requests of one bucket that had their last token. `times` by name, see TIMES."""

    requests: int
    times: Mapping[str, TimeSummary]
    hit_rate: float  # part of their prompt tokens that the prefix cache had at the first step; NaN of none
    preemptions: int

    @property
    def ttft(self) -> Percentiles:
        """From leaving the client to the first token there."""
        return self.times["ttft"].percentiles

    @property
    def tpot(self) -> Percentiles:
        """Each request's mean time of a token after the first."""
        return self.times["tpot"].percentiles


class _Bucket:
    def __init__(self, exact: bool) -> None:
        self.times = {name: Kept() if exact else LogHistogram() for name in TIMES}
        self.requests = self.prompt = self.cached = self.preempted = 0

    def add(
        self, outcome: Outcome | FleetOutcome, chosen: NDArray[np.bool_], times: Mapping[str, NDArray[np.float64]]
    ) -> None:
        self.requests += int(chosen.sum())
        self.prompt += int(outcome.requests.prompt_tokens[chosen].sum(dtype=np.int64))
        self.cached += int(outcome.cached[chosen].sum(dtype=np.int64))
        self.preempted += int(outcome.preempted[chosen].sum(dtype=np.int64))
        for name, values in times.items():
            self.times[name].add(values[chosen])

    def summary(self) -> BucketSummary:
        return BucketSummary(
            self.requests,
            {
                name: TimeSummary(t.mean, Percentiles(t.quantile(0.5), t.quantile(0.95), t.quantile(0.99)))
                for name, t in self.times.items()
            },
            self.cached / self.prompt if self.prompt else math.nan,
            self.preempted,
        )


class Summary:
    """Adds up outcomes; bounded memory unless `exact`, then quantiles are exact instead of within 1 %.

    `bounds`: rising upper bounds of the buckets, prompt tokens; a prompt of exactly a bound is below it, as in a
    Prometheus histogram.
    """

    def __init__(self, bounds: Sequence[int] = DEFAULT_BOUNDS, *, exact: bool = True) -> None:
        self._bounds = np.asarray(bounds)
        self._buckets = {name: _Bucket(exact) for name in (*bucket_names(bounds), ALL)}

    def add(self, outcome: Outcome | FleetOutcome) -> None:
        """Its requests that ended; the others are left out."""
        done, times = ~np.isnan(outcome.finish), outcome.times()
        places = np.searchsorted(self._bounds, outcome.requests.prompt_tokens, side="left")
        for number, (name, bucket) in enumerate(self._buckets.items()):
            bucket.add(outcome, done if name == ALL else done & (places == number), times)

    def buckets(self) -> dict[str, BucketSummary]:
        """By bucket name, shortest first, and `all`."""
        return {name: bucket.summary() for name, bucket in self._buckets.items()}


def summarize(outcome: Outcome | FleetOutcome, bounds: Sequence[int] = DEFAULT_BOUNDS) -> dict[str, BucketSummary]:
    """Of one outcome, exact."""
    found = Summary(bounds)
    found.add(outcome)
    return found.buckets()
