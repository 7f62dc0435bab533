"""The story of the reference case (M8): each cure brings what the article says of it, with one set of parameters."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from bench.reference_case import DOCUMENT, inputs, played
from bench.reference_checks import Check, checks

from firsttoken.simulation.reference_case import STEPS, StepResult, build, play_all

# The document says why; one that is met one day is news for it.
UNMET = {
    ("2", "TTFT P95, from the baseline"),
    ("end", "TTFT P95, from the baseline"),
    ("end", "prefill P95, from the baseline"),
}


@cache
def short() -> Sequence[StepResult]:
    """Other requests than the document's, and fewer."""
    return play_all(*inputs(), seconds=400.0, seed=7)


def found(step: str, figure: str) -> Check:
    (one,) = [c for c in checks(short()) if (c.step, c.figure) == (step, figure)]
    return one


def test_each_step_changes_one_thing() -> None:
    for before, after in itertools.pairwise(STEPS):
        changed = [name for name, value in vars(before).items() if name != "name" and value != getattr(after, name)]
        assert len(changed) == 1


def test_the_kernel_shortens_prefill() -> None:
    assert found("1", "prefill P95").met
    before, after = short()[:2]
    assert after.built.attention < 0.1
    assert before.built.attention > 0.2


def test_joining_at_every_step_ends_queue_and_sawtooth() -> None:
    before, after = short()[1:3]
    assert before.waiting > 0.5  # of TTFT: a scheduling problem (M2.3)
    assert after.waiting < 0.2
    assert after.ttft < before.ttft / 2
    assert after.busy > before.busy + 0.2
    assert before.swing > 2
    assert after.swing < 1


def test_the_prefix_cache_skips_two_fifths_of_prefill() -> None:
    before, after = short()[2:4]
    assert before.users.hit_rate == 0
    assert after.users.hit_rate == pytest.approx(0.4, abs=0.1)
    assert after.users.ttft.p50 < 0.85 * before.users.ttft.p50  # caches begin empty in a short run


def test_kv_by_need_at_least_doubles_concurrency() -> None:
    reserved, by_need = short()[3:]
    assert reserved.running < 13
    assert by_need.running > 2 * reserved.running
    assert by_need.rate > 1.5 * reserved.rate
    assert by_need.full_ttft_p95 < reserved.full_ttft_p95 / 2


def test_a_check_fails_where_a_cure_does_nothing() -> None:
    base, kernel, *_ = results = list(short())
    idle = [base, base, base, base, base]
    assert not any(c.met for c in checks(idle) if c.step in "1234" and "from step 3" not in c.figure)
    slow = replace(kernel, built=replace(kernel.built, attention=0.3))
    assert [c.met for c in checks([base, slow, *results[2:]]) if "attention" in c.figure] == [False]


def test_without_its_host_the_baseline_would_not_idle() -> None:
    """Where GPU busy comes from: a pass of plain PyTorch takes as long as its launches, whatever the GPU does."""
    facts, profile = inputs()
    eager, engine = build(STEPS[1], facts, profile), build(STEPS[2], facts, profile)
    assert eager.decode_seconds == pytest.approx(1 / 25.5)
    assert engine.decode_seconds < 0.6 * eager.decode_seconds


def test_the_document_is_what_the_command_prints() -> None:
    text, figures = played()
    assert DOCUMENT.read_text(encoding="utf-8") == text, "run make reference-case"
    assert {(c["step"], c["figure"]) for c in figures["checks"] if not c["met"]} == UNMET
    assert re.search(rf"\*\*{figures['met']} of {len(figures['checks'])} figures", text)
