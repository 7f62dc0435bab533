"""Objects that somebody else keeps changing: put right at once a few times, then ever more rarely.

Without it an admission policy that stamps every write, or a second controller, makes two programs write for ever.
The memory is this process's own: forgetting it (a restart) costs a few writes.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from firsttoken.manifests.names import FIELD_MANAGER
from firsttoken.reconcile.objects import Ref, ref
from firsttoken.reconcile.records import content_hash

FREE_REPAIRS = 5  # in a row, before pauses begin
_PAUSE_SECONDS = (5.0, 300.0)
_FORGET_SECONDS = 900.0


@dataclass
class _Repair:
    wanted: str
    count: int
    last: float


class Contest:
    """Remembers how often each object had to be applied with the same content."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._repairs: dict[tuple[str, Ref], _Repair] = {}

    def split(
        self, uid: str, objects: Iterable[dict[str, Any]]
    ) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...], float | None]:
        """What to apply now, what to leave for now, and after how many seconds to look at the latter again."""
        now, later, delays = [], [], []
        for obj in objects:
            wait = self._wait(uid, obj)
            if wait > 0:
                later.append(obj)
                delays.append(wait)
            else:
                now.append(obj)
        self._forget()
        return tuple(now), tuple(later), min(delays, default=None)

    def is_new(self, uid: str, obj: Mapping[str, Any]) -> bool:
        """Whether this is the first pause of an object: the moment to tell people."""
        repair = self._repairs.get((uid, ref(obj)))
        return repair is not None and repair.count == FREE_REPAIRS

    def _wait(self, uid: str, obj: dict[str, Any]) -> float:
        key, wanted, time_now = (uid, ref(obj)), content_hash(obj), self._clock()
        seen = self._repairs.get(key)
        if seen is None or seen.wanted != wanted:
            self._repairs[key] = _Repair(wanted, 1, time_now)
            return 0.0
        first, longest = _PAUSE_SECONDS
        pause = 0.0 if seen.count < FREE_REPAIRS else min(longest, first * 2.0 ** min(seen.count - FREE_REPAIRS, 10))
        left = seen.last + pause - time_now
        if left <= 0:
            seen.count, seen.last = seen.count + 1, time_now
        return max(0.0, left)

    def _forget(self) -> None:
        old = self._clock() - _FORGET_SECONDS
        for key in [k for k, r in self._repairs.items() if r.last < old]:
            del self._repairs[key]


def managers(observed: Mapping[str, Any] | None) -> str:
    """Who else writes the fields of an object, by its managedFields."""
    entries = ((observed or {}).get("metadata") or {}).get("managedFields") or ()
    names = {e.get("manager", "?") for e in entries if e.get("manager") != FIELD_MANAGER and not e.get("subresource")}
    return ", ".join(sorted(names)) or "nobody by name (an admission policy, perhaps)"
