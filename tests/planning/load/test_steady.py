"""Steady states: what binds, that utilisation follows the rate, and that an empty engine is as fast as its steps."""

from dataclasses import replace
from itertools import pairwise

import pytest

from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.demand import RequestShape
from firsttoken.planning.load.goodput import largest_rate
from firsttoken.planning.load.replica import DEFAULT_BOUNDS, LoadModel
from firsttoken.planning.workload import bucket_names
from planning.load.cases import (
    ANSWERS,
    CHAT,
    CODE,
    ENGINES,
    LARGE,
    SHAPES,
    SMALL,
    STAGES,
    Engine,
    capacity,
    prefill,
    shape,
    staged,
    wait,
)
from planning.timing.models import LLAMA_8B

FIXED = shape((1000, 1000), (200, 200))


def test_an_empty_engine_takes_a_prefill_and_decode_steps() -> None:
    load, model = SMALL.load(FIXED), SMALL.model
    state, replica = load.state(1e-4), load.at(1e-4)
    seconds = model.prefill_seconds(1000, 0, 2048)
    assert state.ttft.p95 == pytest.approx(seconds + model.api_seconds(1000), rel=0.01)
    assert state.tpot.p99 == pytest.approx(model.decode_seconds(1, 1100), rel=0.01)
    assert wait(replica, 0.99) == pytest.approx(0, abs=1e-3)
    assert prefill(replica) == pytest.approx(seconds, rel=0.01)


