"""When requests arrive: Poisson, burstier or more even than that, and with the time of the day."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firsttoken.simulation.errors import SimulationInputError

DAY = 86_400.0
# Points at which a period's arrivals are added up; the rate is a sine, so a straight line between them is close.
GRID = 4096


@dataclass(frozen=True)
class Arrivals:
    """Requests a second, on average over a period.

    `burstiness`: shape of the Gamma distribution of the gaps, as in vLLM's benchmark: 1 is Poisson, below it bursts,
    above it regularity; the variance of a gap is its mean squared over this. `swing`: how far the rate goes up and down
    in a period, as a part of its mean; 0 is constant. `peak`: when it is highest, seconds.
    """

    requests_per_second: float
    burstiness: float = 1.0
    swing: float = 0.0
    period: float = DAY
    peak: float = DAY / 2

    def __post_init__(self) -> None:
        for name in ("requests_per_second", "burstiness", "period"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise SimulationInputError(f"{name} is {value}: give a number above 0")
        if not 0 <= self.swing < 1:
            raise SimulationInputError(f"swing is {self.swing}: give a part of the rate, from 0 to below 1")
        if not math.isfinite(self.peak):
            raise SimulationInputError(f"peak is {self.peak}: give seconds")

    def first(self, count: int, source: np.random.Generator) -> NDArray[np.float64]:
        """The first `count` arrivals, seconds from 0."""
        gaps = source.gamma(self.burstiness, 1 / (self.burstiness * self.requests_per_second), count)
        return self._bent(np.cumsum(gaps))

    def within(self, seconds: float, source: np.random.Generator) -> NDArray[np.float64]:
        """Those before `seconds`."""
        found: list[NDArray[np.float64]] = []
        last, wanted = 0.0, self._even(seconds)
        # A few at a time until the end is passed, so that the same seed gives the same beginning of a longer run.
        while last < wanted:
            gaps = source.gamma(self.burstiness, 1 / (self.burstiness * self.requests_per_second), 1024)
            found.append(last + np.cumsum(gaps))
            last = float(found[-1][-1])
        even = np.concatenate(found) if found else np.zeros(0)
        return self._bent(even[even < wanted])

    def _even(self, time: NDArray[np.float64] | float) -> NDArray[np.float64] | float:
        """Seconds at a constant rate in which as many arrive as until `time`: the integral of rate over mean rate."""
        if not self.swing:
            return time
        turn = 2 * math.pi / self.period
        start = math.sin(-turn * self.peak)
        return time + self.swing / turn * (np.sin(turn * (np.asarray(time) - self.peak)) - start)

    def _bent(self, even: NDArray[np.float64]) -> NDArray[np.float64]:
        """The inverse of `_even`."""
        if not self.swing or not len(even):
            return even
        # What arrives in a whole period is the same as at a constant rate.
        periods = np.floor(even / self.period)
        grid = np.linspace(0, self.period, GRID + 1)
        inside = np.interp(even - periods * self.period, np.asarray(self._even(grid)), grid)
        return np.asarray(inside + periods * self.period)
