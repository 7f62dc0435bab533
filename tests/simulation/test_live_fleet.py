"""A fleet that changes while it runs: without changes it is the fleet, and changes cost what they must, no more."""

import numpy as np
import pytest

from firsttoken.simulation.arrivals import Arrivals
from firsttoken.simulation.fleet import Fleet
from firsttoken.simulation.fleet_shape import Pool, Replica, Revision
from firsttoken.simulation.live_fleet import LiveFleet, Member, slowed
from firsttoken.simulation.policies import CacheAware, LeastLoaded, Policy, PowerOfTwo, RoundRobin
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.workload import Between, SharedPrefixes, Workload
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
