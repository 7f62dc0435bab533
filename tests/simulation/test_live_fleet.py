"""A fleet that changes while it runs: without changes it is the fleet, and changes cost what they must, no more."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as given_by
from hypothesis import settings as tried
from hypothesis import strategies as st

from firsttoken.simulation.arrivals import Arrivals
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fleet import Fleet
from firsttoken.simulation.fleet_shape import Pool, Replica, Revision
from firsttoken.simulation.live_fleet import LiveFleet, Member, slowed
from firsttoken.simulation.policies import CacheAware, LeastLoaded, Policy, PowerOfTwo, RoundRobin
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.step_table import step_table
from firsttoken.simulation.workload import Between, SharedPrefixes, Workload
from planning.timing.models import LLAMA_8B, step_model
from simulation.cases import TABLE

pytestmark = pytest.mark.timeout(600)  # the first run compiles

REPLICA = Replica(EngineSettings(512, 32, 2000), TABLE)
POLICIES = [RoundRobin(), LeastLoaded(), PowerOfTwo(), CacheAware()]


def load(rate: float = 8.0, seconds: float = 60.0) -> Requests:
    prefixes = SharedPrefixes(64, count=5)
    return Workload(Between(50, 900), Between(5, 200), Arrivals(rate), prefixes).requests(3, seconds=seconds)


def play(fleet: LiveFleet, pool: int, until: float, first: int = 0) -> int:
    """Everything that arrives before `until` to one pool; the number of the next request."""
    last = int(np.searchsorted(fleet.requests.arrival, until))
    fleet.serve(first, np.full(last - first, pool), until)
    return last


def running(live: LiveFleet, member: Member, now: float) -> int:
    """Requests of a replica that were admitted and have not ended; where none is preempted."""
    return int((live.rows["queued"][live.unfinished(member, now)] <= now).sum())


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)
def test_a_fleet_that_does_not_change_is_the_fleet(policy: Policy) -> None:
    given = load()
    fixed = Fleet(given, [Revision(Pool((REPLICA,) * 3, policy))], seed=5).run()
    live = LiveFleet(given, seed=5)
    pool = live.add_pool(policy)
    live.change([Member(pool, REPLICA) for _ in range(3)], 0.0)
    play(live, pool, np.inf)
    assert np.array_equal(live.rows["first"], fixed.first)
    assert np.array_equal(live.rows["finish"], fixed.finish)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)
def test_stretches_and_arranging_anew_change_nothing(policy: Policy) -> None:
    """A second pool that comes in front or behind moves replicas in the arrays, with all they have."""
    given = load(rate=20.0)
    fixed = Fleet(given, [Revision(Pool((REPLICA,) * 3, policy))], seed=5).run()
    live = LiveFleet(given, seed=5)
    idle, pool = live.add_pool(RoundRobin()), live.add_pool(policy)
    own, first = [Member(pool, REPLICA) for _ in range(3)], 0
    live.change(own, 0.0)
    for number in range(1, 60):
        first = play(live, pool, float(number), first)
        others = [Member(idle, Replica(EngineSettings(64, 8, 500), TABLE)) for _ in range(number % 3)]
        assert not len(live.change([*others, *own], float(number)))
    play(live, pool, np.inf, first)
    assert np.array_equal(live.rows["finish"], fixed.finish)


def test_a_replica_that_drains_finishes_what_it_has_and_gets_nothing_new() -> None:
    live = LiveFleet(load())
    pool = live.add_pool()
    leaving, staying = Member(pool, REPLICA), Member(pool, REPLICA)
    live.change([leaving, staying], 0.0)
    first = play(live, pool, 30.0)
    had = live.load(leaving)
    assert had
    leaving.routed = False
    live.change([leaving, staying], 30.0)
    first = play(live, pool, 31.0, first)
    assert live.load(leaving) <= had
    play(live, pool, np.inf, first)
    assert live.load(leaving) == 0
    assert not np.isnan(live.rows["finish"]).any()


def test_a_replica_that_dies_fails_what_it_has_and_nothing_else() -> None:
    live = LiveFleet(load())
    pool = live.add_pool()
    dying, staying = Member(pool, REPLICA), Member(pool, REPLICA)
    live.change([dying, staying], 0.0)
    first = play(live, pool, 30.0)
    had = live.load(dying)
    failed = live.change([staying], 30.0)
    assert len(failed) == had > 0
    play(live, pool, np.inf, first)
    done = np.delete(live.rows["finish"], failed)
    assert not np.isnan(done).any()
    assert not (live.rows["finish"][failed] <= 30.0).any()


def test_nobody_serves_where_no_replica_is_routed() -> None:
    live = LiveFleet(load())
    pool = live.add_pool()
    first = play(live, pool, 10.0)
    assert (live.pool[:first] == -1).all()
    member = Member(pool, REPLICA)
    live.change([member], 10.0)
    play(live, pool, np.inf, first)
    assert np.isnan(live.rows["finish"][:first]).all()
    assert not np.isnan(live.rows["finish"][first:]).any()


def test_a_slow_clock_slows_steps_and_a_slow_prefill_only_those_with_prompts() -> None:
    both = TABLE.step_seconds([(0, 256)], [100, 200])[0], TABLE.step_seconds([], [100, 200])[0]
    slow, prefill = slowed(TABLE, steps=2.0), slowed(TABLE, prefill=3.0)
    assert slow.step_seconds([(0, 256)], [100, 200])[0] == pytest.approx(2 * both[0])
    assert slow.step_seconds([], [100, 200])[0] == pytest.approx(2 * both[1])
    assert prefill.step_seconds([(0, 256)], [100, 200])[0] == pytest.approx(3 * both[0])
    assert prefill.step_seconds([], [100, 200])[0] == both[1]


def test_live_settings_below_what_runs_leave_it_running() -> None:
    """A cap and a budget below the running requests: nobody is lost, nobody joins, and a step has no more tokens."""
    given = load(rate=20.0)
    live = LiveFleet(given)
    pool = live.add_pool()
    member = Member(pool, REPLICA)
    live.change([member], 0.0)
    first = play(live, pool, 10.0)
    before = running(live, member, 10.0)
    assert before > 8
    low = replace(REPLICA.settings, token_budget=8, decode_cap=4, long_prefill_threshold=2)
    member.replica = REPLICA._replace(settings=low)
    live.change([member], 10.0)
    first = play(live, pool, 10.5, first)
    assert 4 <= running(live, member, 10.5) <= before
    first = play(live, pool, 30.0, first)
    assert running(live, member, 30.0) == 4
    member.replica = REPLICA
    live.change([member], 30.0)
    play(live, pool, np.inf, first)
    assert not np.isnan(live.rows["finish"]).any()
    assert (live.rows["generated"] == given.output_tokens).all()


@tried(deadline=None, max_examples=30)
@given_by(
    st.lists(st.tuples(st.sampled_from([1, 4, 16, 64, 512]), st.integers(0, 32), st.sampled_from([0, 3])), max_size=8),
    st.booleans(),
    st.integers(0, 2**16),
)
def test_any_live_settings_at_any_time_lose_nobody(
    changes: list[tuple[int, int, int]], priorities: bool, seed: int
) -> None:
    """Short of KV, with priorities and without. With NUMBA_BOUNDSCHECK=1 no index leaves its array, either."""
    given = load(rate=15.0, seconds=20.0)
    start = Replica(replace(REPLICA.settings, kv_blocks=120, priorities=priorities), TABLE)
    live = LiveFleet(given, seed=seed)
    pool, first = live.add_pool(), 0
    members = [Member(pool, start), Member(pool, start)]
    live.change(members, 0.0)
    for number, (budget, cap, threshold) in enumerate(changes):
        first = play(live, pool, 2.0 * number + 2.0, first)
        told = replace(start.settings, token_budget=budget, decode_cap=cap, long_prefill_threshold=threshold)
        members[number % 2].replica = Replica(told, TABLE)
        others = [Member(pool, Replica(EngineSettings(64, 8, 500), TABLE), routed=False)] * (number % 2)
        live.change([*others, *members], 2.0 * number + 2.0)
    play(live, pool, np.inf, first)
    assert (live.rows["generated"] == given.output_tokens).all()


def test_a_replica_that_serves_keeps_what_it_was_started_with() -> None:
    live = LiveFleet(load())
    member = Member(live.add_pool(), REPLICA)
    live.change([member], 0.0)
    member.replica = REPLICA._replace(settings=replace(REPLICA.settings, max_num_seqs=8))
    with pytest.raises(SimulationInputError, match="max_num_seqs of a replica that serves changes from 32 to 8: start"):
        live.change([member], 1.0)
    member.replica = REPLICA._replace(table=step_table(step_model(LLAMA_8B, "nvidia-a100-80gb"), 512, 16))
    with pytest.raises(SimulationInputError, match=r"exceed the step table \(512 tokens, 16 requests\)"):
        live.change([member], 1.0)
