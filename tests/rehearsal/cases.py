"""A small service, worlds, and what came of a rehearsal as tests read it."""

from typing import Any

import numpy as np

from firsttoken.planning.accelerators import catalogue_manifests
from firsttoken.rehearsal.result import Rehearsal
from firsttoken.rehearsal.run import rehearse
from firsttoken.rehearsal.windows import ALL, Cell
from firsttoken.rehearsal.world import read_world
from reconcile.services import API, spec

PROFILES = {p["metadata"]["name"]: p for p in catalogue_manifests()}
# Another token budget is another revision of the same size.
EDIT = {"engine": {"pins": {"tokenBudget": 512}}}


def service(**changes: Any) -> dict[str, Any]:
    """Two replicas of an 8B model without a router; `changes` are laid over its spec."""
    workload = {"promptTokens": {"p50": 600, "p95": 1200}, "outputTokens": {"p50": 60, "p95": 120}}
    scaling = {"mode": "External", "replicas": 2}
    body = spec(**{"workload": workload, "scaling": scaling, "rollout": {"drainTimeout": "20s"}, **changes})
    meta = {"name": "chat", "namespace": "apps"}
    return {"apiVersion": API, "kind": "InferenceService", "metadata": meta, "spec": body}


def play(*events: dict[str, Any], given: dict[str, Any] | None = None, **world: Any) -> Rehearsal:
    """Ten minutes at two requests a second, with engines that start in half a minute; `world` changes that."""
    asked = {"duration": "10m", "window": "1m", "startup": "30s", "requestsPerSecond": 2, "events": events, **world}
    return rehearse(given or service(), PROFILES, read_world(asked, lambda _: "world"))


def reasons(found: Rehearsal, who: str | None = None) -> list[str]:
    """Of the timeline, in order."""
    return [e.reason for e in found.entries if who in (None, e.who)]


def at(found: Rehearsal, reason: str, text: str = "") -> float:
    """When something was told for the first time."""
    return next(e.at for e in found.entries if e.reason == reason and text in e.message)


def whole(found: Rehearsal) -> list[Cell]:
    """The windows, all prompts together."""
    return [c for c in found.cells if c.bucket == ALL]


def p95(found: Rehearsal, start: float, end: float) -> float:
    """The worst TTFT P95 of the windows in a stretch of time, seconds."""
    return float(np.nanmax([c.ttft_p95 for c in whole(found) if start <= c.start and c.end <= end]))


def revisions(found: Rehearsal) -> list[str]:
    """Those that requests went to, in the order of their coming."""
    return list(dict.fromkeys(c.revision for c in whole(found) if c.revision))
