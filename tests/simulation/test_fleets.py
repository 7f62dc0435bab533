"""What holds for every fleet; the split between revisions; what is refused."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.fleet import Fleet
from firsttoken.simulation.fleet_outcome import FleetOutcome
from firsttoken.simulation.fleet_shape import Pool, Replica, Revision, colocated, link_of, split
from firsttoken.simulation.policies import CacheAware, LeastLoaded, PowerOfTwo, RoundRobin
from firsttoken.simulation.requests import Requests, requests
from firsttoken.simulation.results import STAGES, summarize
from firsttoken.simulation.settings import EngineSettings, Link, Stages
from planning.timing.models import LLAMA_8B, step_model
from simulation.cases import TABLE, workloads
from simulation.fleet_cases import mixed

SMALL = EngineSettings(64, 8, 200)
ONE = Replica(SMALL, TABLE)
SPLIT = Revision(Pool((ONE,)), Pool((ONE,)), Link(0.002, 1e-5))


@settings(deadline=None, max_examples=60)
@given(workloads(), mixed(), st.integers(0, 9))
def test_nobody_is_lost_or_served_twice_and_kv_fits(work: Requests, revisions: list[Revision], seed: int) -> None:
    fleet = Fleet(work, revisions, seed=seed, log=20_000)
    found = fleet.run()
    assert not np.isnan(found.finish).any()
    times = found.arrival, found.ready, found.queued, found.prefilled, found.first, found.finish
    for before, after in pairwise(times):
        assert (before <= after).all()
    counts = np.bincount(found.replica, minlength=len(found.roles))
    apart = found.replica != found.decoder
    counts += np.bincount(found.decoder[apart], minlength=len(found.roles))
    assert counts.tolist() == [one.totals.finished for one in found.replicas]
    for one, replica in zip(found.replicas, fleet.replicas, strict=True):
        most = replica.settings.kv_blocks
        assert one.totals.peak_kv_blocks == max([0, *one.steps["kv"].tolist()]) <= most
        np.testing.assert_array_equal(~np.isnan(one.finish), True)
    made = fleet.state.engine.rows["generated"]
    assert (made[: len(work)][~apart] == work.output_tokens[~apart]).all()
    assert (made[len(work) :][np.flatnonzero(apart)] == work.output_tokens[apart]).all()
    assert (np.array(found.revisions)[found.replica] == found.revision).all()


@settings(deadline=None, max_examples=30)
@given(workloads(), mixed(), st.integers(0, 9))
def test_stages_add_up_and_the_same_seed_gives_the_same_bytes(
    work: Requests, revisions: list[Revision], seed: int
) -> None:
    found, again = (Fleet(work, revisions, seed=seed).run() for _ in range(2))
    total = summarize(found)["all"]
    assert total.requests == len(work)
    assert sum(total.times[s].mean for s in STAGES) == pytest.approx(total.times["ttft"].mean)
    assert contents(found) == contents(again)
    assert [one.timeline.tobytes() for one in found.replicas] == [one.timeline.tobytes() for one in again.replicas]


def contents(found: FleetOutcome) -> list[bytes]:
    return [value.tobytes() for value in vars(found).values() if isinstance(value, np.ndarray)]


@given(st.integers(0, 2**31), st.floats(0.02, 0.98))
def test_the_split_is_fair(seed: int, weight: float) -> None:
    """Within six standard deviations of a binomial share, and of halves by any other property of the requests."""
    keys = np.arange(20_000)
    for some in (keys, keys[::2], keys[5000:10_000]):
        share = split(some, [1 - weight, weight], seed).mean()
        assert abs(share - weight) < 6 * np.sqrt(weight * (1 - weight) / len(some))


@given(st.integers(0, 2**31))
def test_a_user_stays_and_a_rising_canary_keeps_whom_it_has(seed: int) -> None:
    users = np.arange(3000) % 700
    few, many = (split(users, [1 - w, w], seed) for w in (0.1, 0.4))
    assert (few <= many).all()
    assert (few[:700] == few[700:1400]).all()
    assert (split(users, [1, 0], seed) == 0).all()
    assert (split(users, [0, 1, 0], seed) == 1).all()
    assert (split(users, [1, 1], seed) != split(users, [1, 1], seed + 1)).any()


def burst(count: int, hashes: list[list[int]] | None = None) -> Requests:
    return requests(np.arange(count) * 1e-3, [64] * count, [20] * count, block_hashes=hashes)


def test_each_policy_does_what_it_says() -> None:
    families = [[i % 2 * 10 + j for j in range(4)] for i in range(12)]
    work = burst(12, families)

    def served(policy: Any) -> list[int]:
        return Fleet(work, [colocated(3, SMALL, TABLE, policy)]).run().replica.tolist()

    assert served(RoundRobin()) == [0, 1, 2] * 4
    assert served(LeastLoaded()) == [0, 1, 2] * 4  # nobody has ended yet
    assert served(CacheAware()) == [0, 1] * 6  # each family where its first went
    # By hand: a family follows who was sent it last, but where loads are more than 2 apart the smallest load gets it.
    assert served(CacheAware(0.3, 2, 1.0)) == [0, 1, 0, 1, 0, 2, 0, 2, 0, 1, 2, 1]
    assert served(CacheAware(1.0)) == [0, 1, 2] * 4  # nothing is more than the whole prompt
    assert np.bincount(served(PowerOfTwo())).max() <= 5


def test_a_held_prefix_is_found_only_once_it_is_cached() -> None:
    work = requests([0.0, 0.0, 5.0], [64] * 3, [20] * 3, block_hashes=[[1, 2, 3, 4]] * 3)
    for held, expected in ((False, [0, 0, 0]), (True, [0, 1, 0])):
        found = Fleet(work, [colocated(2, SMALL, TABLE, CacheAware(held=held))]).run()
        assert found.replica.tolist() == expected
        assert found.cached[2] == 48


def test_the_first_token_waits_for_hand_over_and_transfer() -> None:
    """One request alone: prefill as on one replica, set-up, bytes, and one decode step there (Handover's sum)."""
    work = requests([0.0], [60], [5])
    alone, apart = Fleet(work, [colocated(1, SMALL, TABLE)]).run(), Fleet(work, [SPLIT]).run()
    step = TABLE.step_seconds([], [60])[0]
    assert apart.prefilled[0] == alone.first[0]
    assert apart.first[0] - apart.prefilled[0] == pytest.approx(0.002 + 60e-5 + step)
    assert apart.replicas[1].totals.steps == 5


def test_both_sides_handle_the_prompt_and_a_busy_one_asks_for_kv_between_its_steps() -> None:
    """The second request finds the first one decoding: it waits for two boundaries of steps, to ask and with its KV."""
    staged = ONE._replace(settings=replace(SMALL, stages=Stages(input_seconds=0.5)))
    work = requests([0.0], [60], [5])
    bare, slow = (Fleet(work, [replace(SPLIT, pool=Pool((r,)), decode=Pool((r,)))]).run() for r in (ONE, staged))
    assert slow.first[0] - bare.first[0] == pytest.approx(1.0)
    pair = requests([0.0, 0.05], [60, 60], [200, 5])
    found = Fleet(pair, [SPLIT]).run()
    alone = Fleet(requests([0.05], [60], [5]), [SPLIT]).run()
    step = TABLE.step_seconds([], [100])[0]
    waited = found.first[1] - alone.first[0]
    assert 2 * step < waited < 5 * step, "twice the rest of a step and the whole next one, which is composed already"


def test_kv_stays_on_the_prefill_side_until_it_is_fetched() -> None:
    """Room for one prompt there: the second is computed when the first one's KV has gone, after half a second."""
    work = requests([0.0, 0.0], [300, 300], [5, 5])
    tight = Replica(replace(SMALL, kv_blocks=20), TABLE)
    found = Fleet(work, [replace(SPLIT, pool=Pool((tight,)), link=Link(0.5))]).run()
    assert found.queued[1] == found.replicas[1].ready[0] == found.prefilled[0] + 0.5


def test_what_the_decode_side_has_cached_is_not_moved() -> None:
    work = requests([0.0, 5.0], [64, 64], [2, 2], block_hashes=[[1, 2, 3, 4]] * 2)
    found = Fleet(work, [replace(SPLIT, link=Link(0.0, 1e-3))]).run()
    assert found.replicas[1].cached.tolist() == [0, 48]
    moved = found.first - found.prefilled
    assert moved[0] - moved[1] == pytest.approx(48e-3)


def test_a_link_is_the_planners_formula() -> None:
    model = step_model(LLAMA_8B, "nvidia-a100-80gb")
    for rate in (None, 5e9):
        link = link_of(model, rate)
        for tokens in (1, 1000, 100_000):
            seconds = link.set_up_seconds + tokens * link.token_seconds
            assert seconds == pytest.approx(model.transfer_seconds(tokens, rate))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pool(()), "replicas is empty"),
        (lambda: Revision(Pool((ONE,)), weight=-1), "weight is -1: give a share"),
        (lambda: Fleet(burst(1), []), "revisions is empty"),
        (lambda: Fleet(burst(1), [replace(SPLIT, weight=0)]), "give one revision a weight above 0"),
        (lambda: Fleet(burst(2), [SPLIT], keys=np.arange(3)), "keys has 3 values: give one for each of 2"),
        (lambda: Fleet(burst(1), [SPLIT], seed=-1), "seed is -1: give a whole number from 0 on"),
        (lambda: Fleet(requests([0], [5000], [1]), [SPLIT]), "request 0 has 5000 [+] 1 tokens"),
        (lambda: Fleet(burst(1), [SPLIT], bins=3), "3 bins"),
        (lambda: Link(-1.0), "set_up_seconds is -1.0: give seconds from 0 on"),
        (lambda: CacheAware(2), "least_match is 2: give a part of the prompt"),
        (lambda: CacheAware(most_ahead=-1), "most_ahead is -1: give 0 requests or more"),
        (lambda: CacheAware(most_times=0.5), "most_times is 0.5: give a ratio of loads"),
    ],
)
def test_bad_fleets_are_refused(make: Any, message: str) -> None:
    with pytest.raises(SimulationInputError, match=message):
        make()


def test_no_requests_are_no_trouble() -> None:
    found = Fleet(requests([], [], []), [SPLIT, colocated(2, SMALL, TABLE)]).run()
    assert summarize(found)["all"].requests == len(found.ttft) == 0
    assert [one.totals.steps for one in found.replicas] == [0] * 4
