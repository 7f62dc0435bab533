"""What `status` says, as values: made from fetched objects, without a cluster and without a terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

Object = Mapping[str, Any]

LAST_EVENTS = 5
PATIENCE_SECONDS = 30  # an operator that runs looks at a changed spec within a second or two


@dataclass(frozen=True)
class Revision:
    """One revision and its part in serving."""

    name: str
    part: str  # serving | starting | draining
    why: str  # what changed when it was made
    since: str | None = None  # when it got its last new request, for one that drains
    replicas: Mapping[str, int] = field(default_factory=dict)  # wanted, by role, of the one that serves


@dataclass(frozen=True)
class Event:
    """Something that was told."""

    time: str
    type: str
    reason: str
    message: str
    count: int


@dataclass(frozen=True)
class Report:
    """Everything `status NAME` shows. `ready` is about the spec as it is now, not about an older one."""

    namespace: str
    name: str
    ready: bool
    reason: str
    message: str
    since: str | None = None
    created: str | None = None
    endpoint: str | None = None
    layout: str | None = None
    gpus: int | None = None
    revisions: tuple[Revision, ...] = ()
    canary_weight: int | None = None
    roles: tuple[Object, ...] = ()
    reasons: tuple[Object, ...] = ()
    conditions: tuple[Object, ...] = ()
    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = field(default=())  # what could not be read, and why
    unseen_since: str | None = None  # when the spec became what no operator has looked at yet

    def wire(self) -> dict[str, Any]:
        """For `-o json`: camelCase keys, lists where the report has tuples, nothing left out."""
        return {_camel(key): _plain(value) for key, value in asdict(self).items()}


def report(
    service: Object, revisions: Sequence[Object] = (), events: Sequence[Object] = (), notes: Sequence[str] = ()
) -> Report:
    """The report on one InferenceService; `revisions` and `events` may hold those of others."""
    meta, status = service["metadata"], service.get("status") or {}
    plan = status.get("plan") or {}
    ready = _condition(status, "Ready")
    outdated = (status.get("observedGeneration") or 0) < meta.get("generation", 1)
    verdict = _verdict(ready, outdated, bool(meta.get("deletionTimestamp")))
    return Report(
        namespace=meta.get("namespace", "default"),
        name=meta["name"],
        ready=verdict[0],
        reason=verdict[1],
        message=verdict[2],
        since=ready.get("lastTransitionTime") if ready else None,
        created=meta.get("creationTimestamp"),
        endpoint=_endpoint(status),
        layout=status.get("layout"),
        gpus=plan.get("gpus"),
        revisions=_revisions(status.get("revision") or {}, revisions),
        canary_weight=(status.get("revision") or {}).get("canaryWeight"),
        roles=tuple(plan.get("roles") or ()),
        reasons=tuple(plan.get("reasons") or ()),
        conditions=tuple(status.get("conditions") or ()),
        events=last_events(service, events),
        notes=tuple(notes),
        unseen_since=_changed(meta) if verdict[1] in _UNSEEN else None,
    )


_UNSEEN = ("NotSeen", "SpecChanged")


def _changed(meta: Object) -> str | None:
    """When somebody last wrote the object itself, as far as the API server tells; not its status or its scale."""
    times = [str(e["time"]) for e in meta.get("managedFields") or () if e.get("time") and not e.get("subresource")]
    return max(times, default=meta.get("creationTimestamp"))


def left_alone(seen: Report, now: datetime) -> str:
    """A hint where the newest spec has waited for longer than an operator that runs would need; empty before."""
    waited = _seconds(seen.unseen_since, now)
    if waited is None or waited <= PATIENCE_SECONDS:
        return ""
    return (
        f"No operator has looked at it for {age(seen.unseen_since, now)}: is one running? "
        "kubectl get deployments -A -l app.kubernetes.io/name=firsttoken"
    )


def _verdict(ready: Object | None, outdated: bool, deleted: bool) -> tuple[bool, str, str]:
    """(ready, reason, message). Ready=True about an older spec is not an answer about this one (S2)."""
    if deleted:
        return False, "Deleting", "it is being deleted"
    if ready is None:
        return False, "NotSeen", "no operator has looked at it yet; if this stays, see whether the operator runs"
    if outdated:
        return False, "SpecChanged", "the spec changed, and the operator has not looked at it yet"
    return ready["status"] == "True", str(ready.get("reason", "")), str(ready.get("message", ""))


def _endpoint(status: Object) -> str | None:
    """Where it answers. A service that was never rendered has no such Service yet, though its name is known."""
    rendered = status.get("plan") is not None or (status.get("revision") or {}).get("stable") is not None
    available = (_condition(status, "Available") or {}).get("status") == "True"
    return status.get("endpoint") if rendered or available else None


def _condition(status: Object, kind: str) -> Object | None:
    return next((c for c in status.get("conditions") or () if c.get("type") == kind), None)


def _revisions(seen: Object, records: Sequence[Object]) -> tuple[Revision, ...]:
    """Those that matter now, the one with the requests first. Old records are history and stay out."""
    why = {r["metadata"]["name"]: str(((r.get("spec") or {}).get("reason") or {}).get("message", "")) for r in records}
    stable, desired = seen.get("stable"), seen.get("desired")
    draining = [(str(old["name"]), "draining", str(old["since"])) for old in seen.get("draining") or ()]
    parts = [(stable, "serving", None), *([(desired, "starting", None)] if desired != stable else ()), *draining]
    sizes = {"serving": dict(seen.get("stableReplicas") or {})}
    return tuple(
        Revision(name, part, why.get(name, ""), since, sizes.get(part, {})) for name, part, since in parts if name
    )


def last_events(service: Object, events: Sequence[Object]) -> tuple[Event, ...]:
    """The newest events about this very object (by uid: an older one may have had the same name), oldest first."""
    uid = service["metadata"].get("uid")
    own = [e for e in events if (e.get("involvedObject") or {}).get("uid") == uid]
    own.sort(key=lambda e: (_time(e), e["metadata"].get("name", "")))
    return tuple(
        Event(
            _time(e), str(e.get("type", "")), str(e.get("reason", "")), str(e.get("message", "")), e.get("count") or 1
        )
        for e in own[-LAST_EVENTS:]
    )


def _time(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


def age(timestamp: str | None, now: datetime) -> str:
    """How long ago, in kubectl's manner: `45s`, `12m`, `3h`, `9d`; nothing for an unreadable time."""
    seconds = _seconds(timestamp, now)
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _seconds(timestamp: str | None, now: datetime) -> int | None:
    try:
        then = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return None
    return max(0, int((now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()))


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(part.title() for part in rest)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
