"""The telemetry contract filled from a simulated engine: counts in memory, as the runtime beside a real one keeps them.

Every time is booked when it is known: TTFT, its stages and the prompt at the first token, so that a request that hangs
later shows; the outcome, TPOT and KV at the end. `in_use` makes a bucket's series, all at 0, when a request arrives.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from firsttoken.measurement.contract import BUCKET, OUTCOMES, PHASES, SERIES, STAGES, VERSION, Series, bucket_of
from firsttoken.simulation.engine_rows import Step
from firsttoken.simulation.fleet_outcome import FleetOutcome
from firsttoken.simulation.live_engine import LiveEngine
from firsttoken.simulation.outcome import Outcome

Labels = tuple[str, ...]  # values, in the order of Series.labels
COLOCATED = tuple(stage for stage in STAGES if stage != "transfer")


class Histogram:
    """Counts by upper bound (the last is without one) and the sum, as Prometheus has them but not yet cumulated."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    @property
    def count(self) -> int:
        """Values added."""
        return sum(self.counts)

    def add(self, value: float, times: int = 1) -> None:
        """One value, or the same several times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def add_all(self, values: NDArray[np.float64]) -> None:
        """Many; NaN is left out."""
        known = values[~np.isnan(values)]
        places = np.searchsorted(self.bounds, known, side="left")
        more = np.bincount(places, minlength=len(self.counts))
        self.counts = [old + int(new) for old, new in zip(self.counts, more, strict=True)]
        self.total += float(known.sum())

    def cumulated(self) -> list[int]:
        """Values at or below each bound, the last of all."""
        found = np.cumsum(self.counts)
        return [int(one) for one in found]


class Telemetry:
    """All series of one engine. `bounds` of the prompt-length buckets, tokens; `stages` that this engine has."""

    def __init__(
        self, bounds: Sequence[int], *, stages: Sequence[str] = COLOCATED, backend: str = "", generation: int = 0
    ) -> None:
        self.bounds = bounds
        self.stages = tuple(stages)
        self.histograms: dict[tuple[str, Labels], Histogram] = {}
        self.values: dict[tuple[str, Labels], float] = {}
        for name, fixed in (
            ("firsttoken_kv_allocation_failures_total", 0),
            ("firsttoken_token_budget", 0),
            ("firsttoken_oldest_waiting_seconds", 0),
            ("firsttoken_settings_generation", generation),
        ):
            self.values[name, ()] = fixed
        self.values["firsttoken_attention_backend_info", (backend or "unknown",)] = 1
        self.values["firsttoken_contract_info", (VERSION,)] = 1
        for phase in PHASES:
            self.histograms["firsttoken_step_tokens", (phase,)] = Histogram(SERIES["firsttoken_step_tokens"].bounds)
            self.values["firsttoken_running_requests", (phase,)] = 0

    def in_use(self, prompt: int, *, stream: bool) -> str:
        """The bucket of a prompt that has arrived; its series are there from now on."""
        bucket = bucket_of(prompt, self.bounds)
        told = {BUCKET: (bucket,), "stream": (_text(stream),), "stage": self.stages, "outcome": OUTCOMES}
        for series in SERIES.values():
            if BUCKET in series.labels:
                for labels in product(*(told[name] for name in series.labels)):
                    self._make(series, labels)
        return bucket

    def _make(self, series: Series, labels: Labels) -> None:
        if series.kind == "histogram":
            self.histograms.setdefault((series.name, labels), Histogram(series.bounds))
        else:
            self.values.setdefault((series.name, labels), 0)

    def first_token(self, prompt: int, cached: int, ttft: float, stages: Mapping[str, float], *, stream: bool) -> None:
        """A request's first token has reached its client. Tokens and seconds."""
        bucket = self.in_use(prompt, stream=stream)
        self.histograms["firsttoken_ttft_seconds", (bucket, _text(stream))].add(ttft)
        for stage, seconds in stages.items():
            self.histograms["firsttoken_ttft_stage_seconds", (bucket, stage)].add(seconds)
        self.histograms["firsttoken_prompt_tokens", (bucket,)].add(prompt)
        self.values["firsttoken_cached_prompt_tokens_total", (bucket,)] += cached

    def ended(self, prompt: int, outcome: str, *, stream: bool, tpot: float | None = None, kv_tokens: int = 0) -> None:
        """A request is over. `tpot`: mean seconds of a token after the first, None with fewer than two tokens."""
        bucket = self.in_use(prompt, stream=stream)
        self.values["firsttoken_requests_total", (bucket, outcome)] += 1
        if tpot is not None:
            self.histograms["firsttoken_tpot_seconds", (bucket,)].add(tpot)
        if kv_tokens:
            self.histograms["firsttoken_request_kv_tokens", (bucket,)].add(kv_tokens)

    def step(self, step: Step) -> None:
        """One step of the engine."""
        for phase, tokens in (("prefill", step.prefill_tokens), ("decode", step.decode_tokens)):
            if tokens:
                self.histograms["firsttoken_step_tokens", (phase,)].add(tokens)

    def state(self, engine: LiveEngine, now: float) -> None:
        """The gauges, as the engine stands at `now`, seconds."""
        for phase, number in zip(PHASES, engine.phases(now), strict=True):
            self.values["firsttoken_running_requests", (phase,)] = number
        self.values["firsttoken_token_budget", ()] = engine.settings.token_budget
        self.values["firsttoken_oldest_waiting_seconds", ()] = engine.oldest_waiting(now)
        self.values["firsttoken_kv_allocation_failures_total", ()] = engine.allocation_failures

    def samples(self) -> Iterator[tuple[Series, Labels, Histogram | float]]:
        """Every series that is exported now, by name, in a fixed order."""
        found: dict[tuple[str, Labels], Histogram | float] = {**self.histograms, **self.values}
        for name, labels in sorted(found):
            yield SERIES[name], labels, found[name, labels]


def book(telemetry: Telemetry, outcome: Outcome | FleetOutcome, *, stream: bool = True) -> None:
    """All requests of a finished run, as if each had been booked on its own. Steps are not in an outcome."""
    given, times = outcome.requests, outcome.times()
    places = np.searchsorted(np.asarray(telemetry.bounds), given.prompt_tokens, side="left")
    for place in np.unique(places):
        here = places == place
        bucket = telemetry.in_use(int(given.prompt_tokens[here][0]), stream=stream)
        chosen, done = here & ~np.isnan(outcome.first), here & ~np.isnan(outcome.finish)
        held, values = telemetry.histograms, telemetry.values
        held["firsttoken_ttft_seconds", (bucket, _text(stream))].add_all(times["ttft"][chosen])
        held["firsttoken_prompt_tokens", (bucket,)].add_all(given.prompt_tokens[chosen].astype(float))
        held["firsttoken_tpot_seconds", (bucket,)].add_all(times["tpot"][done])
        # The last token is never an input, so its KV is not kept.
        lengths = given.prompt_tokens[done] + given.output_tokens[done] - 1.0
        held["firsttoken_request_kv_tokens", (bucket,)].add_all(lengths)
        for stage in telemetry.stages:
            held["firsttoken_ttft_stage_seconds", (bucket, stage)].add_all(times[stage][chosen])
        values["firsttoken_cached_prompt_tokens_total", (bucket,)] += int(outcome.cached[chosen].sum())
        values["firsttoken_requests_total", (bucket, "ok")] += int(done.sum())


def _text(stream: bool) -> str:
    return "true" if stream else "false"
