"""Lengths: percentiles, moments and strata of a cut log-normal."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.planning.load.lengths import LONG_TAIL, SHORT_TAIL, LengthDistribution

LENGTHS = st.builds(
    lambda p50, factor, longest: LengthDistribution(p50, round(p50 * factor), longest),
    st.integers(1, 20_000),
    st.floats(1, 8),
    st.integers(1, 200_000),
)


def test_the_given_percentiles_come_out() -> None:
    lengths = LengthDistribution(1024, 4096, 32768)
    assert lengths.quantile(0.5) == pytest.approx(1024)
    assert lengths.quantile(0.95) == pytest.approx(4096)
    assert lengths.below(4096) == pytest.approx(0.95)
    assert lengths.below(0) == 0
    assert lengths.below(40_000) == 1


def test_moments_are_those_of_a_sample() -> None:
    """Azure's conversation trace (2023) has these percentiles and the mean 1155: a tail lighter than log-normal."""
    lengths, source = LengthDistribution(1020, 4083, 8192), random.Random(3)  # noqa: S311
    sample = [lengths.quantile(source.random()) for _ in range(200_000)]
    assert lengths.mean == pytest.approx(sum(sample) / len(sample), rel=0.01)
    assert lengths.second_moment == pytest.approx(sum(x * x for x in sample) / len(sample), rel=0.02)


def test_equal_percentiles_are_one_length() -> None:
    lengths = LengthDistribution(500, 500, 8192)
    assert lengths.mean == pytest.approx(500)
    assert lengths.second_moment == pytest.approx(250_000)
    assert {s.tokens for s in lengths.strata(LONG_TAIL)} == {500}
    assert {s.width for s in lengths.strata(LONG_TAIL)} == {0}
    assert (lengths.below(499), lengths.below(500)) == (0, 1)


@given(LENGTHS, st.sampled_from([LONG_TAIL, SHORT_TAIL]))
def test_strata_keep_the_mean_and_rise(lengths: LengthDistribution, edges: tuple[float, ...]) -> None:
    strata = lengths.strata(edges)
    assert sum(s.share for s in strata) == pytest.approx(1)
    assert sum(s.share * s.tokens for s in strata) == pytest.approx(max(1, lengths.mean), rel=0.01, abs=0.6)
    assert [s.tokens for s in strata] == sorted(s.tokens for s in strata)
    assert all(1 <= s.tokens <= max(1, lengths.longest) and 0 <= s.width < math.inf for s in strata)


@given(LENGTHS, st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_quantiles_rise(lengths: LengthDistribution, a: float, b: float) -> None:
    low, high = (lengths.quantile(q) for q in sorted((a, b)))
    assert 1 <= low <= high <= max(1, lengths.longest)
