"""The compiled fleet against the exact one: the same replica and the same floats for every request."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.fleet import Fleet
from firsttoken.simulation.fleet_exact import ExactFleet
from firsttoken.simulation.fleet_outcome import FleetOutcome
from firsttoken.simulation.fleet_shape import Revision, colocated
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.settings import EngineSettings
from simulation.cases import COLUMNS, TABLE, engines, workloads
from simulation.fleet_cases import POLICIES, colocations, mixed, separations


def the_same(work: Requests, revisions: list[Revision], seed: int) -> tuple[ExactFleet, Fleet, FleetOutcome]:
    exact, fast = ExactFleet(work, revisions, seed=seed), Fleet(work, revisions, seed=seed, log=20_000)
    exact.run()
    found = fast.run()
    places = {engine: number for number, engine in enumerate(exact.engines)}
    for name, owners in (("replica", exact.owner), ("decoder", exact.decoder)):
        expected = [places[owners[i]] for i in range(len(work))]
        np.testing.assert_array_equal(expected, getattr(found, name), err_msg=name)
    halves = [(exact.owner[i].rows[i], exact.decoder[i].rows[i]) for i in range(len(work))]
    for name in ("arrival", "ready", "queued", "cached"):
        np.testing.assert_array_equal([getattr(p, name) for p, _ in halves], getattr(found, name), err_msg=name)
    np.testing.assert_array_equal([p.first for p, _ in halves], found.prefilled)
    for name in ("first", "finish"):
        np.testing.assert_array_equal([getattr(d, name) for _, d in halves], getattr(found, name), err_msg=name)
    lost = [p.preempted + (d.preempted if d is not p else 0) for p, d in halves]
    np.testing.assert_array_equal(lost, found.preempted)
    for engine, one in zip(exact.engines, found.replicas, strict=True):
        mine = [(s.start, s.prefill_tokens, s.decode_tokens, s.running, s.waiting, s.kv_blocks) for s in engine.steps]
        assert mine == [(s[0], *s[2:]) for s in one.steps.tolist()]
    return exact, fast, found


@settings(deadline=None, max_examples=150)
@given(workloads(), colocations(), st.integers(0, 9))
def test_colocated_fleets_are_the_same(work: Requests, revision: Revision, seed: int) -> None:
    the_same(work, [revision], seed)


@settings(deadline=None, max_examples=200)
@given(workloads(), separations(), st.integers(0, 9))
def test_prefill_and_decode_apart_are_the_same(work: Requests, revision: Revision, seed: int) -> None:
    the_same(work, [revision], seed)


@settings(deadline=None, max_examples=60)
@given(workloads(), mixed(), st.integers(0, 9))
def test_two_revisions_are_the_same(work: Requests, revisions: list[Revision], seed: int) -> None:
    the_same(work, revisions, seed)


@settings(deadline=None, max_examples=60)
@given(workloads(), engines(), st.sampled_from(POLICIES))
def test_one_replica_is_the_engine(work: Requests, engine: EngineSettings, policy: Any) -> None:
    alone = FastEngine(work, engine, TABLE).run()
    found = Fleet(work, [colocated(1, engine, TABLE, policy)]).run()
    for name in (*COLUMNS, "ttft", "tpot"):
        np.testing.assert_array_equal(getattr(alone, name), getattr(found, name), err_msg=name)
    assert found.replicas[0].totals == alone.totals
    np.testing.assert_array_equal(found.replicas[0].timeline, alone.timeline)
