"""The engine that gets its requests one by one: the exact engine's times, whenever it is looked at, and clean ends."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.simulation.engine import Engine
from firsttoken.simulation.engine_rows import Served
from firsttoken.simulation.live_engine import LiveEngine
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.settings import EngineSettings
from simulation.cases import TABLE, engines, workloads

TIMES = ("arrival", "ready", "queued", "first", "finish", "preempted", "cached")


def hashes_of(work: Requests, block: int, row: int) -> list[int]:
    """One for each block of the engine; a hash of more tokens stands for its last block."""
    numbers = work.dense_hashes()[0].tolist()[work.hash_offsets[row] : work.hash_offsets[row + 1]]
    return numbers if work.hash_tokens == block else []


def submitted(engine: LiveEngine, work: Requests, row: int) -> Served:
    return engine.submit(
        int(work.prompt_tokens[row]), int(work.output_tokens[row]), float(work.arrival[row]),
        priority=int(work.priority[row]), hashes=hashes_of(work, engine.settings.block_tokens, row),
    )  # fmt: skip


def no_hashes(work: Requests) -> Requests:
    return Requests(
        work.arrival, work.prompt_tokens, work.output_tokens, work.priority, work.hash_offsets * 0, work.hashes[:0], 16
    )


@settings(deadline=None, max_examples=100)
@given(workloads(), engines(), st.lists(st.floats(0, 3), max_size=20))
def test_times_are_those_of_the_exact_engine(work: Requests, engine: EngineSettings, looks: list[float]) -> None:
    if work.hash_tokens != engine.block_tokens:
        work = no_hashes(work)
    exact = Engine(work, engine, TABLE).run()
    live, found, tokens, steps = LiveEngine(engine, TABLE), [], [], 0
    for time, row in sorted([(t, -1) for t in looks] + [(t, i) for i, t in enumerate(work.arrival.tolist())]):
        live.run_until(time)
        more, made = live.take()
        tokens, steps = tokens + more, steps + len(made)
        if row >= 0:
            found.append(submitted(live, work, row))
    live.run_until(float("inf"))
    more, made = live.take()
    for name in TIMES:
        assert [getattr(r, name) for r in found] == [getattr(r, name) for r in exact], name
    tokens += more
    assert [t.time for t in tokens] == sorted(t.time for t in tokens)
    for one in found:
        own = [t for t in tokens if t.request is one]
        assert [t.number for t in own] == list(range(1, one.output + 1))
        assert (own[0].time, own[-1].time) == (one.first, one.finish)
    assert not live.steps
    assert live.next_time(1e9) is None


@settings(deadline=None, max_examples=100)
@given(workloads(), engines(), st.lists(st.tuples(st.floats(0, 3), st.integers(0, 39)), max_size=20))
def test_who_leaves_gives_everything_back(
    work: Requests, engine: EngineSettings, leaving: list[tuple[float, int]]
) -> None:
    """Wherever each is then: on its way, waiting, running, preempted, or over."""
    live, found, gone = LiveEngine(engine, TABLE), {}, set()
    events: list[Any] = [(t, 0, i) for i, t in enumerate(work.arrival.tolist())] + [(t, 1, i) for t, i in leaving]
    for time, kind, row in sorted(events):
        live.run_until(time)
        if kind == 0:
            found[row] = submitted(live, work, row)
        elif row in found:
            live.abort(found[row])
            gone.add(row)
    live.run_until(float("inf"))
    assert live.pool.used == 0
    for row, one in found.items():
        assert row in gone or one.generated == one.output


def test_the_next_time_is_that_of_the_next_step_or_arrival() -> None:
    live = LiveEngine(EngineSettings(token_budget=64, max_num_seqs=4, kv_blocks=100), TABLE)
    assert live.next_time(0.0) is None
    one = live.submit(100, 2, 5.0)
    live.run_until(1.0)
    assert live.next_time(1.0) == one.ready >= 5.0
    now = one.ready
    while one.generated != one.output:
        following = live.next_time(now)
        assert following is not None
        assert following >= now
        now = following + 1e-9
        live.run_until(now)


def test_settings_change_between_steps() -> None:
    live = LiveEngine(EngineSettings(token_budget=256, max_num_seqs=4, kv_blocks=200), TABLE)
    live.submit(512, 1, 0.0)
    live.run_until(float("inf"))
    assert [step.prefill_tokens for step in live.take()[1]] == [256, 256]
    live.settings = EngineSettings(token_budget=128, max_num_seqs=4, kv_blocks=200)
    live.submit(512, 1, 10.0)
    live.run_until(float("inf"))
    assert [step.prefill_tokens for step in live.take()[1]] == [128] * 4
