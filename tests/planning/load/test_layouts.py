"""Prefill and decode apart: the balance of the two, whole replicas within a budget, and the comparison."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.planning.load import layouts
from firsttoken.planning.load.goodput import Goodput
from firsttoken.planning.load.layouts import RoleGoodput, Split, best_split, compare, ideal_per_gpu

RATES = st.floats(0.01, 100)
GPUS = st.integers(1, 8)


def test_a_balanced_split() -> None:
    """DistServe's arithmetic: a prefill GPU does 5.6 requests a second, a decode GPU 10, so 2 : 1 serves 3.3 each."""
    split = best_split(RoleGoodput(5.6, 1), RoleGoodput(10, 1), limit=3)
    assert split is not None
    assert (split.prefill, split.decode, split.rate) == (2, 1, 10)
    assert split.per_gpu == pytest.approx(3.33, abs=0.01)
    assert split.ideal_per_gpu == pytest.approx(1 / (1 / 5.6 + 1 / 10))


def test_nothing_fits_or_nothing_keeps_its_promises() -> None:
    assert best_split(RoleGoodput(5, 4), RoleGoodput(5, 4), limit=7) is None
    assert best_split(RoleGoodput(0, 1), RoleGoodput(5, 1), limit=8) is None


def test_without_a_limit_the_balance_counts() -> None:
    split = best_split(RoleGoodput(3, 1), RoleGoodput(1, 1))
    assert split is not None
    assert (split.prefill, split.decode) == (1, 3)


@given(RATES | st.integers(1, 6).map(float), GPUS, RATES | st.integers(1, 6).map(float), GPUS, st.integers(2, 64))
def test_a_split_is_the_best_of_all(a: float, g: int, b: float, h: int, limit: int) -> None:
    """Of all that fit, the most requests a second, then the fewest GPUs."""
    split = best_split(RoleGoodput(a, g), RoleGoodput(b, h), limit)
    fit = [(p, d) for p in range(1, limit + 1) for d in range(1, limit + 1) if p * g + d * h <= limit]
    if split is None:
        assert not fit
        return
    best = max(fit, key=lambda pd: (min(pd[0] * a, pd[1] * b), -pd[0] * g - pd[1] * h))
    assert (split.prefill, split.decode) == best
    assert split.gpus == split.prefill * g + split.decode * h <= limit
    assert split.rate == min(best[0] * a, best[1] * b)
    assert split.per_gpu <= ideal_per_gpu(RoleGoodput(a, g), RoleGoodput(b, h)) * (1 + 1e-9)


def test_a_large_budget_costs_no_more_than_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Split] = []

    def split(*fields: Any) -> Split:
        made.append(Split(*fields))
        return made[-1]

    monkeypatch.setattr(layouts, "Split", split)
    found = best_split(RoleGoodput(3.0, 2), RoleGoodput(1.7, 1), limit=100_000)
    assert found is not None
    assert len(made) < 10
    # Balanced: p x 3 = d x 1.7, and 2 p + d = 100 000.
    assert (found.prefill, found.decode) == (26_562, 46_875)
    assert found.rate == pytest.approx(100_000 * found.ideal_per_gpu, rel=1e-4)


def test_disaggregation_must_gain_more_than_the_model_may_be_off() -> None:
    split = best_split(RoleGoodput(4, 1), RoleGoodput(4, 1), limit=8)
    clear = compare(Goodput(1.5, None, "Compute", None), 1, split, 8, interval=0.2)
    assert (clear.colocated, clear.disaggregated, clear.clear) == (12, 16, True)
    assert clear.gain == pytest.approx(1 / 3)
    assert not compare(Goodput(1.8, None, "Compute", None), 1, split, 8, interval=0.2).clear
    assert not compare(Goodput(3.0, None, "Compute", None), 1, split, 8, interval=0.2).clear


def test_where_colocation_serves_nothing_any_split_is_better() -> None:
    split = best_split(RoleGoodput(4, 1), RoleGoodput(4, 1), limit=2)
    found = compare(Goodput(0.0, None, "Compute", None), 1, split, 2, interval=0.2)
    assert (found.gain, found.clear) == (None, True)
    assert not compare(Goodput(0.0, None, "Compute", None), 1, None, 2, interval=0.2).clear
