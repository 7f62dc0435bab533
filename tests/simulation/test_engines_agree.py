"""The compiled engine against the exact one: the same floats, in every request and every step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.simulation.engine import Engine
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.requests import Requests, requests
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.step_table import StepTable
from simulation.cases import COLUMNS, TABLE, TABLES, both, column, engines, steps_of, workloads


@settings(deadline=None, max_examples=300)
@given(workloads(), engines(), st.sampled_from([0, 0, 1, 5]), st.sampled_from(TABLES))
def test_requests_and_steps_are_the_same(
    work: Requests, engine: EngineSettings, clients: int, table: StepTable
) -> None:
    exact, _, fast = both(work, engine, clients, table)
    for name in COLUMNS:
        np.testing.assert_array_equal(column(exact.rows, name), getattr(fast, name), err_msg=name)
    mine = steps_of(exact)
    assert len(mine) == len(fast.steps) == fast.totals.steps
    found = [tuple(step.tolist()) for step in fast.steps]
    for (start, seconds, *counts), (fast_start, fast_seconds, *fast_counts) in zip(mine, found, strict=True):
        assert (start, counts) == (fast_start, fast_counts)
        assert seconds == pytest.approx(fast_seconds, rel=1e-9)


@settings(deadline=None, max_examples=100)
@given(workloads(), engines(), st.lists(st.floats(0, 3), max_size=20))
def test_stopping_on_the_way_changes_nothing(work: Requests, engine: EngineSettings, stops: list[float]) -> None:
    """Requests are sent when they leave, and the engine is looked at in between, as a router does."""
    whole, parts = FastEngine(work, engine, TABLE).run(), FastEngine(work, engine, TABLE)
    exact = Engine(work, engine, TABLE)
    events = sorted([(t, -1) for t in stops] + [(t, i) for i, t in enumerate(work.arrival.tolist())])
    for time, row in [*events, (np.inf, -1)]:
        for one in (parts, exact):
            one.run_until(time)
            if row >= 0:
                one.send(row, time)
        rep = parts.state.replicas[0]
        seen = (rep["running"] + rep["finishing"], rep["waiting"], rep["pending"])
        assert seen == (len(exact.running) + len(exact.finishing), len(exact.waiting), len(exact.coming))
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts.outcome(), name), err_msg=name)


@pytest.mark.parametrize("blocks", [11, 12, 13, 15])
def test_a_decode_stores_no_block_of_its_prompt(blocks: int) -> None:
    """The last holds a copy of a cached block, which is evicted while it decodes: its copy stays its own, in both."""
    work = requests(
        np.zeros(3),
        np.array([16, 32, 32]),
        np.array([100, 2, 100]),
        block_hashes=[[], [1, 2], [1, 2]],
        hash_tokens=16,
    )
    settings = EngineSettings(token_budget=512, max_num_seqs=4, kv_blocks=blocks, prefix_caching=True)
    exact, _, fast = both(work, settings)
    assert exact.rows[2].preempted == 1
    for name in COLUMNS:
        np.testing.assert_array_equal(column(exact.rows, name), getattr(fast, name), err_msg=name)
