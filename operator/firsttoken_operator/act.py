"""act: a decision carried out. Every step can be repeated, so a crash between two of them loses nothing."""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from firsttoken.manifests.names import DOMAIN
from firsttoken.reconcile import Decision, Event, Observation, Sync
from firsttoken.reconcile.objects import Ref, ref
from firsttoken_operator.cluster import Cluster, ClusterError
from firsttoken_operator.kinds import EVENT, POD

COMPONENT = "firsttoken-operator"
SYNC_ANNOTATION = f"{DOMAIN}/sync"


async def apply_objects(cluster: Cluster, objects: Iterable[Mapping[str, Any]]) -> dict[Ref, str]:
    """Apply in order; what the API server refuses for good is returned, everything else raises ClusterError."""
    rejected = {}
    for obj in objects:
        try:
            await cluster.apply(obj)
        except ClusterError as error:
            if not error.is_refusal:
                raise
            rejected[ref(obj)] = error.message
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
    """Status, events, deletions: after the objects, so that the status never claims what was not done."""
    service = observation.service
    if decision.status is not None:
        await cluster.apply(_status(service, decision.status), subresource="status")
    for event in decision.events:
        await _tell(cluster, service, event, observation.now)
    for obj in decision.delete:
        await cluster.delete(obj)


def _status(service: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    meta = service["metadata"]
    # The uid makes the write fail if the service was deleted and made anew in between.
    return {
        "apiVersion": service["apiVersion"],
        "kind": service["kind"],
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
        "status": dict(status),
    }


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
