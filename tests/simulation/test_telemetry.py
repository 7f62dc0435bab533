"""The contract filled from simulated engines."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.measurement.contract import PHASES, SERIES
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.live_engine import LiveEngine
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.telemetry import COLOCATED, Histogram, Telemetry, book
from simulation.cases import TABLE, engines, workloads

BOUNDS = (64, 256)
OLDEST = "firsttoken_oldest_waiting_seconds"


@given(st.lists(st.floats(0, 100), max_size=50))
def test_a_histogram_counts_one_by_one_as_it_counts_many(values: list[float]) -> None:
    bounds = SERIES["firsttoken_ttft_seconds"].bounds
    one, many = Histogram(bounds), Histogram(bounds)
    for value in values:
        one.add(value)
    many.add_all(np.array([*values, np.nan]))
    assert one.counts == many.counts
    assert one.total == pytest.approx(many.total)
    assert one.cumulated()[-1] == one.count == len(values)
    for bound, count in zip(bounds, one.cumulated(), strict=False):
        assert count == sum(value <= bound for value in values)


@settings(deadline=None, max_examples=50)
@given(workloads(), engines())
def test_a_run_is_booked_as_its_requests_would_be(work: Requests, engine: EngineSettings) -> None:
    outcome = FastEngine(work, engine, TABLE).run()
    together, single = Telemetry(BOUNDS), Telemetry(BOUNDS)
    book(together, outcome)
    times = outcome.times()
    for i in range(len(work)):
        prompt, output = int(work.prompt_tokens[i]), int(work.output_tokens[i])
        stages = {stage: float(times[stage][i]) for stage in COLOCATED}
        single.first_token(prompt, int(outcome.cached[i]), float(times["ttft"][i]), stages, stream=True)
        tpot = float(times["tpot"][i]) if output > 1 else None
        single.ended(prompt, "ok", stream=True, tpot=tpot, kv_tokens=prompt + output - 1)
    assert together.values == single.values
    assert together.histograms.keys() == single.histograms.keys()
    for key, histogram in together.histograms.items():
        assert histogram.counts == single.histograms[key].counts, key
        assert histogram.total == pytest.approx(single.histograms[key].total)


def test_only_buckets_that_saw_traffic_have_series_and_these_begin_at_zero() -> None:
    found = Telemetry(BOUNDS)
    assert not any("prompt_tokens" in series.labels for series, _, _ in found.samples())
    found.in_use(100, stream=True)
    mine = [(series, labels, value) for series, labels, value in found.samples() if "prompt_tokens" in series.labels]
    assert {labels[0] for _, labels, _ in mine} == {"64-256"}
    assert all((value.count if isinstance(value, Histogram) else value) == 0 for _, _, value in mine)
    outcomes = {labels[1] for series, labels, _ in mine if series.name == "firsttoken_requests_total"}
    assert outcomes == {"ok", "client_gone", "error", "timeout"}


def test_gauges_say_how_the_engine_stands() -> None:
    """At every moment, though the engine has decided up to two steps ahead of it; with one token to make, too."""
    engine, found = LiveEngine(EngineSettings(64, 2, 100, long_prefill_threshold=32), TABLE), Telemetry(BOUNDS)
    served = [engine.submit(60, output, 1.0) for output in (50, 1, 1, 20)]
    seen, steps = [], []
    for now in np.arange(1.0, 3.0, 0.003).tolist():
        engine.run_until(now)
        steps += engine.take()[1]
        found.state(engine, now)
        numbers = [found.values["firsttoken_running_requests", (phase,)] for phase in PHASES]
        seen.append((now, *numbers, engine.waiting_requests(now), found.values[OLDEST, ()]))
    assert all(one.finish < 3.0 for one in served)
    for now, prefill, decode, waiting, oldest in seen:
        assert prefill == sum(one.queued < now < one.first for one in served), now
        assert decode == sum(one.first <= now < one.finish for one in served), now
        assert waiting == sum(one.queued >= now for one in served), now
        assert oldest == pytest.approx(now - 1.0 if waiting else 0.0)
    assert {row[1] for row in seen} == {0, 1, 2}
    for step in steps:
        found.step(step)
    assert found.histograms["firsttoken_step_tokens", ("prefill",)].total == 240
    assert found.values["firsttoken_token_budget", ()] == 64


def test_a_preempted_request_prefills_again_until_it_has_recomputed() -> None:
    engine = LiveEngine(EngineSettings(64, 2, 16, prefix_caching=False, full_prompt_fits=False), TABLE)
    served = [engine.submit(96, 80, 0.0) for _ in range(2)]
    now, again = 0.0, 0
    while engine.next_time(now) is not None:
        now += 0.002
        engine.run_until(now)
        again += engine.phases(now)[0] > 0 and all(one.first <= now for one in served)
    assert engine.allocation_failures
    assert again
    assert engine.phases(now) == (0, 0)
