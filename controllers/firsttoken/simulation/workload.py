"""Requests drawn from distributions: lengths, shared prefixes, arrivals. The same seed gives the same bytes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from firsttoken.planning.load.lengths import Z95
from firsttoken.planning.memory import BLOCK_TOKENS
from firsttoken.planning.workload import ResolvedWorkload
from firsttoken.simulation.arrivals import Arrivals
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.requests import MOST_TOKENS, Requests


class Lengths(Protocol):
    """Tokens of a prompt or an output."""

    def draw(self, count: int, source: np.random.Generator) -> NDArray[np.int64]:
        """That many lengths, 1 or more."""


@dataclass(frozen=True)
class LogNormal:
    """Log-normal through two percentiles, cut to 1 ... `longest`: what the planner takes (planning/load/lengths.py)."""

    p50: int
    p95: int
    longest: int = MOST_TOKENS

    def __post_init__(self) -> None:
        if not 1 <= self.p50 <= self.p95 or self.longest < 1:
            raise SimulationInputError(
                f"lengths have P50 {self.p50}, P95 {self.p95}, longest {self.longest}: give 1 <= P50 <= P95 and "
                "longest >= 1"
            )

    def draw(self, count: int, source: np.random.Generator) -> NDArray[np.int64]:
        """See Lengths."""
        middle, spread = math.log(self.p50), math.log(self.p95 / self.p50) / Z95
        drawn: NDArray[np.float64] = np.exp(np.minimum(middle + spread * source.standard_normal(count), 60.0))
        return np.rint(np.clip(drawn, 1, self.longest)).astype(np.int64)


@dataclass(frozen=True)
class Between:
    """Each length from `low` to `high` equally often; a fixed length with both the same."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high <= MOST_TOKENS:
            raise SimulationInputError(f"lengths go from {self.low} to {self.high}: give 1 <= low <= high")

    def draw(self, count: int, source: np.random.Generator) -> NDArray[np.int64]:
        """See Lengths."""
        return source.integers(self.low, self.high + 1, count)


@dataclass(frozen=True)
class Given:
    """Lengths drawn from a list, each as often as it stands there."""

    tokens: Sequence[int]

    def __post_init__(self) -> None:
        if not len(self.tokens) or min(self.tokens) < 1:
            raise SimulationInputError("lengths to draw from must be 1 or more tokens each, and at least one")

    def draw(self, count: int, source: np.random.Generator) -> NDArray[np.int64]:
        """See Lengths."""
        return np.asarray(self.tokens, np.int64)[source.integers(0, len(self.tokens), count)]


@dataclass(frozen=True)
class SharedPrefixes:
    """`count` different beginnings of `tokens`; the k-th most popular is used in proportion to 1 / k ** `zipf`.

    `share` of the requests begin with one. A prompt shorter than its prefix is all prefix.
    """

    tokens: int
    count: int = 1
    zipf: float = 1.0
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.tokens < 0 or self.count < 1 or self.zipf < 0 or not 0 <= self.share <= 1:
            raise SimulationInputError(
                f"shared prefixes of {self.tokens} tokens, {self.count} of them, zipf {self.zipf}, share {self.share}: "
                "give tokens >= 0, count >= 1, zipf >= 0, share from 0 to 1"
            )

    def draw(
        self, prompts: NDArray[np.int64], source: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Offsets and hashes of the prompts' full shared blocks of 16 tokens, as in Requests."""
        weights = np.arange(1, self.count + 1, dtype=np.float64) ** -self.zipf
        # One number decides both which prefix and, beyond `share`, that there is none.
        drawn = source.random(len(prompts))
        kinds = np.searchsorted(np.cumsum(weights) / weights.sum() * self.share, drawn, side="right")
        blocks = np.where(kinds < self.count, np.minimum(prompts, self.tokens) // BLOCK_TOKENS, 0)
        offsets = np.concatenate(([0], np.cumsum(blocks))).astype(np.int64)
        inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], blocks)
        return offsets, np.repeat(kinds, blocks) * (self.tokens // BLOCK_TOKENS) + inside


@dataclass(frozen=True)
class Workload:
    """What clients send. Without `arrivals` all are there at once: for a closed loop, which sends them itself."""

    prompts: Lengths
    outputs: Lengths
    arrivals: Arrivals | None = None
    prefixes: SharedPrefixes | None = None

    def requests(self, seed: int, *, count: int | None = None, seconds: float | None = None) -> Requests:
        """That many requests, or those of the first `seconds`. Raises SimulationInputError when neither is given."""
        if seed < 0:
            raise SimulationInputError(f"seed is {seed}: give a whole number from 0 on")
        # A source for each, so that a longer run, or another rate, leaves the lengths as they are.
        times, prompts, outputs, shared = (
            np.random.Generator(np.random.PCG64(s)) for s in np.random.SeedSequence(seed).spawn(4)
        )
        arrival = self._arrival(times, count, seconds)
        prompt_tokens = self.prompts.draw(len(arrival), prompts)
        offsets, hashes = np.zeros(len(arrival) + 1, np.int64), np.zeros(0, np.int64)
        if self.prefixes:
            offsets, hashes = self.prefixes.draw(prompt_tokens, shared)
        return Requests(
            arrival,
            prompt_tokens.astype(np.int32),
            self.outputs.draw(len(arrival), outputs).astype(np.int32),
            np.zeros(len(arrival), np.int8),
            offsets,
            hashes,
            BLOCK_TOKENS,
        )

    def _arrival(self, source: np.random.Generator, count: int | None, seconds: float | None) -> NDArray[np.float64]:
        if count is not None and count >= 0:
            return self.arrivals.first(count, source) if self.arrivals else np.zeros(count)
        if self.arrivals is None or seconds is None or not 0 <= seconds < math.inf:
            raise SimulationInputError("a workload needs a count of requests, or arrivals and seconds from 0 on")
        return self.arrivals.within(seconds, source)


def service_workload(
    work: ResolvedWorkload, max_model_length: int, *, requests_per_second: float | None = None, burstiness: float = 1.0
) -> Workload:
    """What `spec.workload` says, cut at the maximum model length as the planner does (planning/load/demand.py).

    Prompt and output together may still be too long for one request: `cut_outputs` of what is drawn, as vLLM stops
    there. Raises SimulationInputError: nobody says how many requests a second.
    """
    rate = requests_per_second or work.requests_per_second
    if rate is None:
        raise SimulationInputError("spec.workload.requestsPerSecond is missing: say how many requests a second arrive")
    longest = max(1, max_model_length - 1)
    return Workload(
        prompts=LogNormal(work.prompt.p50, work.prompt.p95, longest),
        outputs=LogNormal(work.output.p50, work.output.p95, longest),
        arrivals=Arrivals(rate, burstiness),
        prefixes=SharedPrefixes(work.shared_prefix) if work.shared_prefix else None,
    )


def cut_outputs(given: Requests, max_model_length: int) -> Requests:
    """The same requests with outputs that end at the maximum model length, one token at least."""
    room = np.maximum(1, max_model_length - given.prompt_tokens)
    values = {**vars(given), "output_tokens": np.minimum(given.output_tokens, room).astype(np.int32)}
    return Requests(**values)
