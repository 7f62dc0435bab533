"""gather: everything `decide` needs to know about one service, read fresh from the API server."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.manifests.images import Images
from firsttoken.manifests.names import GATEWAY_ROLE, ROLE_LABEL, SERVICE_LABEL, selector
from firsttoken.reconcile import Observation
from firsttoken.reconcile.envoy_views import Envoys
from firsttoken.reconcile.objects import Ref, is_owned, is_workload, label, progress, ref
from firsttoken.reconcile.records import fault
from firsttoken.reconcile.revisions import kept_config
from firsttoken_operator.cluster import Cluster, ClusterError
from firsttoken_operator.envoys import EnvoyAsker, Key
from firsttoken_operator.hub import Hub, HubError, wants_hub
from firsttoken_operator.kinds import (
    CHILDREN,
    HTTP_ROUTE,
    LEADER_WORKER_SET,
    OPTIONAL,
    POD,
    PROFILE,
    REVISION,
    SERVICE,
    Kind,
    kind_of,
)

__all__ = ["Key", "ask_envoys", "gather", "look_up_unseen"]


async def gather(cluster: Cluster, key: Key, images: Images, hub: Hub | None = None) -> Observation | None:
    """The observation of one service, None if it is gone. Raises ClusterError, OSError or TimeoutError."""
    namespace, name = key
    service = await cluster.get(SERVICE, name, namespace)
    if service is None:
        return None
    labels = f"{SERVICE_LABEL}={name}"
    listed = await asyncio.gather(
        cluster.list(REVISION, namespace, labels),
        *(_children(cluster, kind, namespace, labels) for kind in CHILDREN),
    )
    children = [obj for items in listed[1:] for obj in items or ()]
    config = await _model_config(hub, service, listed[0] or ())
    return Observation(
        now=datetime.now(UTC),
        service=service,
        revisions=tuple(listed[0] or ()),
        children=tuple(children),
        pods=tuple(await _pods(cluster, namespace, labels, children)),
        profiles=await _profiles(cluster, service),
        gateway_api=listed[1 + CHILDREN.index(HTTP_ROUTE)] is not None,
        groups_api=listed[1 + CHILDREN.index(LEADER_WORKER_SET)] is not None,
        model_config=None if isinstance(config, HubError) else config,
        model_fault=str(config) if isinstance(config, HubError) else "",
        images=images,
    )


async def _model_config(
    hub: Hub | None, service: dict[str, Any], revisions: Iterable[dict[str, Any]]
) -> dict[str, Any] | HubError | None:
    """What the hub says of a model that nobody knows, unless a record holds what was used before."""
    try:
        model = ModelSpec.model_validate((service.get("spec") or {}).get("model"))
    except ValidationError:
        return None  # decide says so
    if hub is None or not wants_hub(model):
        return None
    name, uid = service["metadata"]["name"], service["metadata"]["uid"]
    sound = [r for r in revisions if is_owned(r, uid) and fault(r, name) is None]
    return None if kept_config(sound, model) is not None else await hub.config(model)


async def _children(cluster: Cluster, kind: Kind, namespace: str, labels: str) -> list[dict[str, Any]] | None:
    """Children of one kind; None if the cluster doesn't know it, or it is an optional one and forbidden."""
    try:
        return await cluster.list(kind, namespace, labels)
    except ClusterError as error:
        if kind in OPTIONAL and error.status == 403:
            return None
        raise


async def _pods(
    cluster: Cluster, namespace: str, labels: str, children: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Pods are read only while some workload of the service is not complete: they tell why."""
    engines = [o for o in children if is_workload(o) and label(o, ROLE_LABEL) is not None]
    if all(progress(d).complete for d in engines):
        return []
    return await cluster.list(POD, namespace, labels) or []


async def ask_envoys(cluster: Cluster, key: Key, asker: EnvoyAsker) -> Envoys:
    """What the service's Envoys say. Raises like `gather`, but never for an Envoy's sake."""
    labels = ",".join(f"{name}={value}" for name, value in selector(key[1], GATEWAY_ROLE).items())
    return await asker.ask(key, await cluster.list(POD, key[0], labels) or [])


async def _profiles(cluster: Cluster, service: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The profiles the spec names; all there are if one of them is missing, so that the status can list them."""
    accelerator = (service.get("spec") or {}).get("accelerator") or {}
    named = {accelerator.get("type"), *((accelerator.get(r) or {}).get("type") for r in ("prefill", "decode"))}
    names = sorted(n for n in named if isinstance(n, str) and n)
    found = await asyncio.gather(*(cluster.get(PROFILE, n) for n in names))
    if None in found:
        found = [*(await cluster.list(PROFILE, None) or ())]
    return {p["metadata"]["name"]: p for p in found if p is not None}


async def look_up_unseen(
    cluster: Cluster, observation: Observation, wanted: Iterable[dict[str, Any]]
) -> tuple[frozenset[Ref], tuple[dict[str, Any], ...]]:
    """Names about to be created that exist without our label: those of others, and ours that lost it.

    Server-side apply would take over an object of the same name; nobody wants that.
    """
    namespace, uid = observation.service["metadata"]["namespace"], observation.service["metadata"]["uid"]
    seen = {ref(o) for o in (*observation.children, *observation.revisions) if is_owned(o, uid)}
    unseen = [o for o in wanted if ref(o) not in seen]
    found = await asyncio.gather(
        *(cluster.get(kind_of(o["apiVersion"], o["kind"]), o["metadata"]["name"], namespace) for o in unseen)
    )
    there = [o for o in found if o is not None]
    ours = tuple(o for o in there if is_owned(o, uid))
    return frozenset(ref(o) for o in there) - frozenset(ref(o) for o in ours), ours
