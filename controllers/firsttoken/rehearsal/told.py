"""A pass of the operator as entries of the timeline: what it decided, and the writes that people would look for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from firsttoken.manifests.names import REVISION_LABEL, gateway_routes_name
from firsttoken.reconcile import Event
from firsttoken.reconcile.objects import Ref, label, ref
from firsttoken.reconcile.routes import observed_weights
from firsttoken.rehearsal.storing import Object

Write = tuple[
    str, Any
]  # "apply" or "calibration", an object; "event", an Event; "status", a status; "delete", an object


def told(
    service: str, writes: Sequence[Write], weights: Mapping[str, int], existing: set[Ref]
) -> Iterator[tuple[str, str]]:
    """Reasons and messages. `weights` and `existing` objects are those before the pass."""
    applied = [what for kind, what in writes if kind == "apply"]
    fresh = {o["metadata"]["name"] for o in applied if o["kind"] == "InferenceRevision" and ref(o) not in existing}
    for obj in applied:
        if obj["metadata"]["name"] in fresh and obj["kind"] == "InferenceRevision":
            yield "RevisionCreated", f"{obj['metadata']['name']}: {obj['spec']['reason']['message']}"
    yield from _repaired(applied, existing, fresh)
    for obj in applied:
        if obj["kind"] == "ConfigMap" and obj["metadata"]["name"] == gateway_routes_name(service):
            after = observed_weights(obj)
            if _shares(after) != _shares(weights):
                text = ", ".join(f"{name} {share} %" for name, share in after.items() if share or name in weights)
                yield "WeightsWritten", text or "no revision has requests"
    for kind, what in writes:
        if kind == "calibration":
            yield "Calibrated", f"{what['metadata']['name']}: {_ratios(what)}"
        if kind == "event":
            assert isinstance(what, Event)  # noqa: S101
            yield what.reason, what.message
    yield from _deleted([what for kind, what in writes if kind == "delete"])


def _ratios(record: Object) -> str:
    found = record["status"]["calibration"]
    return ", ".join(f"{e['stage']} x{e['ratio']:g} ({e['low']:g} to {e['high']:g})" for e in found)


def _shares(weights: Mapping[str, int]) -> dict[str, int]:
    return {name: share for name, share in weights.items() if share}


def _repaired(applied: Sequence[Object], existing: set[Ref], fresh: set[str]) -> Iterator[tuple[str, str]]:
    """Objects of revisions that are there already, and of the gateway once it is there: put back, or scaled."""
    if fresh and not any(key.kind == "Deployment" for key in existing):
        return  # everything is made for the first time
    back: list[str] = []
    changed: list[str] = []
    for obj in applied:
        routes = obj["kind"] == "ConfigMap" and "routes.json" in obj.get("data", {})
        if obj["kind"] != "InferenceRevision" and label(obj, REVISION_LABEL) not in fresh and not routes:
            (changed if ref(obj) in existing else back).append(str(ref(obj)))
    if back:
        yield "Created", ", ".join(back)
    if changed:
        yield "Applied", ", ".join(changed)


def _deleted(objects: Sequence[Object]) -> Iterator[tuple[str, str]]:
    by_revision: dict[str, list[str]] = {}
    for obj in objects:
        by_revision.setdefault(label(obj, REVISION_LABEL) or "", []).append(str(ref(obj)))
    for names in by_revision.values():
        yield "Deleted", ", ".join(names)
