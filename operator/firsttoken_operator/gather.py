"""gather: everything `decide` needs to know about one service, read fresh from the API server."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from firsttoken.manifests.images import Images
from firsttoken.manifests.names import ROLE_LABEL, SERVICE_LABEL
from firsttoken.reconcile import Observation
from firsttoken.reconcile.gateways import worth_asking
from firsttoken.reconcile.objects import Ref, is_owned, label, progress, ref
from firsttoken_operator.cluster import Cluster, ClusterError
from firsttoken_operator.envoys import ask_envoys
from firsttoken_operator.kinds import CHILDREN, HTTP_ROUTE, POD, PROFILE, REVISION, SERVICE, Kind, kind_of

Key = tuple[str, str]  # namespace, name


async def gather(cluster: Cluster, key: Key, images: Images, *, ask_gateways: bool) -> Observation | None:
    """The observation of one service, None if it is gone. Raises ClusterError, OSError or TimeoutError.

    `ask_gateways` says that pods can be reached from here.
    """
    namespace, name = key
    service = await cluster.get(SERVICE, name, namespace)
    if service is None:
        return None
    selector = f"{SERVICE_LABEL}={name}"
    listed = await asyncio.gather(
        cluster.list(REVISION, namespace, selector),
        *(_children(cluster, kind, namespace, selector) for kind in CHILDREN),
    )
    children = [obj for items in listed[1:] for obj in items or ()]
    asks = ask_gateways and worth_asking(service)
    pods = await _pods(cluster, namespace, selector, children, also_ready=asks)
    return Observation(
        now=datetime.now(UTC),
        service=service,
        revisions=tuple(listed[0] or ()),
        children=tuple(children),
        pods=tuple(pods),
        gateways=await ask_envoys(pods) if asks else (),
        profiles=await _profiles(cluster, service),
        gateway_api=listed[1 + CHILDREN.index(HTTP_ROUTE)] is not None,
        images=images,
    )


async def _children(cluster: Cluster, kind: Kind, namespace: str, selector: str) -> list[dict[str, Any]] | None:
    """Children of one kind; None if the cluster doesn't know it, or it is the optional one and forbidden."""
    try:
        return await cluster.list(kind, namespace, selector)
    except ClusterError as error:
        if kind == HTTP_ROUTE and error.status == 403:
            return None
        raise


async def _pods(
    cluster: Cluster, namespace: str, selector: str, children: Iterable[dict[str, Any]], *, also_ready: bool
) -> list[dict[str, Any]]:
    """Pods are read only while some Deployment of engines is not complete: they tell why. `also_ready`: in any case."""
    engines = [o for o in children if o["kind"] == "Deployment" and label(o, ROLE_LABEL) is not None]
    if not also_ready and all(progress(d).complete for d in engines):
        return []
    return await cluster.list(POD, namespace, selector) or []


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
