"""The status of a service that can't be reconciled at all: what is in the way must be said, whatever it is (M1)."""

from datetime import datetime
from typing import Any

from pydantic import ValidationError

from firsttoken.api.service import InferenceServiceStatus
from firsttoken.reconcile.conditions import OURS, Aspect, dated
from firsttoken.reconcile.objects import Object

_SUMMARY = ("Ready", "Reconciling", "Stalled")


def failed_status(service: Object, reason: str, message: str, now: datetime) -> dict[str, Any] | None:
    """The status as it is with Ready=False and Stalled=True; None if it says so already, or can't be read."""
    raw = service.get("status") or {}
    try:
        before = InferenceServiceStatus.model_validate(raw)
    except ValidationError:
        return None
    aspects = [Aspect("Ready", False, reason, message), Aspect("Stalled", True, reason, message)]
    # Not about this generation: nothing was decided on it. Where nothing ever was, that would read as "not looked at
    # yet", for ever.
    never = before.revision is None
    seen = int(service["metadata"].get("generation", 1)) if never else max(0, before.observed_generation or 0)
    told = dated(aspects, before.conditions, now, seen)
    kept = [c for c in before.conditions if c.type in OURS and c.type not in _SUMMARY]
    others = [c for c in raw.get("conditions") or () if c.get("type") not in OURS]
    wire = {**raw, "conditions": [*(c.wire() for c in (*told, *kept)), *others]}
    if never:
        wire["observedGeneration"] = seen
    return None if wire == raw else wire
