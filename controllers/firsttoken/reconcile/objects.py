"""Kubernetes objects as plain dicts: who they are, whose they are, whether they are done."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from firsttoken.manifests import groups
from firsttoken.manifests.names import FIELD_MANAGER

Object = Mapping[str, Any]

# What keeps pods: a replica is a pod of the first, a group of pods of the second.
WORKLOADS = (("apps/v1", "Deployment"), (groups.API_VERSION, groups.KIND))


@dataclass(frozen=True, order=True)
class Ref:
    """What an object is called in one namespace."""

    api_version: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def ref(obj: Object) -> Ref:
    """The reference of an object."""
    return Ref(obj["apiVersion"], obj["kind"], obj["metadata"]["name"])


def is_workload(obj: Object) -> bool:
    """Whether the object keeps pods."""
    return (obj["apiVersion"], obj["kind"]) in WORKLOADS


def label(obj: Object, name: str) -> str | None:
    """The value of a label, None if it is not there."""
    value = (obj["metadata"].get("labels") or {}).get(name)
    return None if value is None else str(value)


def controller_uid(obj: Object) -> str | None:
    """UID of the object's controlling owner."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["uid"])
    return None


def is_owned(obj: Object, uid: str) -> bool:
    """Ours to change: controlled by the service, or an orphan that we once applied (its owner was cut off)."""
    owner = controller_uid(obj)
    return owner == uid or (owner is None and applied_fields(obj) is not None)


def applied_fields(obj: Object) -> Mapping[str, Any] | None:
    """The fields we own by server-side apply (`fieldsV1`), None if we never applied this object."""
    for entry in obj["metadata"].get("managedFields") or ():
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply" and not entry.get("subresource"):
            return dict(entry.get("fieldsV1") or {})
    return None


def owned_by(service: Object) -> dict[str, Any]:
    """The owner reference that makes the garbage collector remove an object with its service."""
    meta = service["metadata"]
    return {
        "apiVersion": service["apiVersion"],
        "kind": service["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def adopt(obj: Object, service: Object) -> dict[str, Any]:
    """`obj` in the service's namespace with the service as its owner."""
    meta = {**obj["metadata"], "namespace": service["metadata"]["namespace"], "ownerReferences": [owned_by(service)]}
    return {**obj, "metadata": meta}


def condition(obj: Object, kind: str) -> Mapping[str, Any] | None:
    """One condition of an object's status."""
    for item in (obj.get("status") or {}).get("conditions") or ():
        if item.get("type") == kind:
            return dict(item)
    return None


@dataclass(frozen=True)
class Progress:
    """How far a workload is: replicas of its *current* template only (old pods never count, S14)."""

    wanted: int
    ready: int
    complete: bool  # every wanted replica is current and available, no old one is left

    @property
    def serves(self) -> bool:
        """At least one current replica is ready."""
        return self.ready > 0


def progress(workload: Object | None) -> Progress:
    """Progress of a workload as its controller reports it; nothing is taken from an outdated report."""
    if workload is None:
        return Progress(wanted=0, ready=0, complete=False)
    wanted = int(workload["spec"].get("replicas", 1))
    status = workload.get("status") or {}
    if workload["kind"] == groups.KIND:
        return _progress_of_groups(wanted, status)
    if status.get("observedGeneration", 0) < workload["metadata"].get("generation", 1):
        return Progress(wanted=wanted, ready=0, complete=False)
    updated, total = int(status.get("updatedReplicas", 0)), int(status.get("replicas", 0))
    available = int(status.get("availableReplicas", 0))
    # While old pods exist, readyReplicas counts them too; only what exceeds them is certainly current.
    ready = max(0, min(updated, int(status.get("readyReplicas", 0)) - (total - updated)))
    return Progress(wanted, ready, complete=updated == total == wanted and available >= wanted)


def _progress_of_groups(wanted: int, status: Object) -> Progress:
    """A LeaderWorkerSet counts groups, which are ready when all their pods are. It has no `observedGeneration`, but its
    counts are not those of another template: a revision's never changes.
    """
    updated, total = int(status.get("updatedReplicas", 0)), int(status.get("replicas", 0))
    ready = int(status.get("readyReplicas", 0))
    certain = max(0, min(updated, ready - max(0, total - updated)))
    return Progress(wanted, certain, complete=updated == total == wanted and ready >= wanted)


def time_or(text: str, otherwise: datetime) -> datetime:
    """A time as the API server keeps it; `otherwise` if Python can't read it."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return otherwise
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)
