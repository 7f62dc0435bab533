"""Conditions: kept stable while nothing changes, told as events when something does."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from firsttoken.api.base import Condition
from firsttoken.reconcile.envoy_views import AWAITED
from firsttoken.reconcile.observation import Event

_MAX_MESSAGE = 1024  # events are cut there by the API server; conditions say the same

# The conditions of DESIGN §3, and the one of 0013. Others may add theirs; they are left alone.
OURS = frozenset(
    {
        *("Ready", "Reconciling", "Stalled", "Planned", "Available", "RolloutProgressing", AWAITED),
        *("SLOMet", "TuningActive", "MetricsAvailable", "DriftDetected"),
    }
)
_SUMMARY = {"Reconciling", "Stalled", AWAITED}  # repeat what Ready says: for kstatus, and with a time of its own

# A False (or, for Stalled, True) with one of these reasons is a normal stage on the way, not a fault.
_STAGES = {"Progressing", "WaitingForPods", "GatewayProgressing", "EnvoySyncing", "Shifting"}
_STAGES |= {"WaitingForRoute", "RollingOut", "Deleting"}


@dataclass(frozen=True)
class Aspect:
    """One judgement of this reconcile, before it is dated."""

    type: str
    holds: bool
    reason: str
    message: str


def dated(aspects: Iterable[Aspect], before: Iterable[Condition], now: datetime, generation: int) -> list[Condition]:
    """Conditions with `lastTransitionTime` kept where the status is what it was."""
    seen = {c.type: c for c in before}
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = []
    for aspect in aspects:
        status = "True" if aspect.holds else "False"
        old = seen.get(aspect.type)
        since = old.last_transition_time if old is not None and old.status == status else stamp
        conditions.append(
            Condition(
                type=aspect.type,
                status=status,
                reason=aspect.reason,
                message=aspect.message[:_MAX_MESSAGE],
                last_transition_time=since,
                observed_generation=generation,
            )
        )
    return conditions


def transitions(before: Iterable[Condition], after: Iterable[Condition]) -> tuple[Event, ...]:
    """One event for each condition that changed its status or reason, or ended; what only repeats Ready tells none."""
    seen = {c.type: c for c in before}
    events = []
    for condition in after:
        old = seen.pop(condition.type, None)
        if condition.type in _SUMMARY or (old is not None and _same(old, condition)):
            continue
        kind = "Normal" if condition.status == "True" or condition.reason in _STAGES else "Warning"
        events.append(Event(kind, condition.reason, f"{condition.type}: {condition.message}"))
    ended = [c for c in seen.values() if c.type == "RolloutProgressing" and c.status == "True"]
    events += [Event("Normal", "RolloutEnded", "RolloutProgressing: nothing is under way any more") for _ in ended]
    return tuple(events)


def _same(old: Condition, new: Condition) -> bool:
    return (old.status, old.reason) == (new.status, new.reason)
