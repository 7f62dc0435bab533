"""act: a decision carried out. Every step can be repeated, so a crash between two of them loses no state.

Only a touch of pods that was still to come is not made up for: the kubelet then takes up to a minute by itself.
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from firsttoken.manifests.names import DOMAIN
from firsttoken.reconcile import Decision, Event, Observation, Sync
from firsttoken.reconcile.objects import Ref, ref
from firsttoken_operator.cluster import Cluster, ClusterError
from firsttoken_operator.kinds import EVENT, POD, REVISION, SERVICE

log = logging.getLogger("firsttoken")

COMPONENT = "firsttoken-operator"
SYNC_ANNOTATION = f"{DOMAIN}/sync"


async def apply_objects(cluster: Cluster, objects: Iterable[Mapping[str, Any]]) -> dict[Ref, str]:
    """Apply in order; what the API server refuses for good is returned, everything else raises ClusterError.

    A refused record ends it: nothing of a revision is made that no record tells of.
    """
    rejected = {}
    for obj in objects:
        try:
            await cluster.apply(obj)
        except ClusterError as error:
            if not error.is_refusal:
                raise
            rejected[ref(obj)] = error.message
            if obj["kind"] == REVISION.kind:
                break
    return rejected


async def sync_pods(cluster: Cluster, namespace: str, syncs: Iterable[Sync]) -> None:
    """Touch pods so that the kubelet brings them their changed ConfigMap at once instead of within a minute."""
    for sync in syncs:
        labels = ",".join(f"{k}={v}" for k, v in sorted(sync.pods.items()))
        for pod in await cluster.list(POD, namespace, labels) or ():
            patch = {"metadata": {"annotations": {SYNC_ANNOTATION: sync.content}}}
            try:
                await cluster.merge(POD, pod["metadata"]["name"], namespace, patch)
            except ClusterError as error:
                if error.status != 404:  # gone in between: it needs no sync any more
                    raise


async def finish(cluster: Cluster, observation: Observation, decision: Decision) -> None:
    """Calibration, events, status, deletions: after the objects, so that the status never claims what was not done.

    Events come before the status: after a crash between them they are told once more, and counted, not lost.
    """
    service = observation.service
    for measured in decision.calibrate:
        await _calibrate(cluster, measured)
    for event in decision.events:
        await _tell_if_possible(cluster, service, event, observation.now)
    if decision.status is not None:
        await write_status(cluster, service, decision.status)
    for obj in decision.delete:
        await cluster.delete(obj)


async def _calibrate(cluster: Cluster, obj: Mapping[str, Any]) -> None:
    """What was measured is kept if that is possible: without it the next plan is less sure, and nothing else."""
    try:
        await cluster.apply(obj, subresource="status")
    except ClusterError as error:
        if not (error.is_refusal or error.status == 409):  # 409: another record has its name by now
            raise
        log.warning("calibration of %s not written: %s", obj["metadata"]["name"], error)


async def write_status(cluster: Cluster, service: Mapping[str, Any], status: Mapping[str, Any]) -> None:
    """Make the status what `status` says, also where somebody else set a field of it (server-side apply could not).

    The resourceVersion makes the write fail (409, tried again) if anything changed since it was observed.
    """
    meta = service["metadata"]
    observed = service.get("status")
    patch = {
        "metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
        "status": merge_patch(observed if isinstance(observed, Mapping) else {}, status),
    }
    await cluster.merge(SERVICE, meta["name"], meta["namespace"], patch, subresource="status")


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7396) that turns `old` into `new`; lists are replaced as a whole."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if below := merge_patch(before, value):
                patch[key] = below
        elif before != value:
            patch[key] = value
    return patch


async def _tell_if_possible(cluster: Cluster, service: Mapping[str, Any], event: Event, now: datetime) -> None:
    """Events are a courtesy: where they are forbidden or refused, the rest goes on."""
    try:
        await _tell(cluster, service, event, now)
    except ClusterError as error:
        if not (error.is_refusal or error.is_terminating):
            raise
        log.warning("event %s not posted: %s", event.reason, error)


async def _tell(cluster: Cluster, service: Mapping[str, Any], event: Event, now: datetime) -> None:
    """Post an event; one that was told before is counted up, as client-go does it, so a crash tells nothing twice."""
    meta = service["metadata"]
    digest = hashlib.sha256(f"{meta['uid']}/{event.type}/{event.reason}/{event.message}".encode()).hexdigest()[:16]
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{meta['name']}.{digest}", "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": service["apiVersion"],
            "kind": service["kind"],
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:1024],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
    try:
        await cluster.create(body)
    except ClusterError as error:
        if error.status != 409:
            raise
        await _count_up(cluster, body, stamp)


async def _count_up(cluster: Cluster, body: Mapping[str, Any], stamp: str) -> None:
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    present = await cluster.get(EVENT, name, namespace)
    if present is not None and present.get("lastTimestamp") != stamp:
        count = int(present.get("count") or 1) + 1
        await cluster.merge(EVENT, name, namespace, {"count": count, "lastTimestamp": stamp})
