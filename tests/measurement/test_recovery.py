"""Engines whose true ratio is known: what is measured of them lies within its band, or is not given."""

import math
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from firsttoken.measurement.blocks import Window
from firsttoken.measurement.stages import NotMeasured, StageRatio, measured
from measurement.engines import Case, window
from planning.timing.models import LLAMA_70B

BOTH = ("prefill", "decode")
SECONDS = 1050.0
CHAT = Case(rate=2.0)
CASES = (
    CHAT,
    replace(CHAT, rate=4.0),
    replace(CHAT, rate=0.5),
    replace(CHAT, budget=512, rate=3.3),
    Case(prompt=(1150, 1500), output=(400, 500), rate=3.0),
    Case(prompt=(600, 900), output=(400, 500), shared=512, rate=4.0),
    Case(gpu="nvidia-h100-80gb", budget=8192, prompt=(6144, 16384), output=(200, 400), rate=1.5, kv_tokens=400_000),
    Case(prompt=(100, 300), output=(100, 300), rate=15.0),
    Case(prompt=(1024, 1025), output=(128, 129), rate=6.0),
    Case(uri=LLAMA_70B, gpu="nvidia-h100-80gb", tensor_parallel=4, budget=8192, seqs=512, kv_tokens=400_000, rate=4.0),
)
SLOWED = ({}, {"prefill": 1.3}, {"steps": 1.3}, {"steps": 0.8}, {"steps": 1.3, "prefill": 1 / 1.3})


@cache
def seen(case: Case, seed: int = 1, prefill: float = 1.0, steps: float = 1.0) -> Window:
    return window(case, SECONDS, seed, prefill=prefill, steps=steps)


def ratios(case: Case, found: Window) -> dict[str, StageRatio]:
    return {one.stage: one for one in measured(found, case.model, BOTH) if isinstance(one, StageRatio)}


def code(found: Window, case: Case = CHAT) -> str:
    (why,) = measured(found, case.model, BOTH)
    assert isinstance(why, NotMeasured), why
    return why.code


def changed(found: Window, number: int, **values: float | None) -> Window:
    """One block with other values (None: without)."""
    block = {key: value for key, value in found.blocks[number].items() if key[0] not in values}
    block |= {(name, ""): value for name, value in values.items() if value is not None}
    return replace(found, blocks=(*found.blocks[:number], block, *found.blocks[number + 1 :]))


def test_bands_of_nine_in_ten_hold_the_truth() -> None:
    """Ten engines, as the model says, with prompts, all, or decodes slowed, and all faster; seeds that set no band."""
    given, within = Counter[str](), Counter[str]()
    for case in CASES:
        for slow in SLOWED:
            for seed in (3, 4):
                truth = {"prefill": slow.get("prefill", 1.0) * slow.get("steps", 1.0), "decode": slow.get("steps", 1.0)}
                for stage, one in ratios(case, window(case, SECONDS, seed, **slow)).items():
                    given[stage] += 1
                    within[stage] += abs(one.value / truth[stage] - 1) <= one.band
    assert given["prefill"] >= 75
    assert given["decode"] >= 56, "less is told where prompts are in most steps, but not next to nothing"
    for stage in BOTH:
        assert within[stage] >= 0.85 * given[stage], (stage, within, given)


@pytest.mark.parametrize("slow", [1.0, 1.3])
def test_an_engine_whose_prefill_alone_is_slowed_has_its_decode_as_before(slow: float) -> None:
    found = ratios(CHAT, seen(CHAT, prefill=slow))
    assert found["prefill"].value == pytest.approx(slow, rel=0.06)
    assert found["decode"].value == pytest.approx(1.0, rel=0.07)
    assert found["prefill"].requests > 1000


def test_an_engine_whose_decodes_alone_are_slowed_has_its_prefill_as_before() -> None:
    found = ratios(CHAT, seen(CHAT, prefill=1 / 1.6, steps=1.6))
    assert found["prefill"].value == pytest.approx(1.0, rel=0.06)
    assert found["decode"].value == pytest.approx(1.6, rel=0.07)


