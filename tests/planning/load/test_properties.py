"""What must hold for every model, shape and rate."""

import math
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.planning.load.demand import RequestShape
from firsttoken.planning.load.lengths import LengthDistribution
from firsttoken.planning.load.replica import LoadModel, ReplicaState
from firsttoken.planning.types import Percentiles
from planning.load.cases import ENGINES, SHAPES, Engine, capacity, numbers, shape

# Percentiles are searched for to one part in ten thousand.
SEARCH = 1.0005
# Matrix products come in whole tiles and prompts in whole chunks: one token more can cost less by this much.
TILES = 1.02

CHOSEN = st.sampled_from(ENGINES)
SHAPED = st.sampled_from(SHAPES)
LOADS = st.floats(0.01, 1.5)


def times(state: ReplicaState) -> list[float]:
    return [*values(state.ttft), *values(state.tpot), *(t for b in state.by_bucket.values() for t in values(b.ttft))]


def values(found: Percentiles) -> tuple[float, float, float]:
    return found.p50, found.p95, found.p99


@settings(deadline=None, max_examples=40)
@given(CHOSEN, SHAPED, LOADS, LOADS, st.sampled_from(["serve", "prefill", "decode"]))
def test_nothing_gets_better_with_the_rate(engine: Engine, work: RequestShape, a: float, b: float, role: str) -> None:
    load, top = engine.load(work, role), capacity(engine, work, role)
    less, more = (load.state(top * x) for x in sorted((a, b)))
    assert all(x <= y * SEARCH for x, y in zip(times(less), times(more), strict=True))
    assert less.utilization <= more.utilization * SEARCH
    assert less.running <= more.running * SEARCH


ANY_SHAPE = st.builds(
    lambda prompt, longer, output, more, blocks: shape(
        (prompt, round(prompt * longer)), (output, round(output * more)), 16 * blocks
    ),
    st.integers(16, 8000),
    st.floats(1, 6),
    st.integers(1, 1000),
    st.floats(1, 6),
    st.integers(0, 200),
)


@settings(deadline=None, max_examples=40)
@given(CHOSEN, ANY_SHAPE, st.floats(1e-3, 3), st.sampled_from(["serve", "prefill", "decode"]))
def test_all_is_finite_and_ordered(engine: Engine, work: RequestShape, x: float, role: str) -> None:
    state = engine.load(work, role).state(capacity(engine, SHAPES[0]) * x)
    assert all(0 <= n < math.inf for n in numbers(state))
    for found in (state.ttft, state.tpot, *(b.ttft for b in state.by_bucket.values())):
        assert found.p50 <= found.p95 <= found.p99


@settings(deadline=None, max_examples=40)
@given(CHOSEN, ANY_SHAPE, st.floats(0.1, 3), st.sampled_from([(1, 1.0), (8, 1.0), (64, 0.05), (64, 1.0)]))
def test_what_binds_is_what_more_of_would_help(
    engine: Engine, work: RequestShape, x: float, less: tuple[int, float]
) -> None:
    """Twice the places or twice the KV lower the utilisation just where that is said to be the scarcest."""
    places, part = less
    limits = replace(engine.limits, max_running=places, kv_tokens=round(engine.limits.kv_tokens * part))
    rate = capacity(engine, SHAPES[0]) * x

    def state(**more: int) -> ReplicaState:
        return LoadModel(engine.model, work, replace(limits, **more)).state(rate)

    now = state()
    wider, roomier = state(max_running=2 * limits.max_running), state(kv_tokens=2 * limits.kv_tokens)
    assert (wider.utilization < now.utilization / SEARCH) <= (now.binds == "RunningRequests")
    assert (roomier.utilization < now.utilization / SEARCH) <= (now.binds == "KVMemory")
    if now.binds == "RunningRequests":
        assert wider.utilization < now.utilization
    if now.binds == "KVMemory":
        assert roomier.utilization < now.utilization


@settings(deadline=None, max_examples=40)
@given(CHOSEN, SHAPED, st.floats(0.05, 0.9), st.floats(1.02, 2))
def test_longer_prompts_never_get_answers_sooner(engine: Engine, work: RequestShape, x: float, factor: float) -> None:
    """Saturated TPOT is left out: there fewer requests with longer contexts fit into the KV cache, and run faster."""
    long = replace(work, prompts=stretched(work.prompts, factor))
    rate = capacity(engine, work) * x
    a, b = engine.load(work).state(rate), engine.load(long).state(rate)
    assert all(s <= t * TILES for s, t in zip(values(a.ttft), values(b.ttft), strict=True))
    if not b.saturated:
        assert all(s <= t * TILES for s, t in zip(values(a.tpot), values(b.tpot), strict=True))


@settings(deadline=None, max_examples=120)
@given(CHOSEN, st.one_of(SHAPED, ANY_SHAPE), st.floats(0.01, 1.2))
def test_no_bucket_of_longer_prompts_is_answered_sooner(engine: Engine, work: RequestShape, x: float) -> None:
    """All wait in one queue. A short prompt leaves others more room in its step, and a step costs no less for that.

    With a prefix that nearly all prompts are longer than: what is beyond it grows with the prompt.
    """
    shared = min(work.cached_tokens, int(work.prompts.quantile(1e-3)) // 16 * 16)
    load = engine.load(replace(work, cached_tokens=shared))
    state = load.state(capacity(engine, work) * x, bounds=(32, 64, 128, 256, 512, 1024, 4096, 16384))
    for a, b in pairwise(state.by_bucket.values()):
        assert all(s <= t * SEARCH for s, t in zip(values(a.ttft), values(b.ttft), strict=True))


def stretched(lengths: LengthDistribution, factor: float) -> LengthDistribution:
    return replace(lengths, p50=round(lengths.p50 * factor), p95=round(lengths.p95 * factor))


@settings(deadline=None, max_examples=40)
@given(CHOSEN, SHAPED, st.floats(0.05, 1.2), st.integers(0, 30), st.integers(0, 30))
def test_a_longer_cached_prefix_never_raises_ttft(engine: Engine, work: RequestShape, x: float, a: int, b: int) -> None:
    """Up to half a median prompt: a prefix that all share is no longer than the short ones."""
    rate, most = capacity(engine, work) * x, work.prompts.p50 // 32
    less, more = (replace(work, cached_tokens=16 * min(n, most)) for n in sorted((a, b)))
    slow, fast = engine.load(less).state(rate), engine.load(more).state(rate)
    assert all(f <= s * TILES for s, f in zip(values(slow.ttft), values(fast.ttft), strict=True))
