"""Requests in blocks against the same in one piece."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.results import Summary, summarize
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.stream import play
from simulation.cases import TABLE, engines, workloads


def cut(work: Requests, places: list[int]) -> list[Requests]:
    """The work in blocks that begin at these rows."""
    edges = [0, *sorted({p for p in places if 0 < p < len(work)}), len(work)]
    return [work.take(np.arange(a, b)) for a, b in pairwise(edges)]


@settings(deadline=None, max_examples=150)
@given(workloads(), engines(), st.lists(st.integers(1, 39), max_size=5))
def test_blocks_change_nothing(work: Requests, engine: EngineSettings, places: list[int]) -> None:
    outcome = FastEngine(work, engine, TABLE).run()
    summary = Summary()
    totals = play(cut(work, places), engine, TABLE, summary)
    assert totals == outcome.totals
    expected, found = summarize(outcome)["all"], summary.buckets()["all"]
    assert (found.requests, found.preemptions) == (expected.requests, expected.preemptions)
    assert found.hit_rate == expected.hit_rate
    for name, times in expected.times.items():
        assert found.times[name].percentiles == pytest.approx(times.percentiles, nan_ok=True), name


def test_blocks_must_follow_each_other() -> None:
    work = Requests(
        np.array([1.0]), np.array([10], np.int32), np.array([1], np.int32), np.zeros(1, np.int8), np.zeros(2, np.int64),
        np.zeros(0, np.int64),
    )  # fmt: skip
    early = Requests(**{**vars(work), "arrival": np.array([0.5])})
    with pytest.raises(SimulationInputError, match=r"begins at 0\.5 s, before the last one ends"):
        play([work, early], EngineSettings(512, 8, 100), TABLE, Summary())
    with pytest.raises(SimulationInputError, match="no requests"):
        play([], EngineSettings(512, 8, 100), TABLE, Summary())
