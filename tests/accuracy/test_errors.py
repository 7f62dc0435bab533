"""Figures about errors."""

import pytest

from firsttoken_accuracy.errors import Errors, quantile


@pytest.mark.parametrize(
    ("count", "share", "rank"),
    [
        (10, 0.9, 9),
        (20, 0.95, 19),
        (100, 0.9, 90),
        (11, 0.9, 10),
        (5, 0.9, 5),
        (1, 0.9, 1),
        (10, 1.0, 10),
        (10, 0.0, 1),
    ],
)
def test_a_quantile_is_the_smallest_value_that_enough_do_not_exceed(count: int, share: float, rank: int) -> None:
    values = [float(n) for n in range(1, count + 1)]
    found = quantile(values, share)
    assert found == rank
    assert sum(v <= found for v in values) >= share * count
    assert rank == 1 or sum(v < found for v in values) < share * count


def test_errors_are_relative_to_what_was_measured_and_keep_their_sign_in_the_bias() -> None:
    found = Errors.of([(1.1, 1.0), (0.7, 1.0), (4.0, 2.0)])
    assert (found.count, found.median) == (3, pytest.approx(0.3))
    assert found.mape == pytest.approx((0.1 + 0.3 + 1.0) / 3)
    assert found.bias == pytest.approx((0.1 - 0.3 + 1.0) / 3)
    assert found.p90 == 1.0
