"""What each Envoy says itself: a written route is a wish until Envoy has found engines (or routers) behind it.

The kubelet brings a changed ConfigMap, and DNS a new pod, seconds later than the API server tells of either. Whoever
moved requests or called a service Ready by the API server alone would send users into "no healthy upstream" (seen on a
real node for about five seconds).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from firsttoken.reconcile.objects import Object, condition

STATS_PATH = "/stats/prometheus"
STATS_QUERY = {"filter": "membership_healthy"}
_MEMBERS = re.compile(r'^envoy_cluster_membership_healthy\{[^}]*envoy_cluster_name="([^"]+)"[^}]*\} (\d+)', re.M)


@dataclass(frozen=True)
class GatewayView:
    """One Envoy that answered: how many healthy endpoints it knows, by revision."""

    pod: str
    endpoints: Mapping[str, int]


def read_view(pod: str, text: str) -> GatewayView:
    """The answer of `/stats/prometheus`."""
    return GatewayView(pod, {name: int(count) for name, count in _MEMBERS.findall(text)})


def without(views: Iterable[GatewayView], revision: str) -> list[str]:
    """Envoys that answered and know no endpoint of a revision. Those that can't be asked hold nothing up."""
    return sorted(view.pod for view in views if not view.endpoints.get(revision))


def worth_asking(service: Object) -> bool:
    """Whether something may move: the service is not Ready on its spec, or a revision other than the desired serves."""
    status = service.get("status") or {}
    ready = condition(service, "Ready") or {}
    revision = status.get("revision") or {}
    settled = (
        ready.get("status") == "True"
        and ready.get("observedGeneration") == service["metadata"].get("generation")
        and revision.get("desired") == revision.get("stable")
    )
    return not settled
