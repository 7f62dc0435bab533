"""Goodput: the largest rate within the SLOs, what binds it, and how fast it is found."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.api.service_inputs import SLO, Profile
from firsttoken.planning.load.demand import RequestShape
from firsttoken.planning.load.goodput import Target, keeps, largest_rate, targets, value
from firsttoken.planning.load.search import GRID_POINTS, GRID_STEP
from firsttoken.planning.workload import default_slos
from planning.load.cases import CHAT, CODE, ENGINES, LARGE, SHAPES, SMALL, Engine, capacity

LOOSE = (Target("TTFT", 95, 1000.0), Target("TPOT", 95, 1000.0))


def of(engine: Engine, work: RequestShape, *promises: Target, role: str = "serve") -> float:
    return largest_rate(engine.load(work, role), promises).rate


def test_targets_are_read_from_the_spec() -> None:
    slo = SLO(metric="TTFT", percentile=99, prompt_tokens="512-1024", target="1200ms")
    assert targets([slo]) == (Target("TTFT", 99, 1.2, "512-1024"),)


def test_the_rate_keeps_the_promise_and_the_next_one_breaks_it() -> None:
    promise = Target("TTFT", 95, 1.0)
    rate = of(SMALL, CHAT, promise)
    load = SMALL.load(CHAT)
    assert value(load.at(rate), promise) <= 1.0
    assert value(load.at(rate * GRID_STEP), promise) > 1.0


def test_without_a_promise_in_reach_the_capacity_is_what_counts() -> None:
    found = largest_rate(SMALL.load(CHAT), LOOSE)
    assert found.binding is None
    assert found.rate == pytest.approx(capacity(SMALL, CHAT), rel=0.03)


def test_what_an_empty_engine_cannot_keep_is_nothing_with_its_floor() -> None:
    promise = Target("TPOT", 95, 0.005)
    found = largest_rate(SMALL.load(CHAT), [*LOOSE, promise])
    assert (found.rate, found.binding) == (0.0, promise)
    assert found.floor == pytest.approx(SMALL.model.decode_seconds(1, round(CHAT.context)), rel=0.02)


def test_the_binding_promise_is_named() -> None:
    tight, loose = Target("TPOT", 95, 0.03), Target("TTFT", 95, 10.0)
    found = largest_rate(SMALL.load(CHAT), [loose, tight])
    assert found.binding == tight
    assert found.rate > 0
    assert found.floor is not None
    assert found.floor < 0.03


def test_a_bucket_of_long_prompts_binds_before_all_do() -> None:
    everyone, long = Target("TTFT", 95, 1.0), Target("TTFT", 95, 1.0, "4096-16384")
    assert 0 < of(SMALL, CHAT, long) < of(SMALL, CHAT, everyone)


def test_an_empty_bucket_promises_nothing() -> None:
    assert of(SMALL, CHAT, *LOOSE) == of(SMALL, CHAT, *LOOSE, Target("TTFT", 95, 1e-3, "16384+"))


def test_roles_answer_for_their_own_metric() -> None:
    """Apart, each role does more than both do together on one engine."""
    promises = targets(default_slos(Profile.CHAT))
    both = of(LARGE, CHAT, *promises)
    assert of(LARGE, CHAT, *promises, role="prefill") > both
    assert of(LARGE, CHAT, *promises, role="decode") > both
    assert of(LARGE, CHAT, *promises, Target("TTFT", 95, 1e-6), role="decode") > both


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from(ENGINES),
    st.sampled_from(SHAPES),
    st.builds(Target, st.sampled_from(["TTFT", "TPOT"]), st.sampled_from([50, 90, 95, 99]), st.floats(0.005, 5)),
    st.floats(1, 3),
)
def test_a_tighter_promise_never_allows_more(
    engine: Engine, work: RequestShape, promise: Target, factor: float
) -> None:
    alone = of(engine, work, promise)
    assert alone <= of(engine, work, replace(promise, seconds=promise.seconds * factor))
    assert of(engine, work, promise, Target("TTFT", 95, 2.0)) <= alone


@pytest.mark.parametrize("work", [CHAT, CODE])
def test_it_asks_for_few_rates(work: RequestShape, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several candidates are compared within one reconcile: the empty engine, and a search by halves."""
    load, asked = LARGE.load(work), []
    at = load.at
    monkeypatch.setattr(load, "at", lambda rate: asked.append(rate) or at(rate))
    largest_rate(load, targets(default_slos(Profile.CHAT)))
    assert 2 < len(asked) <= 2 + math.ceil(math.log2(GRID_POINTS))
    assert len(set(asked)) == len(asked), "none twice"


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(ENGINES), st.sampled_from(SHAPES), st.floats(0.01, 5), st.floats(0.005, 2), st.floats(1e-4, 100))
def test_where_the_search_begins_changes_nothing(
    engine: Engine, work: RequestShape, ttft: float, tpot: float, guess: float
) -> None:
    promises = [Target("TTFT", 95, ttft), Target("TPOT", 95, tpot)]
    load = engine.load(work)
    found, other = largest_rate(load, promises), largest_rate(load, promises, guess)
    assert (found.rate, found.binding, found.floor) == (other.rate, other.binding, other.floor)
    known = found.rate * min(1.0, guess)
    if known and keeps(load, promises, known):
        other = largest_rate(load, promises, known, kept=True)
        assert (found.rate, found.binding, found.floor) == (other.rate, other.binding, other.floor)
