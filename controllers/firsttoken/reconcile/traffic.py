"""Which revision has the requests, and which gets them next.

The observed routes say who has them, where they are believable; the status remembers the rest. A new revision takes
over in one step when its whole capacity is there; the old one drains, then goes. Canary weights and judgement belong to
rollouts, but the order holds already: capacity before weight (S4, D13), the weight verified before anything is scaled
down (D9, invariants 2 and 3), and nothing goes while it finishes streams (S23). Each Envoy confirms the two steps that
users feel: that requests move, and that nobody is sent to what goes (0013).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from firsttoken.api.quantities import duration_seconds
from firsttoken.api.service import DrainingRevision, InferenceService, RevisionStatus
from firsttoken.reconcile.envoy_views import DEADLINE_SECONDS, Envoys, pause
from firsttoken.reconcile.objects import Progress, time_or
from firsttoken.reconcile.routes import Versions, carrying

MIN_DRAIN_SECONDS = 3.0  # the kubelet brings changed routes to Envoy in about one second (measured), not at once
MAX_DRAINING = 2  # quick edits must not pile up GPUs; pods of an older revision still drain within their grace period


@dataclass(frozen=True)
class Traffic:
    """Who serves. `stable` has the requests by the observed routes; `next_up` gets them by the routes to be written.

    They differ only in the pass that shifts. `draining` had requests; `look_at` is when the first of them may go;
    `gone` has had its time in this pass. `late` are the Envoys for which `desired` waits (or has waited long enough).
    """

    stable: str | None
    next_up: str | None
    draining: tuple[DrainingRevision, ...]
    shifted_at: str | None
    look_at: datetime | None
    gone: tuple[str, ...] = ()
    late: tuple[str, ...] = ()

    @property
    def kept(self) -> set[str]:
        """Revisions beside the desired one whose objects must stay."""
        return {name for name in (self.stable, self.next_up, *(d.name for d in self.draining)) if name is not None}


@dataclass(frozen=True)
class Arms:
    """What is known of the revisions: those that exist, Envoy's observed weights, and how far each one is."""

    existing: Collection[str]
    weights: Mapping[str, int]
    progress: Callable[[str], Progress]
    wants_none: Callable[[str], bool]  # scaled to zero
    envoys: Envoys
    versions: Versions | None  # of the observed routes
    overdue: bool  # Envoys have been awaited for long enough


def traffic(service: InferenceService, desired: str | None, arms: Arms, now: datetime) -> Traffic:
    """Where requests are, where they go next, and what drains."""
    seen = service.status.revision or RevisionStatus()
    stable = _stable(seen, desired, arms)
    late = _late(desired, stable, arms)
    takes_over = desired is not None and desired != stable and _takes_over(desired, stable, arms, late)
    next_up = desired if takes_over else _back_to(seen, stable, arms)
    if next_up is not None and next_up != stable and arms.wants_none(next_up):
        stable = next_up  # nobody has requests then: no weight will ever tell
    changed = stable != seen.stable
    shifted_at = now.isoformat(timespec="seconds") if changed and stable is not None else seen.shifted_at
    patience = timedelta(seconds=max(MIN_DRAIN_SECONDS, duration_seconds(service.spec.rollout.drain_timeout)))
    draining = _draining(seen, {desired, stable, next_up}, arms, now)
    looks = {d.name: _look_at(time_or(d.since, now) + patience, arms, now) for d in draining}
    left = tuple(d for d in draining if looks[d.name] is not None)
    look_at = min((when for when in looks.values() if when is not None), default=None)
    gone = tuple(d.name for d in draining if looks[d.name] is None)
    return Traffic(stable, next_up, left, shifted_at, look_at, gone, late)


def _stable(seen: RevisionStatus, desired: str | None, arms: Arms) -> str | None:
    """Who has the requests: by the routes; while these say nothing, by the status; failing both, by what runs.

    Routes and status differ after a crash between the two writes: the revision that requests moved to had its whole
    capacity then. Or somebody else wrote the routes (an edit, an old backup). So a revision that is not all there is
    not believed in over one that serves, and the routes are put right.
    """
    named = carrying(dict(arms.weights))
    by_routes = named if named in arms.existing else None
    by_status = seen.stable if seen.stable in arms.existing else None
    if by_routes is None or by_routes == by_status:
        return by_status or _largest(arms, desired)
    if arms.progress(by_routes).complete:
        return by_routes
    other = by_status or _largest(arms, desired)
    return other if other is not None and arms.progress(other).serves else by_routes


def _largest(arms: Arms, desired: str | None) -> str | None:
    """What serves, beside what is asked for, when nothing says who had the requests."""
    serving = [name for name in arms.existing if name != desired and arms.progress(name).serves]
    return max(serving, key=lambda name: (arms.progress(name).complete, name), default=None)


def _back_to(seen: RevisionStatus, stable: str | None, arms: Arms) -> str | None:
    """Who goes on: `stable`, or what still drains where it alone serves, the youngest first (S21)."""
    if stable is None or arms.wants_none(stable) or arms.progress(stable).serves:
        return stable
    able = [d.name for d in seen.draining if d.name in arms.existing and arms.progress(d.name).serves]
    ready = [name for name in able if name in arms.weights and arms.envoys.found(name)]
    return ready[-1] if ready else stable


def _look_at(end: datetime, arms: Arms, now: datetime) -> datetime | None:
    """When to look again at a revision that may drain until `end`, None if it may go: no Envoy sends to it, or the time
    for that is up as well.
    """
    if end > now:
        return end
    last = end + timedelta(seconds=DEADLINE_SECONDS)
    if last <= now or not arms.envoys.late(arms.versions):
        return None
    return min(last, now + timedelta(seconds=pause((now - end).total_seconds())))


def _late(candidate: str | None, stable: str | None, arms: Arms) -> tuple[str, ...]:
    """Envoys that a candidate which could take over waits for, or would, had they not had their time."""
    if candidate is None or candidate == stable or candidate not in arms.weights or arms.wants_none(candidate):
        return ()
    how, nobody = arms.progress(candidate), _nobody(stable, arms)
    if not how.serves or not (how.complete or nobody) or (nobody and arms.envoys.found(candidate)):
        return ()
    return arms.envoys.late(arms.versions, candidate)


def _nobody(stable: str | None, arms: Arms) -> bool:
    return stable is None or not arms.progress(stable).serves


def _takes_over(candidate: str, stable: str | None, arms: Arms, late: Collection[str]) -> bool:
    """The whole capacity comes first, and each Envoy has found it, or had its time. If nobody serves now, one replica
    and one Envoy are better than none (S21, D15). Requests never move to what no Envoy has found.
    """
    how, nobody = arms.progress(candidate), _nobody(stable, arms)
    if arms.wants_none(candidate):
        return how.complete
    if candidate not in arms.weights or not how.serves or not arms.envoys.found(candidate):
        return False
    return nobody or (how.complete and (arms.overdue or not late))


def _draining(seen: RevisionStatus, in_use: set[str | None], arms: Arms, now: datetime) -> list[DrainingRevision]:
    """Those that drained before and whoever had requests until now; a time in the future counts from now, for good."""
    stamp = now.isoformat(timespec="seconds")
    before = {d.name: min(time_or(d.since, now), now).isoformat(timespec="seconds") for d in seen.draining}
    if seen.stable is not None:
        before.setdefault(seen.stable, stamp)
    ordered = sorted((since, name) for name, since in before.items() if name in arms.existing and name not in in_use)
    return [DrainingRevision(name=name, since=since) for since, name in ordered[-MAX_DRAINING:]]
