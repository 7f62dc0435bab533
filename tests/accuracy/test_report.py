"""docs/accuracy.md and the intervals of plans are what the shipped efficiencies give."""

import re
from typing import Any

import pytest
import yaml

from firsttoken.planning.timing.efficiency import table
from firsttoken_accuracy.__main__ import DOCUMENT, FITS
from firsttoken_accuracy.evaluate import KERNELS_ONLY, PHASES, Pair, folds, intervals, kernel_excess
from firsttoken_accuracy.fitting import fit_experts
from firsttoken_accuracy.report import TARGETS, report
from firsttoken_accuracy.whole import Run

NUMBER = re.compile(r"[+-]?\d+\.\d+")


@pytest.fixture(scope="module")
def fits() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FITS.read_text())
    return found


@pytest.fixture(scope="module")
def in_turn() -> list[tuple[Run, Pair]]:
    return list(folds(table(), fit_experts))


def test_the_document_is_what_the_report_prints(fits: dict[str, Any], in_turn: list[tuple[Run, Pair]]) -> None:
    """Words to the letter; figures to the last digit shown, which another processor may round the other way."""
    text, figures = report(table(), fits, in_turn)
    kept = DOCUMENT.read_text()
    assert NUMBER.sub("#", text) == NUMBER.sub("#", kept), "make accuracy"
    pairs = zip(NUMBER.findall(text), NUMBER.findall(kept), strict=True)
    assert [(a, b) for a, b in pairs if abs(float(a) - float(b)) > 0.11] == [], "make accuracy"
    missed = [name for name in TARGETS if not figures["met"][name]]
    assert all("fp8_block" in name for name in missed), "every other target of the issue is met"


def test_intervals_are_what_was_kept_out(fits: dict[str, Any], in_turn: list[tuple[Run, Pair]]) -> None:
    found = intervals(table(), in_turn, fits["left_out"], fits["benchmark"])
    for level, widths in table()["intervals"].items():
        assert found[level] == pytest.approx(widths, abs=0.0011), level
    for phase in PHASES:
        widths = [found[level][phase] for level in ("measured", "kernels", "unmeasured", "rough")]
        assert widths == sorted(widths)
        assert found["measured"][phase] <= found["familiar"][phase] <= found["unmeasured"][phase]


def test_gpus_with_worse_kernels_and_no_whole_step_have_wider_intervals(fits: dict[str, Any]) -> None:
    assert KERNELS_ONLY == ("a100_sxm", "l40s")
    for phase in PHASES:
        excess = max(kernel_excess(system, phase, table(), fits["benchmark"]) for system in KERNELS_ONLY)
        known, kernels = (table()["intervals"][level][phase] for level in ("measured", "kernels"))
        assert kernels == pytest.approx(known * excess, abs=0.002)
        assert excess > 1.2
