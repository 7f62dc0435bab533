"""What Envoy was told, read back: weights live in the routes ConfigMap only, so it says who has the requests."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from firsttoken.manifests.envoy_bootstrap import CLUSTERS_FILE, ROUTES_FILE
from firsttoken.reconcile.objects import Object

# What a file edited by hand can do to its reader: no JSON, another shape, nested too deep, a number without end.
_GARBLED = (KeyError, ValueError, TypeError, AttributeError, RecursionError, OverflowError)


@dataclass(frozen=True)
class Versions:
    """Which content of the two files: Envoy repeats the `version_info` of what it has taken up."""

    clusters: str
    routes: str


def versions(routes: Object | None) -> Versions | None:
    """What a routes ConfigMap calls its content, None if it is unreadable or not there."""
    try:
        data = (routes or {})["data"]
        clusters, split = (json.loads(data[file])["version_info"] for file in (CLUSTERS_FILE, ROUTES_FILE))
    except _GARBLED:
        return None
    return Versions(str(clusters), str(split))


def observed_weights(routes: Object | None) -> dict[str, int]:
    """Share of the requests by revision, percent; 0: known to Envoy, no requests. Empty if unreadable or not there."""
    try:
        data = (routes or {})["data"]
        known = [cluster["name"] for cluster in json.loads(data[CLUSTERS_FILE])["resources"]]
        arms = {arm["name"]: int(arm["weight"]) for arm in _arms(json.loads(data[ROUTES_FILE]))}
    except _GARBLED:
        return {}  # garbled by hand; it is put right in this very pass
    return {**dict.fromkeys(known, 0), **arms}


def carrying(weights: dict[str, int]) -> str | None:
    """The revision with the largest share, None if nobody has requests."""
    return max((name for name, weight in weights.items() if weight > 0), key=lambda name: weights[name], default=None)


def _arms(routes: Any) -> Iterator[Any]:
    for resource in routes["resources"]:
        for host in resource["virtual_hosts"]:
            for route in host["routes"]:
                yield from route.get("route", {}).get("weighted_clusters", {}).get("clusters", ())
