"""What a stored routes ConfigMap says, read in another way than the operator reads it."""

import json
from collections.abc import Mapping
from typing import Any


def weights_of(routes: Mapping[str, Any]) -> dict[str, int]:
    """Shares of the requests by a routes ConfigMap; 0 for revisions that Envoy only knows; {} if it is garbled."""
    try:
        known = json.loads(routes["data"]["clusters.json"])["resources"]
        (host,) = json.loads(routes["data"]["routes.json"])["resources"][0]["virtual_hosts"]
        arms = [a for r in host["routes"] for a in r.get("route", {}).get("weighted_clusters", {}).get("clusters", ())]
    except (KeyError, ValueError, TypeError):
        return {}
    return {**{c["name"]: 0 for c in known}, **{a["name"]: a["weight"] for a in arms}}
