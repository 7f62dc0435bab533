"""Quantiles of times: exact where all are kept, within 1 % where only a histogram is."""

import math

import numpy as np
from numpy.typing import NDArray

# Bins from a microsecond to more than a day, each 2 % wider than the one before: its geometric middle is at most 1 %
# from anything in it. What is shorter (or 0) is kept as the shortest, and taken for 0.
SHORTEST = 1e-6
RATIO = 1.02
BINS = math.ceil(math.log(1e11) / math.log(RATIO))


def quantile(values: NDArray[np.float64], share: float) -> float:
    """The smallest of `values` that `share` of them do not exceed; NaN of none. The one rule wherever one is told."""
    return float(np.quantile(values, share, method="inverted_cdf")) if len(values) else math.nan


class LogHistogram:
    """Counts of times in bins that grow with the time; seconds. Bounded memory, however many are added."""

    def __init__(self) -> None:
        self.counts: NDArray[np.int64] = np.zeros(BINS + 1, np.int64)
        self.total = 0.0

    @property
    def count(self) -> int:
        """Times added."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Exact; NaN of none."""
        return self.total / self.count if self.count else math.nan

    def add(self, seconds: NDArray[np.float64]) -> None:
        """Times; NaN is left out."""
        known = seconds[~np.isnan(seconds)]
        self.total += float(known.sum())
        places = np.floor(np.log(np.maximum(known, SHORTEST / 2) / SHORTEST) / math.log(RATIO)).astype(np.int64) + 1
        self.counts += np.bincount(np.clip(places, 0, BINS), minlength=BINS + 1)

    def quantile(self, share: float) -> float:
        """The time that `share` of them do not exceed (the smallest such), within 1 %; NaN of none."""
        if not self.count:
            return math.nan
        place = int(np.searchsorted(np.cumsum(self.counts), max(1, math.ceil(share * self.count))))
        return 0.0 if place == 0 else SHORTEST * RATIO ** (place - 0.5)


class Kept:
    """The same with every time kept: exact quantiles, memory in proportion."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.float64]] = []

    @property
    def _all(self) -> NDArray[np.float64]:
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0] if self._parts else np.zeros(0)

    @property
    def count(self) -> int:
        """Times added."""
        return len(self._all)

    @property
    def mean(self) -> float:
        """NaN of none."""
        return float(self._all.mean()) if self.count else math.nan

    def add(self, seconds: NDArray[np.float64]) -> None:
        """Times; NaN is left out."""
        self._parts.append(seconds[~np.isnan(seconds)])

    def quantile(self, share: float) -> float:
        """The smallest time that `share` of them do not exceed; NaN of none."""
        return quantile(self._all, share)
