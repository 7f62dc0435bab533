"""The search for the largest rate of a grid that a replica stands: few looks, since each solves a steady state."""

import math
from collections.abc import Callable
from typing import NamedTuple

from firsttoken.planning.load.responses import Replica

# Rates that are tried lie on one grid below the engine's capacity, the same for every SLO: a tighter one can't come out
# better. Less than a thousandth of the capacity counts as nothing.
GRID_STEP = 1.02
GRID_POINTS = math.ceil(math.log(1000) / math.log(GRID_STEP))
LOG_STEP = math.log(GRID_STEP)


class Trial(NamedTuple):
    """A replica at one rate. `strain` tells the search where to look next, and decides nothing."""

    replica: Replica
    kept: bool
    strain: float  # about the logarithm of the rate over the largest one that is kept


class Search:
    """A bracket around the largest point that is kept, closed from a guess. What is kept at a rate is below it, too."""

    def __init__(self, at: Callable[[int], Trial]) -> None:
        """`at` a point from 0 to GRID_POINTS - 1."""
        self._at = at
        self.low, self.high = -1, GRID_POINTS
        self.above: Replica | None = None  # at `high`, where that was looked at
        self._below_by = self._above_by = 0.0  # strain at both ends
        self._kept_last, self._in_a_row = False, 0

    def look(self, point: int) -> bool:
        """Whether that point, inside the bracket, is kept."""
        return self.learn(point, self._at(point))

    def learn(self, point: int, trial: Trial) -> bool:
        """The same of a trial that was made elsewhere: there, or at a rate above it that is kept."""
        replica, kept, strain = trial
        if kept:
            self.low, self._below_by = point, min(strain, -LOG_STEP / 2)
        else:
            self.high, self._above_by, self.above = point, max(strain, LOG_STEP / 2), replica
        self._in_a_row = self._in_a_row + 1 if kept == self._kept_last else 1
        self._kept_last = kept
        return kept

    def look_outwards(self) -> bool:
        """Whether the next guess below a point that is not kept is."""
        return self.low < self.high - 1 and self.look(self._guess())

    def close(self) -> None:
        """Looks until the ends of the bracket are neighbours."""
        while self.high - self.low > 1:
            self.look(self._guess())

    def _guess(self) -> int:
        """Where the strain is 0 by a straight line, on which an end that stays is taken for ever nearer (Illinois)."""
        low, high = self.low, self.high
        if self.above is None:
            found = low + self._stride(-self._below_by)
        elif low < 0:
            found = high - self._stride(self._above_by)
        else:
            below, above, stays = -self._below_by, self._above_by, 0.5 ** (self._in_a_row - 1)
            below, above = (below, above * stays) if self._kept_last else (below * stays, above)
            found = low + round((high - low) * below / (below + above))
        return max(low + 1, min(high - 1, found))

    def _stride(self, strain: float) -> int:
        """Points from the only end that was looked at: as many as its strain says, and more with every look."""
        return round(strain / LOG_STEP) + (1 << self._in_a_row) - 1
