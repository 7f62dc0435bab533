"""What a simulation leaves: the times of each request, sums over time, and the last steps one by one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firsttoken.simulation.requests import Requests
from firsttoken.simulation.settings import Stages


@dataclass(frozen=True, eq=False)
class Outcome:
    """n requests, in the order they were given. Seconds of the engine's clock; NaN: not yet.

    `queued`: when its first step is decided, which is where vLLM stamps SCHEDULED: with asynchronous scheduling up to a
    whole step before that step starts, so the rest of the step under way counts as prefill. `first`, `finish`: end of
    the step with its first and last token; the client has them `stages.delivery_seconds` later. `cached`: prompt tokens
    from the prefix cache at its first step.
    """

    requests: Requests
    stages: Stages
    arrival: NDArray[np.float64]
    ready: NDArray[np.float64]  # at the engine, after gateway and input processing
    queued: NDArray[np.float64]
    first: NDArray[np.float64]
    finish: NDArray[np.float64]
    preempted: NDArray[np.int32]
    cached: NDArray[np.int32]
    timeline: NDArray[Any]  # state.BIN: sums over each `bin_seconds`
    bin_seconds: float
    steps: NDArray[Any]  # state.STEP: the last steps, oldest first; as many as were asked for
    totals: "Totals"

    @property
    def ttft(self) -> NDArray[np.float64]:
        """From leaving the client to the first token there."""
        return self.first + self.stages.delivery_seconds - self.arrival

    @property
    def tpot(self) -> NDArray[np.float64]:
        """Mean time of a token after the first; NaN where there is none."""
        return tpot_of(self.requests, self.first, self.finish)

    def times(self) -> Mapping[str, NDArray[np.float64]]:
        """TTFT, the stages that add up to it (M1.1), and TPOT; seconds."""
        stages, count = self.stages, len(self.arrival)
        return {
            "ttft": self.ttft,
            "gateway": np.full(count, stages.gateway_seconds),
            "input": self.ready - self.arrival - stages.gateway_seconds,
            "queue": self.queued - self.ready,
            "prefill": self.first - self.queued,
            "transfer": np.zeros(count),
            "delivery": np.full(count, stages.delivery_seconds),
            "tpot": self.tpot,
        }

    @property
    def used_bins(self) -> NDArray[Any]:
        """The time series up to the last step."""
        return self.timeline[: int(self.totals.end / self.bin_seconds) + 1 if self.totals.steps else 0]

    @property
    def busy(self) -> NDArray[np.float64]:
        """Part of each bin in which the GPU worked, on whatever; a series hardly ever below 1 while anybody decodes."""
        return np.asarray(self.used_bins["gpu"] / self.bin_seconds)

    @property
    def compute(self) -> NDArray[np.float64]:
        """Part of the dense peak that the layers' matrix products reached in each bin: there the sawtooth shows (M3.3).

        Decodes alone read memory and compute little; prompts compute.
        """
        tokens = self.used_bins["prefill_tokens"] + self.used_bins["decode_tokens"]
        return np.asarray(tokens * self.totals.peak_token / self.bin_seconds)


def tpot_of(requests: Requests, first: NDArray[np.float64], finish: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean seconds of a token after the first; NaN where there is none."""
    more = requests.output_tokens - 1.0
    found: NDArray[np.float64] = (finish - first) / np.where(more > 0, more, np.nan)
    return found


@dataclass(frozen=True)
class Totals:
    """Of one replica over the whole run."""

    steps: int
    seconds: float  # in steps
    gpu_seconds: float  # of them, with the GPU at work
    end: float  # of the last step
    preemptions: int
    finished: int
    peak_running: int
    peak_waiting: int
    peak_kv_blocks: int
    peak_token: float  # see StepTable: compute needed for a token

    @property
    def busy(self) -> float:
        """Part of the time from 0 to the last step's end in which the GPU worked."""
        return self.gpu_seconds / self.end if self.end else 0.0
