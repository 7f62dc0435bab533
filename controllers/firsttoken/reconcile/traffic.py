"""Which revision carries the requests: a new one takes over when it is complete, the old one drains, then goes.

Canary weights and judgement belong to rollouts; until then a change is one step from 0 to 100 %. The order holds
already: capacity before weight (S4, D13), weight before scale-down (D9), no revision goes while it finishes streams.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from firsttoken.api.quantities import duration_seconds
from firsttoken.api.service import InferenceService, RevisionStatus
from firsttoken.reconcile.objects import Progress


@dataclass(frozen=True)
class Traffic:
    """Who serves. `stable` has all requests (None: nobody can serve yet); `draining` had them until `shifted_at`."""

    stable: str | None
    draining: tuple[str, ...]
    shifted_at: str | None
    drained_at: datetime | None  # when the draining revisions may go
    lost: str | None = None  # it serves, but somebody deleted its record: touch neither it nor the gateway

    @property
    def kept(self) -> set[str]:
        """Revisions beside the desired one whose objects must stay."""
        return {*self.draining, *([self.stable] if self.stable else [])}

    @property
    def untouchable(self) -> set[str]:
        """Revisions whose objects must not be deleted."""
        return {*self.kept, *([self.lost] if self.lost else [])}


def traffic(
    service: InferenceService,
    desired: str | None,
    existing: Collection[str],
    progress_of: Callable[[str], Progress],
    is_known_to_gateway: Callable[[str], bool],
    *,
    now: datetime,
) -> Traffic:
    """Where requests go now; `progress_of(revision)` sums the parts of a revision, `existing` are those on record."""
    seen = service.status.revision or RevisionStatus()
    stable = seen.stable if seen.stable in existing else _serving(existing, progress_of)
    lost = seen.stable if stable is None else None
    draining = [name for name in seen.draining if name in existing and name not in (desired, stable)]
    shifted_at = seen.shifted_at
    if (
        desired is not None
        and desired != stable
        and _takes_over(progress_of(desired), stable, is_known_to_gateway(desired))
    ):
        if stable is not None:
            draining.append(stable)
        stable, shifted_at, lost = desired, now.isoformat(timespec="seconds"), None
    drained_at = _drained_at(service, shifted_at, now)
    if drained_at is not None and now >= drained_at:
        draining = []
    return Traffic(stable, tuple(draining), shifted_at, drained_at if draining else None, lost)


def _serving(existing: Collection[str], progress_of: Callable[[str], Progress]) -> str | None:
    """With the status lost (a restored backup, an edit), what runs is the truth: the revision that is complete."""
    complete = sorted(name for name in existing if (p := progress_of(name)).complete and p.serves)
    return complete[-1] if complete else None


def _takes_over(candidate: Progress, stable: str | None, known: bool) -> bool:
    """With nobody serving, one replica is better than none; otherwise the whole capacity comes first."""
    return candidate.serves and known and (stable is None or candidate.complete)


def _drained_at(service: InferenceService, shifted_at: str | None, now: datetime) -> datetime | None:
    if shifted_at is None:
        return None
    # A clock that jumped back must not keep a revision for ever: a shift in the future counts from now.
    shifted = min(datetime.fromisoformat(shifted_at), now)
    return shifted + timedelta(seconds=duration_seconds(service.spec.rollout.drain_timeout))
