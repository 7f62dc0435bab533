"""The published figures of the reference case (M8) beside ours, each with a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken.simulation.reference_case import StepResult

POINTS = 10.0  # how far a relative change or a share may be off


@dataclass(frozen=True)
class Check:
    """One figure. `theirs` and `ours` in words; `off`: percentage points, beyond a bound where theirs is one."""

    step: str
    figure: str
    theirs: str
    ours: str
    off: float | None
    met: bool


def checks(results: Sequence[StepResult]) -> list[Check]:
    """In the order of the steps."""
    base, kernel, chunks, cache, end = results
    return [
        _near("0", "GPU busy", 0.35, base.busy),
        _change("1", "prefill P95", (2.1, 1.3), (base.prefill, kernel.prefill)),
        _most("1", "attention in the prefill of short prompts", 0.10, kernel.built.attention),
        _change("2", "TTFT P95, from the baseline", (2.8, 1.6), (base.ttft, chunks.ttft)),
        _least("2", "GPU busy", 0.70, chunks.busy),
        _gone("2", base.swing, chunks.swing),
        _near("3", "prompt tokens from the cache", 0.40, cache.users.hit_rate),
        _change("3", "TTFT P95, from step 2", (1.6, 1.2), (chunks.ttft, cache.ttft)),
        _concurrency("4", base, end),
        _change("4", "TTFT P95, from step 3", (1.2, 1.2), (cache.ttft, end.ttft)),
        _change("end", "TTFT P95, from the baseline", (2.8, 1.2), (base.ttft, end.ttft)),
        _change("end", "prefill P95, from the baseline", (2.1, 0.8), (base.prefill, end.prefill)),
        _near("end", "GPU busy (the load was chosen by it)", 0.75, end.busy),
    ]


def _change(step: str, figure: str, theirs: tuple[float, float], ours: tuple[float, float]) -> Check:
    published, found = (100 * (after / before - 1) for before, after in (theirs, ours))
    told = f"{theirs[0]:g} → {theirs[1]:g} s, {published:+.0f} %"
    mine = f"{ours[0]:.2f} → {ours[1]:.2f} s, {found:+.0f} %"
    off = found - published
    return Check(step, figure, told, mine, off, abs(off) <= POINTS)


def _near(step: str, figure: str, theirs: float, ours: float) -> Check:
    off = 100 * (ours - theirs)
    return Check(step, figure, f"{100 * theirs:.0f} %", f"{100 * ours:.0f} %", off, abs(off) <= POINTS)


def _least(step: str, figure: str, theirs: float, ours: float) -> Check:
    return Check(
        step,
        figure,
        f"above {100 * theirs:.0f} %",
        f"{100 * ours:.0f} %",
        100 * min(0.0, ours - theirs),
        ours >= theirs,
    )


def _most(step: str, figure: str, theirs: float, ours: float) -> Check:
    return Check(
        step,
        figure,
        f"below {100 * theirs:.0f} %",
        f"{100 * ours:.0f} %",
        100 * max(0.0, ours - theirs),
        ours <= theirs,
    )


def _gone(step: str, before: float, after: float) -> Check:
    """Below 1 the spread is less than the mean; before it was above, and more than twice as large."""
    mine = f"swing {before:.2f} → {after:.2f}"
    return Check(
        step, "sawtooth at full load", "visible → gone", mine, None, before > max(1.0, 2 * after) and after < 1
    )


def _concurrency(step: str, before: StepResult, after: StepResult) -> Check:
    ratio = after.running / before.most_running
    mine = f"{before.most_running} → {after.running:.0f}, {ratio:.1f}×"
    return Check(step, "requests at once on a GPU", "10-odd → several dozen, above 2×", mine, None, ratio >= 2)
