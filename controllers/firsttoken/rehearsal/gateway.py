"""The service's Envoys in virtual time: which routes each has taken up, and which revisions it has found."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from firsttoken.manifests.envoy_bootstrap import CLUSTERS_FILE
from firsttoken.manifests.names import GATEWAY_ROLE, ROLE_LABEL, ROUTER_ROLE, gateway_routes_name, router_name
from firsttoken.reconcile import Sync
from firsttoken.reconcile.envoy_views import Envoys, EnvoyView
from firsttoken.reconcile.objects import Ref
from firsttoken.reconcile.routes import Versions, observed_weights, versions
from firsttoken.rehearsal.cluster import Cluster
from firsttoken.rehearsal.pods import Pod

# A touched pod's kubelet brings it a changed ConfigMap in about a second (measured, 0013), any other in a minute.
FOLLOW_SECONDS = 1.0
KUBELET_SECONDS = 60.0


@dataclass(frozen=True)
class Routes:
    """What an Envoy was told: shares by revision in percent, and by revision the Service that leads there."""

    weights: Mapping[str, int]
    services: Mapping[str, str]
    versions: Versions | None


class Gateway:
    """The Envoys of one service."""

    def __init__(self, cluster: Cluster, pods: Callable[[], list[Pod]]) -> None:
        self._cluster, self._pods = cluster, pods
        self._taken: dict[str, Routes] = {}
        self._due: dict[str, float] = {}
        self.now = 0.0

    def ready(self) -> list[Pod]:
        """Envoys that get requests."""
        return [p for p in self._pods() if p.role == GATEWAY_ROLE and p.ready and p.stays]

    def settle(self, now: float) -> None:
        """Envoys take up what has reached them by `now`."""
        self.now, told = now, self._told()
        there = {p.name: p for p in self._pods() if p.role == GATEWAY_ROLE}
        self._taken = {name: routes for name, routes in self._taken.items() if name in there}
        self._due = {name: due for name, due in self._due.items() if name in there}
        for name, pod in there.items():
            if name not in self._taken:
                if pod.node and told is not None:
                    self._taken[name] = told  # mounted at its start
            elif told is None or told == self._taken[name]:
                self._due.pop(name, None)
            elif now >= self._due.setdefault(name, now + KUBELET_SECONDS):
                self._taken[name] = told
                del self._due[name]

    def next(self, now: float) -> float:
        """When the next of them takes something up, seconds."""
        return min((due for due in self._due.values() if due > now), default=math.inf)

    def touch(self, sync: Sync) -> None:
        """The operator touched pods: the Envoys among them get what changed at once."""
        if sync.pods.get(ROLE_LABEL) == GATEWAY_ROLE:
            for name in self._taken:
                self._due[name] = min(self._due.get(name, math.inf), self.now + FOLLOW_SECONDS)

    def views(self) -> Envoys:
        """What each Envoy says when it is asked."""
        views = []
        for pod in self.ready():
            routes = self._taken.get(pod.name)
            known = routes.services if routes is not None else {}
            found = {revision: self.endpoints(revision, service) for revision, service in known.items()}
            views.append(EnvoyView(pod.name, found, routes.versions if routes is not None else None))
        return Envoys(tuple(views))

    def weights(self, pod: Pod) -> Mapping[str, int]:
        """Shares by which this Envoy splits requests, of revisions that it can reach or not."""
        routes = self._taken.get(pod.name)
        return routes.weights if routes is not None else {}

    def reaches(self, pod: Pod, revision: str) -> bool:
        """Whether this Envoy has an address to send requests of the revision to."""
        routes = self._taken.get(pod.name)
        service = routes.services.get(revision) if routes is not None else None
        return service is not None and self.endpoints(revision, service) > 0

    def endpoints(self, revision: str, service: str) -> int:
        """Addresses that DNS has for the Service of a revision: of its routers, or of its engines."""
        routed = service == router_name(revision)
        pods = [p for p in self._pods() if p.revision == revision and (p.role == ROUTER_ROLE) == routed]
        return sum(p.known(self.now) for p in pods)

    def _told(self) -> Routes | None:
        """By the ConfigMap as it is stored; None if it is not there or garbled: then Envoy keeps what it has."""
        name = gateway_routes_name(self._cluster.service["metadata"]["name"])
        stored = self._cluster.store.get(Ref("v1", "ConfigMap", name))
        content = versions(stored)
        if stored is None or content is None:
            return None
        try:
            services = _services(stored)
        except (KeyError, ValueError, TypeError, AttributeError):
            return None
        return Routes(observed_weights(stored), services, content)


def _services(stored: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for cluster in json.loads(stored["data"][CLUSTERS_FILE])["resources"]:
        (group,) = cluster["load_assignment"]["endpoints"]
        (endpoint,) = group["lb_endpoints"]
        found[cluster["name"]] = endpoint["endpoint"]["address"]["socket_address"]["address"].partition(".")[0]
    return found