def test_little_holds() -> None:
    steady = SMALL.load(FIXED).at(3.0).steady
    assert steady.running == pytest.approx(3.0 * 199 * steady.tpot, rel=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_prefill_utilisation_follows_the_rate(engine: Engine) -> None:
    """Linear but for what the decodes take of each step."""
    load, top = engine.load(CODE), capacity(engine, CODE)
    low, high = (load.at(top * x).steady.prefill_share for x in (0.2, 0.8))
    assert 4 <= high / low < 4.6


def test_a_long_prompt_load_is_bound_by_compute() -> None:
    state = SMALL.load(CODE).state(1.2 * capacity(SMALL, CODE))
    assert (state.binds, state.saturated) == ("Compute", True)


def test_short_prompts_are_bound_by_the_api_server() -> None:
    """It takes one request at a time: no replica carries more than one over what that takes, however fast the GPU."""
    short = shape((100, 200), (20, 40))
    engine = Engine(LLAMA_8B, "nvidia-h100-80gb", 1, EngineLimits(8192, 1024, 400_000))
    load, most = engine.load(short), 1 / engine.model.api_seconds(round(short.prompts.mean))
    state = load.state(1.2 * most)
    assert (state.binds, state.saturated) == ("APIServer", True)
    assert state.ttft.p50 > 10
    calm, busy = load.state(0.01 * most), load.state(0.9 * most)
    # M/D/1: rho / (2 (1 - rho)) services.
    assert busy.ttft.p50 - calm.ttft.p50 >= 0.9 / (2 * 0.1) / most
    assert 0.9 * most < largest_rate(load, ()).rate < most


def test_few_places_bind() -> None:
    limits = replace(SMALL.limits, max_running=4)
    load = LoadModel(SMALL.model, ANSWERS, limits)
    state = load.state(2.0)
    assert (state.binds, state.saturated) == ("RunningRequests", True)
    assert state.running <= 4
    assert wait(load.at(2.0), 0.5) > 1


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
    load = LARGE.load(CHAT)
    state = load.state(4.0)
    assert list(state.by_bucket) == [n for n in bucket_names(DEFAULT_BOUNDS) if n in state.by_bucket]
    assert "16384+" not in state.by_bucket  # the engine takes no such prompt
    medians = [b.ttft.p50 for b in state.by_bucket.values()]
    assert medians == sorted(medians)
    assert sum(b.share for b in state.by_bucket.values()) == pytest.approx(1, abs=1e-3)
    assert prefill(load.at(4.0), 64, 256) < prefill(load.at(4.0), 1024, 4096)


def test_a_bucket_that_one_prompt_in_a_thousand_reaches_is_listed_and_a_rarer_one_is_not() -> None:
    """Of prompts of 1024 (P95 4096) one in 2000 is below 64 tokens; of those with P95 5120 one in 400."""
    wider = shape((1024, 5120), (128, 451), 0, 9215)
    assert CHAT.prompts.below(64) < 1e-3 < wider.prompts.below(64)
    assert "0-64" not in LARGE.load(CHAT).state(1.0).by_bucket
    assert "0-64" in LARGE.load(wider).state(1.0).by_bucket


@pytest.mark.parametrize("work", SHAPES)
def test_roles_share_the_work(work: RequestShape) -> None:
    rate = 0.5 * capacity(LARGE, work)
    loads = [LARGE.load(work, role) for role in ("serve", "prefill", "decode")]
    serve, first, decode = (load.at(rate).steady for load in loads)
    assert first.running == 0
    assert decode.running < serve.running
    assert loads[2].state(rate).tpot.p95 < loads[0].state(rate).tpot.p95
    assert first.prefill_share < serve.prefill_share
    assert decode.prefill_share == 0


def test_what_the_decode_side_is_busy_with_delays_first_tokens() -> None:
    """An idle one adds the way there, the prompt once more and a step; a loaded one its steps' boundaries, and places.

    How much is held against the simulator (test_against_engine.py).
    """
    prompts, decode = (LoadModel(LARGE.model, FIXED, LARGE.limits, role) for role in ("prefill", "decode"))
    top = capacity(LARGE, FIXED, "decode")
    first = [prompts.handed_to(decode.at(x * top)).state(1e-4).ttft for x in (1e-4, 0.2, 0.5, 0.8, 0.99)]
    for less, more in pairwise(first):
        assert less.p50 < more.p50
        assert less.p95 < more.p95
    few = LoadModel(LARGE.model, FIXED, replace(LARGE.limits, max_running=8), "decode")
    crowded = prompts.handed_to(few.at(0.9 * 8 / (200 * few.at(1.0).steady.tpot))).state(1e-4).ttft
    assert crowded.p95 > first[1].p95, "one request in ten or more waits for a place"


def test_short_prompts_below_a_shared_prefix_wait_no_longer_than_longer_ones() -> None:
    """What is left of them to compute is part of a block, on average half of one whatever their length."""
    work = shape((1024, 5120), (128, 451), 256, 9215)
    buckets = list(STAGES.load(work).state(0.5 * capacity(STAGES, work)).by_bucket.values())
    for share in ("p50", "p95", "p99"):
        times = [getattr(b.ttft, share) for b in buckets]
        assert times == sorted(times)


@pytest.mark.parametrize("work", SHAPES)
def test_stages_carry_nearly_as_many_times_as_much_and_never_more(work: RequestShape) -> None:
    """A batch is in each stage at once. A batch with a prompt in it holds up those behind it, and so does the head."""
    one, two, four = (capacity(staged(n), work) for n in (1, 2, 4))
    assert 1.6 * one < two <= 2 * one
    assert 2.8 * one < four <= 4 * one


@pytest.mark.parametrize("work", SHAPES)
def test_a_batch_takes_its_whole_way_through_the_stages(work: RequestShape) -> None:
    """Tokens come no sooner than on one GPU: neither alone, nor beside the same number of others on each."""
    one, four = staged(1), staged(4)
    alone, apart = one.load(work).state(1e-4), four.load(work).state(1e-4)
    assert alone.tpot.p95 <= apart.tpot.p95 < 1.02 * alone.tpot.p95
    rate = 0.5 * capacity(one, work)
    busy, split = one.load(work).at(rate), four.load(work).at(4 * rate)
    assert busy.steady.tpot < split.steady.tpot < 2 * busy.steady.tpot
    assert split.steady.running > 4 * busy.steady.running
    assert wait(split, 0.95) < wait(busy, 0.95), "a new batch begins four times as often"


def test_chunks_of_one_prompt_follow_each_other_through_the_stages() -> None:
    """17 chunks: alone the prompt takes little more than a quarter, and never overtakes itself."""
    long = shape((17 * 2048, 17 * 2048), (1, 1), 0, 40_000)
    one, four = (prefill(staged(n).load(long).at(1e-6)) for n in (1, 4))
    assert one / 4 < four < one / 3
    sizes = [shape((n, n), (1, 1), 0, 40_000) for n in (2000, 2048, 2049, 2100, 4096, 4097)]
    times = [prefill(staged(4).load(s).at(1e-6)) for s in sizes]
    assert times == sorted(times)