def together(case: Case, many: int) -> Window:
    """Prompts that come `many` at a time, as of a client that fans out."""

    def arrivals(source: np.random.Generator, count: int, seconds: float) -> NDArray[np.float64]:
        return np.repeat(np.sort(source.uniform(0, seconds, -(-count // many))), many)[:count]

    return window(case, SECONDS, 1, arrivals=arrivals)


@pytest.mark.parametrize("many", [2, 5])
@pytest.mark.parametrize("case", [CHAT, CASES[5], CASES[6], CASES[7]])
def test_prompts_that_come_together_are_no_slow_gpu(case: Case, many: int) -> None:
    assert code(together(case, many), case) == "ArrivalsUneven"
    assert ratios(case, together(case, 1))


def test_the_longer_one_looks_the_narrower_the_band() -> None:
    short = ratios(CHAT, window(CHAT, 140.0, 3))
    assert short["prefill"].band > ratios(CHAT, seen(CHAT))["prefill"].band


def test_the_same_window_gives_the_same_ratio() -> None:
    found = seen(CHAT)
    assert measured(found, CHAT.model, BOTH) == measured(replace(found), CHAT.model, BOTH)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"most_generation": 2.0}, "SettingsChanged"),
        ({"most_budget": 4096.0}, "SettingsChanged"),
        ({"least_budget": None, "most_budget": None, "least_generation": None}, ""),
        ({"resets": 1.0}, "CounterReset"),
        ({"running": float("nan")}, "MetricsNotNumbers"),
        ({"preemptions": 5000.0}, "Preempted"),
        ({"preemptions": -1.0}, "MetricsNotNumbers"),
    ],
)
def test_a_window_that_is_not_of_one_engine_at_rest_gives_nothing(change: dict[str, float | None], why: str) -> None:
    found = changed(seen(CHAT), 2, **change)
    if why:
        assert code(found) == why
    else:  # one block without the gauges: the others tell them
        assert ratios(CHAT, found)


def test_a_part_without_measurements_or_too_few_requests_gives_nothing() -> None:
    found = seen(CHAT)
    assert code(replace(found, blocks=(*found.blocks[:3], {}, *found.blocks[4:]))) == "MetricsMissing"
    assert code(Window(found.seconds, ())) == "MetricsMissing"
    assert code(window(replace(CHAT, rate=0.05), SECONDS, 1)) == "TooFewRequests"
    without = tuple({k: v for k, v in b.items() if "budget" not in k[0]} for b in found.blocks)
    assert code(replace(found, blocks=without)) == "MetricsMissing"


def test_steps_that_tell_of_other_prompts_than_the_requests_give_nothing() -> None:
    blocks = tuple(
        {k: v * (2 if k == ("step_tokens", "prefill") else 1) for k, v in b.items()} for b in seen(CHAT).blocks
    )
    assert code(replace(seen(CHAT), blocks=blocks)) == "TokensDisagree"


def test_engines_that_came_or_went_give_nothing() -> None:
    assert code(changed(seen(CHAT), 5, engines=2.0)) == "EnginesChanged"
    assert ratios(CHAT, changed(seen(CHAT), 5, engines=1.1)), "a scrape more or less"


def test_an_engine_without_prompts_is_measured_by_its_tokens_alone() -> None:
    case = Case(prompt=(16, 17), output=(400, 500), rate=3.0)
    (found,) = measured(seen(case, steps=1.3), case.model, ("decode",))
    assert isinstance(found, StageRatio)
    assert found.value == pytest.approx(1.3, rel=0.1)


NUMBERS = st.one_of(st.floats(0, 1e6), st.sampled_from([0.0, 1e-300, 1e300, math.inf, math.nan, -1.0]))
KEYS = st.sampled_from(
    sorted({key for block in seen(CHAT).blocks for key in block} | {("prefills", "x"), ("tpots", "")})
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(KEYS, NUMBERS, max_size=8), st.integers(0, 5))
def test_whatever_somebody_exports_ends_in_a_ratio_or_a_reason(odd: dict[tuple[str, str], float], number: int) -> None:
    found = seen(CHAT)
    block = {**found.blocks[number], **odd}
    changed = replace(found, blocks=(*found.blocks[:number], block, *found.blocks[number + 1 :]))
    for one in measured(changed, CHAT.model, BOTH):
        assert isinstance(one, NotMeasured) or (one.value > 0 and one.band >= 0)
