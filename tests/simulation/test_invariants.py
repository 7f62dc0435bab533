"""What holds for every workload and engine, and what queueing theory says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.simulation.arrivals import Arrivals
from firsttoken.simulation.engine import Engine
from firsttoken.simulation.engine_rows import Served
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.outcome import Outcome
from firsttoken.simulation.requests import Requests, requests
from firsttoken.simulation.settings import EngineSettings, Stages
from firsttoken.simulation.workload import Between, LogNormal, Workload
from simulation.cases import TABLE, both, engines, workloads

WORKS, ENGINES, CLIENTS = workloads(), engines(), st.sampled_from([0, 0, 1, 5])


@settings(deadline=None, max_examples=60)
@given(WORKS, ENGINES, CLIENTS)
def test_nobody_is_lost_or_served_twice(work: Requests, engine: EngineSettings, clients: int) -> None:
    exact, fast, found = both(work, engine, clients)
    assert found.totals.finished == len(work)
    np.testing.assert_array_equal(fast.state.rows["generated"], work.output_tokens)
    assert [r.generated for r in exact.rows] == work.output_tokens.tolist()
    assert (found.arrival <= found.ready).all()
    assert (found.ready <= found.queued).all()
    assert (found.queued < found.first).all()
    assert ((found.first < found.finish) == (work.output_tokens > 1)).all()


class Losses(Engine):
    """Counts the tokens whose KV is given up, less those that are found again in the prefix cache."""

    lost = 0

    def _preempt(self, victim: Served) -> int:
        self.lost += victim.computed
        return super()._preempt(victim)

    def give(self, one: Served, tokens: int, blocks: int) -> None:
        if one.preempted and one not in self.running:
            self.lost -= one.computed
        super().give(one, tokens, blocks)


def padding(found: Outcome) -> int:
    """Tokens that static batches compute beyond their prompts: each is as long as the longest that started with it."""
    prompts = found.requests.prompt_tokens
    return sum(
        int((prompts[mine].max() - prompts[mine]).sum()) for mine in (found.queued == q for q in set(found.queued))
    )


@settings(deadline=None, max_examples=60)
@given(WORKS, ENGINES)
def test_tokens_are_conserved(work: Requests, engine: EngineSettings) -> None:
    """Each prompt token is computed or cached, each output token but the first is one decode; recompute adds to it."""
    found = both(work, engine)[2]
    prefilled, decoded = found.steps["prefill_tokens"].sum(), found.steps["decode_tokens"].sum()
    asked, wanted = (work.prompt_tokens - found.cached).sum(), (work.output_tokens - 1).sum()
    losses = Losses(work, engine, TABLE)
    losses.run()
    assert prefilled + decoded == asked + wanted + losses.lost + (padding(found) if engine.static_batching else 0)
    assert decoded <= wanted
    assert losses.lost or decoded == wanted
    bins = found.timeline
    assert bins["prefill_tokens"].sum() == pytest.approx(prefilled)
    assert bins["decode_tokens"].sum() == pytest.approx(decoded)
    assert bins["seconds"].sum() == pytest.approx(found.totals.seconds)
    assert bins["preempted"].sum() <= found.totals.preemptions == found.preempted.sum()


@settings(deadline=None, max_examples=60)
@given(WORKS, ENGINES, CLIENTS)
def test_kv_is_never_above_capacity_and_all_given_back(work: Requests, engine: EngineSettings, clients: int) -> None:
    exact, fast, found = both(work, engine, clients)
    assert 0 < found.steps["kv"].min() <= found.steps["kv"].max() == found.totals.peak_kv_blocks <= engine.kv_blocks
    assert max(s.kv_blocks for s in exact.steps) == found.totals.peak_kv_blocks
    rep = fast.state.replicas[0]
    assert rep["free_blank"] + rep["free_lru"] == engine.kv_blocks == exact.pool.free
    held = fast.state.nodes[0]
    assert held["left"].sum() + held["fillers"].sum() + rep["tail_fillers"] == rep["free_lru"]
    assert not held["refs"].any()
    assert found.totals.peak_running <= engine.most_running


@settings(deadline=None, max_examples=60)
@given(WORKS, ENGINES)
def test_first_come_first_served_within_a_priority(work: Requests, engine: EngineSettings) -> None:
    """First at the engine; with priorities at the API server, too, where who comes first may reach the engine last."""
    found = both(work, engine)[2]
    if not engine.priorities:
        assert (np.diff(found.queued[np.argsort(found.ready, kind="stable")]) >= 0).all()
        return
    before = (found.arrival[:, None] < found.arrival) & (found.ready[:, None] < found.ready)
    same = work.priority[:, None] == work.priority
    assert (found.queued[:, None] <= found.queued)[before & same].all()


@settings(deadline=None, max_examples=40)
@given(WORKS, ENGINES, CLIENTS)
def test_time_in_steps_is_time_of_requests(work: Requests, engine: EngineSettings, clients: int) -> None:
    """Little's law for the running, exactly: what steps count over time is what requests spend in them."""
    found = both(work, EngineSettings(**{**vars(engine), "schedule_ahead": False, "kv_blocks": 2000}), clients)[2]
    spent = (found.finish - found.queued).sum()
    assert (found.steps["running"] * found.steps["seconds"]).sum() == pytest.approx(spent)
    assert found.timeline["running"].sum() == pytest.approx(spent)


