"""What each Envoy says itself: a written route is a wish until Envoy has taken it up and found pods behind it.

The kubelet brings a changed ConfigMap, and DNS a new pod, seconds later than the API server tells of either. Whoever
moved requests, called a service Ready or took a drained revision by the API server alone would send users into a 503
(seen on a real node for about five seconds).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import inf

from firsttoken.api.base import Condition
from firsttoken.manifests.envoy_bootstrap import ROUTE_CONFIG
from firsttoken.manifests.names import GATEWAY_ROLE, ROLE_LABEL, SERVICE_LABEL, gateway_name
from firsttoken.reconcile.objects import Object, condition, label, time_or
from firsttoken.reconcile.routes import Versions

STATS_PATH = "/stats/prometheus"
STATS_QUERY = {"filter": "(version_text|membership_healthy)$", "text_readouts": "on"}
# While it is there (False), Envoys are awaited, and its lastTransitionTime says since when.
AWAITED = "EnvoysInSync"
# The kubelet looks at ConfigMaps once a minute at the latest. Who is behind for longer stops nobody any more (0013).
DEADLINE_SECONDS = 60.0

_SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\d{1,9})$", re.M)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_POD_HASH = "pod-template-hash"


@dataclass(frozen=True)
class EnvoyView:
    """One Envoy that answered: healthy endpoints by revision, and the versions it has taken up (None: none yet)."""

    pod: str
    endpoints: Mapping[str, int]
    versions: Versions | None = None

    def late(self, versions: Versions | None, revision: str | None) -> bool:
        """Whether it is behind on the routes, or knows no endpoint of the revision."""
        return self.versions != versions or (revision is not None and not self.endpoints.get(revision))


@dataclass(frozen=True)
class Envoys:
    """The ready Envoys of a service in one pass: views of those that answered, pods of those that gave no answer.

    If none answers there is no way to them from here: then none is late, and what was written counts.
    """

    answered: tuple[EnvoyView, ...] = ()
    silent: tuple[str, ...] = ()

    def late(self, versions: Versions | None, revision: str | None = None, *, silent: bool = True) -> tuple[str, ...]:
        """Pods that have yet to take up the routes and to find the revision; `silent` ones might be among them."""
        if not self.answered:
            return ()
        late = [view.pod for view in self.answered if view.late(versions, revision)]
        return tuple(sorted([*late, *(self.silent if silent else ())]))

    def found(self, revision: str) -> bool:
        """Whether somebody would get an answer: one Envoy knows an endpoint of the revision."""
        return not self.answered or any(view.endpoints.get(revision) for view in self.answered)


def read_view(pod: str, text: str) -> EnvoyView:
    """The answer of `/stats/prometheus`."""
    endpoints, clusters, routes = {}, None, None
    for name, text_labels, value in _SAMPLE.findall(text):
        labels = dict(_LABEL.findall(text_labels))
        if name == "envoy_cluster_membership_healthy" and "envoy_cluster_name" in labels:
            endpoints[labels["envoy_cluster_name"]] = int(value)
        elif name == "envoy_cluster_manager_cds_version_text":
            clusters = labels.get("text_value")
        elif name == "envoy_http_rds_version_text" and labels.get("envoy_rds_route_config") == ROUTE_CONFIG:
            routes = labels.get("text_value")
    return EnvoyView(pod, endpoints, Versions(clusters, routes) if clusters and routes else None)


def askable(pods: Iterable[Object], service: str) -> list[Object]:
    """Envoys of a service among `pods` that get requests. Labels make nothing ours: their ReplicaSet must be (0006)."""
    return [p for p in pods if _is_envoy(p, service) and _gets_requests(p)]


def _is_envoy(pod: Object, service: str) -> bool:
    owners = [o for o in pod["metadata"].get("ownerReferences") or () if o.get("controller")]
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"{gateway_name(service)}-{label(pod, _POD_HASH)}",
    }
    labelled = label(pod, SERVICE_LABEL) == service and label(pod, ROLE_LABEL) == GATEWAY_ROLE
    return labelled and any(replica_set.items() <= owner.items() for owner in owners)


def _gets_requests(pod: Object) -> bool:
    ready = condition(pod, "Ready")
    there = not pod["metadata"].get("deletionTimestamp") and bool((pod.get("status") or {}).get("podIP"))
    return there and ready is not None and ready.get("status") == "True"


def awaited_seconds(conditions: Iterable[Condition], now: datetime) -> float | None:
    """For how long Envoys have been awaited, None if they aren't; a time that can't be is long ago."""
    since = next((c.last_transition_time for c in conditions if c.type == AWAITED), None)
    if since is None:
        return None
    waited = (now - time_or(since, datetime.max.replace(tzinfo=now.tzinfo))).total_seconds()
    return waited if waited >= 0 else inf


def overdue(conditions: Iterable[Condition], now: datetime) -> bool:
    """Whether Envoys have been awaited for long enough."""
    waited = awaited_seconds(conditions, now)
    return waited is not None and waited >= DEADLINE_SECONDS


def pause(waited: float) -> float:
    """Seconds until Envoys are asked again: they usually follow within seconds, then ever more rarely."""
    return 1.0 if waited < 10 else min(60.0, waited / 4)
