"""What comes of a rehearsal."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firsttoken.rehearsal.serving import LOST, Fate
from firsttoken.rehearsal.timeline import Entry
from firsttoken.rehearsal.windows import Cell


@dataclass(frozen=True)
class Rehearsal:
    """What came of it."""

    service: str
    seconds: float
    seed: int
    rate: float  # requests a second, as spec.workload or the plan says
    assumed_rate: bool
    entries: tuple[Entry, ...]
    cells: tuple[Cell, ...]
    buckets: tuple[str, ...]  # by which prompts are told apart, shortest first
    fates: Mapping[Fate, int]
    ready: bool  # at the end
    status: Mapping[str, Any]  # at the end
    passes: int  # of the operator
    writes: int
    pods_lost: int  # by the world
    bad: tuple[str, ...]  # revisions that the world made bad, and that got requests
    bad_events: int  # that made or could have made them bad
    kills_to_come: int  # of the operator, which wrote too little for them

    @property
    def lost(self) -> int:
        """Requests that got no whole answer."""
        return sum(self.fates[f] for f in LOST)

    @property
    def excused(self) -> bool:
        """Whether what was lost is what goes with pods that the world took."""
        others = self.fates[Fate.CUT_OFF] + self.fates[Fate.ERROR]
        return self.lost == 0 or (self.pods_lost > 0 and others == 0)

    @property
    def passed(self) -> bool:
        """Ready at the end, and no request was lost that did not go with a lost pod."""
        return self.ready and self.excused
