"""The compiled engine against the exact one: the same floats, in every request and every step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.simulation.engine import Engine
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.requests import Requests, requests
from firsttoken.simulation.settings import EngineSettings, Stages
from firsttoken.simulation.state import AWAITED
from firsttoken.simulation.step_table import StepTable, step_table
from planning.timing.models import LLAMA_8B, step_model
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
def test_a_copy_takes_over_where_the_cached_block_is_evicted(blocks: int) -> None:
    """The last holds a copy of a cached block, which is evicted while it decodes."""
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


@settings(deadline=None, max_examples=100)
@given(workloads(), engines())
def test_naming_blocks_that_nobody_shares_changes_nothing(work: Requests, engine: EngineSettings) -> None:
    """Whoever is preempted finds its own blocks again, with hashes and without; those of its output have none here."""
    counts = -(-work.prompt_tokens // 16)
    own = [list(range(1000 * i, 1000 * i + int(n))) for i, n in enumerate(counts)]
    lengths = work.prompt_tokens, work.output_tokens
    plain, named = (
        FastEngine(requests(work.arrival, *lengths, priority=work.priority, block_hashes=h), engine, TABLE).run()
        for h in (None, own)
    )
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(plain, name), getattr(named, name), err_msg=name)


def test_a_preempted_request_computes_only_what_is_lost() -> None:
    """Two requests of 30 blocks each outgrow 62 blocks; the second waits, and finds all that the first didn't take."""
    work = requests(np.zeros(2), np.full(2, 480), np.full(2, 40))
    steps = {}
    for caching in (True, False):
        engine = EngineSettings(2048, 2, 62, prefix_caching=caching, schedule_ahead=False)
        fast = FastEngine(work, engine, step_table(step_model(LLAMA_8B, "nvidia-a100-80gb"), 2048, 2), log=1000)
        found = fast.run()
        assert found.preempted.tolist() == [0, 1]
        steps[caching] = found.steps["prefill_tokens"].tolist()
    # Preempted with 496 tokens; the first goes on to 519 tokens, 33 blocks, and the second's last two blocks are taken.
    assert [n for n in steps[False] if n] == [960, 497]
    assert [n for n in steps[True] if n] == [960, 497 - 29 * 16]


@pytest.mark.parametrize("priorities", [True, False])
def test_equal_priorities_go_by_arrival_at_the_api_server(priorities: bool) -> None:
    """Which is one process: the long prompt that left its client first reaches the engine first, too."""
    work = requests([0.0, 0.01, 0.02], [16, 480, 16], [30, 2, 2])
    engine = EngineSettings(512, 1, 100, priorities=priorities, stages=Stages(input_token_seconds=1e-4))
    exact, _, fast = both(work, engine)
    assert exact.rows[1].ready < exact.rows[2].ready
    assert fast.queued[1] < fast.queued[2]
    for name in COLUMNS:
        np.testing.assert_array_equal(column(exact.rows, name), getattr(fast, name), err_msg=name)


@pytest.mark.parametrize(("blocks", "waits"), [(20, True), (24, False)])
def test_kv_from_elsewhere_leaves_room_for_prompts_under_way(blocks: int, waits: bool) -> None:
    """A prompt of 10 blocks is computed in chunks of two; KV of 12 more may come only when both have all their room."""
    work = requests(np.zeros(2), [160, 192], [2, 2])
    engine = EngineSettings(
        64, 4, blocks, long_prefill_threshold=32, prefix_caching=False, full_prompt_fits=False, schedule_ahead=False
    )
    exact, fast = Engine(work, engine, TABLE), FastEngine(work, engine, TABLE)
    exact.rows[1].remote = fast.state.rows["remote"][1] = AWAITED
    exact.run()
    found = fast.run()
    assert (exact.rows[1].queued >= exact.rows[0].finish) == waits
    for name in COLUMNS:
        np.testing.assert_array_equal(column(exact.rows, name), getattr(found, name), err_msg=name)