@pytest.mark.parametrize("ahead", [False, True])
def test_littles_law(ahead: bool) -> None:
    """Requests seen at regular moments, on average: arrival rate times the time each is there."""
    work = Workload(LogNormal(100, 400, 500), LogNormal(30, 100, 200), Arrivals(8.0)).requests(5, count=4000)
    engine = FastEngine(work, EngineSettings(256, 16, 1500, schedule_ahead=ahead), TABLE)
    engine.send_all()
    rep, seen, last = engine.state.replicas[0], [], float(work.arrival[-1])
    for moment in np.arange(0, last, 0.05):
        engine.run_until(moment)
        seen.append(rep["running"] + rep["finishing"] + rep["waiting"])
    there = engine.outcome().finish - work.arrival
    done = ~np.isnan(there)
    rate = done.sum() / last
    assert np.mean(seen) == pytest.approx(rate * there[done].mean(), rel=0.02)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_waiting_is_that_of_an_m_d_1_queue(load: float) -> None:
    """Single tokens, one at a time: each takes D, and waits W = rho D / (2 (1 - rho)) on average (Pollaczek-Khinchin).

    The deviation of a mean over n waits is about W sqrt(2 (1 + rho) / (1 - rho)^2 / n) for large rho; five of them.
    """
    service = TABLE.step_seconds([(0, 1)], [])[0]
    count = 200_000
    work = Workload(Between(1, 1), Between(1, 1), Arrivals(load / service)).requests(11, count=count)
    found = FastEngine(work, EngineSettings(512, 1, 100, schedule_ahead=False), TABLE).run()
    expected = load * service / (2 * (1 - load))
    noise = 5 * np.sqrt(2 * (1 + load) / (1 - load) ** 2 / count)
    assert (found.queued - found.ready).mean() == pytest.approx(expected, rel=noise)
    assert found.first - found.queued == pytest.approx(service)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_the_api_server_is_one_process_and_takes_one_request_at_a_time(load: float) -> None:
    """An M/D/1 queue before the engine's own, as above; what is beyond its rate waits ever longer."""
    service, count = 0.0132, 100_000
    engine = EngineSettings(512, 32, 1000, stages=Stages(input_seconds=0.013, input_token_seconds=0.0002))
    work = Workload(Between(1, 1), Between(1, 1), Arrivals(load / service)).requests(11, count=count)
    found = FastEngine(work, engine, TABLE).run()
    noise = 5 * np.sqrt(2 * (1 + load) / (1 - load) ** 2 / count)
    expected = load * service / (2 * (1 - load))
    assert (found.ready - work.arrival - service).mean() == pytest.approx(expected, rel=noise)
    over = FastEngine(replace(work, arrival=work.arrival * load / 2), engine, TABLE).run()
    assert over.times()["input"][-1] == pytest.approx(count * service / 2, rel=0.02)


def test_the_queue_ends_when_a_step_is_decided_and_not_when_it_starts() -> None:
    """As vLLM stamps SCHEDULED: who comes during step k is decided on when k + 1 starts, and runs in k + 2 (M2.3)."""
    step = TABLE.step_seconds([], [100])[0]
    work = requests(np.array([0.0, 20.5 * step]), np.array([50, 10]), np.array([200, 1]))
    for ahead in (True, False):
        found = both(work, EngineSettings(512, 4, 200, schedule_ahead=ahead))[2]
        starts = found.steps["start"]
        ends = starts + found.steps["seconds"]
        under_way = int(np.searchsorted(starts, work.arrival[1], side="right")) - 1
        assert found.queued[1] == ends[under_way]
        assert found.first[1] == ends[under_way + (2 if ahead else 1)]


@settings(deadline=None, max_examples=20)
@given(WORKS, ENGINES)
def test_the_same_input_gives_the_same_bytes(work: Requests, engine: EngineSettings) -> None:
    one, other = (FastEngine(work, engine, TABLE, log=1000) for _ in range(2))
    assert one.run().finish.tobytes() == other.run().finish.tobytes()
    assert one.state.timeline.tobytes() == other.state.timeline.tobytes()
    assert one.state.log.tobytes() == other.state.log.tobytes()
