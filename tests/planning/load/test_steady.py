"""Steady states: what binds, that utilisation follows the rate, and that an empty engine is as fast as its steps."""

from dataclasses import replace

import pytest

from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.demand import RequestShape
from firsttoken.planning.load.replica import DEFAULT_BOUNDS, LoadModel
from firsttoken.planning.load.responses import Handover
from firsttoken.planning.workload import bucket_names
from planning.load.cases import ANSWERS, CHAT, CODE, ENGINES, LARGE, SHAPES, SMALL, Engine, capacity, shape

FIXED = shape((1000, 1000), (200, 200))


def test_an_empty_engine_takes_a_prefill_and_decode_steps() -> None:
    state, model = SMALL.load(FIXED).state(1e-4), SMALL.model
    prefill = model.prefill_seconds(1000, 0, 2048)
    assert state.ttft.p95 == pytest.approx(prefill + model.api_seconds(1000), rel=0.01)
    assert state.tpot.p99 == pytest.approx(model.decode_seconds(1, 1100), rel=0.01)
    assert state.queue.p99 == pytest.approx(0, abs=1e-3)
    assert state.prefill_seconds == pytest.approx(prefill, rel=0.01)


def test_little_holds() -> None:
    state = SMALL.load(FIXED).state(3.0)
    assert state.running == pytest.approx(3.0 * 199 * state.mean_tpot, rel=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_prefill_utilisation_follows_the_rate(engine: Engine) -> None:
    """Linear but for what the decodes take of each step."""
    load, top = engine.load(CODE), capacity(engine, CODE)
    low, high = (load.state(top * x).prefill_utilization for x in (0.2, 0.8))
    assert 4 <= high / low < 4.6


def test_a_long_prompt_load_is_bound_by_compute() -> None:
    state = SMALL.load(CODE).state(1.2 * capacity(SMALL, CODE))
    assert (state.binds, state.saturated) == ("Compute", True)


def test_few_places_bind() -> None:
    limits = replace(SMALL.limits, max_running=4)
    state = LoadModel(SMALL.model, ANSWERS, limits).state(2.0)
    assert (state.binds, state.saturated) == ("RunningRequests", True)
    assert state.running <= 4
    assert state.queue.p50 > 1


def test_little_kv_binds() -> None:
    limits = replace(SMALL.limits, kv_tokens=8000)
    state = LoadModel(SMALL.model, ANSWERS, limits).state(2.0)
    assert (state.binds, state.saturated) == ("KVMemory", True)
    assert state.running * (ANSWERS.context - ANSWERS.cached_tokens) < 8000 - ANSWERS.cached_tokens


def test_a_shared_prefix_takes_kv_once() -> None:
    limits = replace(SMALL.limits, kv_tokens=20_000)
    apart, shared = replace(ANSWERS, cached_tokens=0), replace(ANSWERS, cached_tokens=960)
    assert LoadModel(SMALL.model, apart, limits).state(1.0).utilization > 1.5 * (
        LoadModel(SMALL.model, shared, limits).state(1.0).utilization
    )


def test_smaller_chunks_hold_decodes_up_less_and_prompts_more() -> None:
    """M4.2: smaller is not better for everything."""
    rate = 2.5
    small, large = (
        LoadModel(SMALL.model, CHAT, replace(SMALL.limits, token_budget=b)).state(rate) for b in (256, 2048)
    )
    assert small.tpot.p99 < large.tpot.p99
    assert small.ttft.p50 > large.ttft.p50


def test_buckets_have_their_own_times() -> None:
    state = LARGE.load(CHAT).state(4.0)
    assert list(state.by_bucket) == list(bucket_names(DEFAULT_BOUNDS))[: len(state.by_bucket)]
    assert "16384+" not in state.by_bucket  # the engine takes no such prompt
    medians = [b.ttft.p50 for b in state.by_bucket.values()]
    assert medians == sorted(medians)
    assert sum(b.share for b in state.by_bucket.values()) == pytest.approx(1)
    assert state.by_bucket["0-64"].prefill_seconds < state.by_bucket["1024-4096"].prefill_seconds


@pytest.mark.parametrize("work", SHAPES)
def test_roles_share_the_work(work: RequestShape) -> None:
    rate = 0.5 * capacity(LARGE, work)
    serve, prefill, decode = (LARGE.load(work, role).state(rate) for role in ("serve", "prefill", "decode"))
    assert prefill.running == 0
    assert decode.running < serve.running
    assert decode.tpot.p95 < serve.tpot.p95
    assert prefill.prefill_utilization < serve.prefill_utilization
    assert decode.prefill_utilization == 0


def test_a_handover_adds_the_transfer_and_a_decode_step() -> None:
    limits, handover = EngineLimits(8192, 256, 400_000), Handover(decode_step=0.02, link=25e9)
    here, there = (
        LoadModel(LARGE.model, FIXED, limits, "prefill", way).state(1e-4).ttft.p95 for way in (None, handover)
    )
    moved = LARGE.model.transfer_seconds(1000, 25e9) - LARGE.model.transfer_seconds(1000)
    assert there - here == pytest.approx(0.02 + moved, abs=2e-4)
