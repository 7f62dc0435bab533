"""Summaries: buckets, stages that add up, quantiles within what is promised."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.quantiles import Kept, LogHistogram
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.results import STAGES, Summary, summarize
from firsttoken.simulation.settings import EngineSettings
from simulation.cases import TABLE, engines, workloads

TIMES = st.lists(st.floats(1e-5, 1e4), min_size=1, max_size=200)


@given(TIMES, st.floats(0.01, 1))
def test_quantiles_of_the_histogram_are_within_one_percent(times: list[float], share: float) -> None:
    exact, coarse = Kept(), LogHistogram()
    for one in (exact, coarse):
        one.add(np.array([*times, math.nan]))
    assert exact.count == coarse.count == len(times)
    assert exact.quantile(share) == sorted(times)[math.ceil(share * len(times)) - 1]
    assert coarse.quantile(share) == pytest.approx(exact.quantile(share), rel=0.01)
    assert coarse.mean == pytest.approx(exact.mean)


def test_no_time_has_no_quantile_and_zero_is_zero() -> None:
    for one in (Kept(), LogHistogram()):
        assert math.isnan(one.quantile(0.5))
        assert math.isnan(one.mean)
        one.add(np.zeros(3))
        assert one.quantile(0.99) == 0


@settings(deadline=None, max_examples=40)
@given(workloads(), engines())
def test_every_request_is_in_one_bucket_and_stages_add_up(work: Requests, engine: EngineSettings) -> None:
    outcome = FastEngine(work, engine, TABLE).run()
    found = summarize(outcome, (64, 128))
    assert list(found) == ["0-64", "64-128", "128+", "all"]
    assert sum(found[name].requests for name in ("0-64", "64-128", "128+")) == found["all"].requests == len(work)
    assert found["0-64"].requests == (work.prompt_tokens <= 64).sum()
    total = found["all"]
    assert sum(total.times[s].mean for s in STAGES) == pytest.approx(total.times["ttft"].mean)
    assert total.preemptions == outcome.totals.preemptions
    assert 0 <= total.hit_rate < 1


def test_unended_requests_are_left_out() -> None:
    work = Requests(
        np.array([0.0, 0.0]), np.array([10, 10], np.int32), np.array([1, 500], np.int32), np.zeros(2, np.int8),
        np.zeros(3, np.int64), np.zeros(0, np.int64),
    )  # fmt: skip
    engine = FastEngine(work, EngineSettings(512, 8, 100), TABLE)
    engine.send_all()
    engine.run_until(0.5)
    summary = Summary()
    summary.add(engine.outcome())
    assert summary.buckets()["all"].requests == 1
    assert math.isnan(summary.buckets()["all"].tpot.p50)
