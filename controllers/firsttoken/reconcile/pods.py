"""Why pods don't run: GPUs that are missing (S30), images, crashes. Read on demand, never written (K6)."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from firsttoken.api.quantities import quantity
from firsttoken.reconcile.objects import Object, condition

_WAITS_FINE = {"ContainerCreating", "PodInitializing"}
# nvidia.com/gpu and its slices, amd.com/gpu, habana.ai/gaudi; not what only connects them, such as rdma/hca.
_DEVICES = re.compile(r".+/(gpu|gaudi|mig-.+|gpu\.shared)")


@dataclass(frozen=True)
class PodTrouble:
    """What keeps a revision's pods from running, in one sentence."""

    reason: str  # MissingGPUs | Unschedulable | PodsFailing
    message: str


def trouble(pods: Iterable[Object]) -> PodTrouble | None:
    """The first thing to look at, or None."""
    alive = [p for p in pods if not p["metadata"].get("deletionTimestamp")]
    waiting = [p for p in alive if _unschedulable(p) is not None]
    if waiting:
        return _missing(waiting)
    failing = [(p, why) for p in alive if (why := _failure(p)) is not None]
    if failing:
        pod, why = failing[0]
        others = f" (and {len(failing) - 1} more)" if len(failing) > 1 else ""
        return PodTrouble("PodsFailing", f"pod {pod['metadata']['name']}{others}: {why}")
    return None


def _unschedulable(pod: Object) -> str | None:
    scheduled = condition(pod, "PodScheduled")
    if scheduled is not None and scheduled["status"] == "False" and scheduled.get("reason") == "Unschedulable":
        return str(scheduled.get("message", ""))
    return None


def _missing(pods: list[Object]) -> PodTrouble:
    gpus: Counter[str] = Counter()
    for pod in pods:
        gpus.update(_devices(pod))
    scheduler = _unschedulable(pods[0]) or ""
    count = f"{len(pods)} pod{'s' if len(pods) > 1 else ''} can't be placed"
    if not _for_want_of(gpus, scheduler):
        return PodTrouble("Unschedulable", f"{count}; scheduler: {scheduler}")
    where = _where(pods[0])
    wanted = ", ".join(f"{n} × {name}" for name, n in sorted(gpus.items()))
    return PodTrouble("MissingGPUs", f"{count}: {wanted} missing{where}; scheduler: {scheduler}")


def _for_want_of(devices: Iterable[str], scheduler: str) -> bool:
    """Whether the scheduler names missing devices: none left on a node, or no node that has the right ones."""
    return any(f"Insufficient {name}" in scheduler for name in devices) or (
        bool(set(devices)) and "didn't match Pod's node affinity/selector" in scheduler
    )


def _devices(pod: Object) -> Counter[str]:
    devices: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            if _DEVICES.fullmatch(name):
                devices[name] += int(quantity(amount))
    return devices


def _where(pod: Object) -> str:
    """The node labels that the pod asks for, as a person would say them."""
    affinity: Mapping[str, Any] = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    asked = [
        " and ".join(
            f"{e['key']} {e['operator']} {'/'.join(e.get('values') or ())}".strip()
            for e in term.get("matchExpressions") or ()
        )
        for term in terms
    ]
    chosen = [f"{key}={value}" for key, value in sorted((pod["spec"].get("nodeSelector") or {}).items())]
    wanted = [part for part in (" or ".join(filter(None, asked)), *chosen) if part]
    return f" on nodes with {' and '.join(wanted)}" if wanted else ""


def _failure(pod: Object) -> str | None:
    status = pod.get("status") or {}
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in _WAITS_FINE:
            last = ((container.get("lastState") or {}).get("terminated") or {}).get("reason")
            detail = waiting.get("message") or (f"last run ended with {last}" if last else "")
            return f"{container['name']}: {waiting['reason']}{': ' + detail if detail else ''}"
        ended = (container.get("lastState") or {}).get("terminated")
        if ended and not container.get("ready"):
            # Between two crashes of a loop the container runs for a while: still the same trouble.
            how = f"{ended.get('reason')} (exit code {ended.get('exitCode')})"
            return f"{container['name']}: ended with {how}, starts again"
    if status.get("phase") == "Failed":
        return f"{status.get('reason', 'Failed')}: {status.get('message', 'the pod failed')}"
    return None
