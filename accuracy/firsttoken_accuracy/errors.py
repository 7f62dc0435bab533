"""Errors of predictions, and lines of a table about them."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from statistics import mean, median


@dataclass(frozen=True)
class Errors:
    """Relative errors: predicted / measured - 1."""

    count: int
    mape: float
    median: float  # of the absolute error
    p90: float
    bias: float  # mean with its sign

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> "Errors":
        """Pairs of predicted and measured seconds; at least one."""
        signed = [predicted / measured - 1 for predicted, measured in pairs]
        absolute = sorted(map(abs, signed))
        return cls(len(signed), mean(absolute), median(absolute), quantile(absolute, 0.9), mean(signed))

    def cells(self) -> str:
        """For a Markdown table: rows, MAPE, median, P90, bias."""
        percent = (f"{100 * x:.1f}" for x in (self.mape, self.median, self.p90))
        return f"{self.count} | {' | '.join(percent)} | {100 * self.bias:+.1f}"


def quantile(ordered: list[float], share: float) -> float:
    """The smallest value that at least `share` of the ordered values do not exceed."""
    # 0.9 x 10 is exactly 9 in floating point, but 0.95 x 20 need not be 19: a rounding must not cost a rank.
    return ordered[max(0, ceil(share * len(ordered) - 1e-9) - 1)]
