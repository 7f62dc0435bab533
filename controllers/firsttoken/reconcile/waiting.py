"""A revision whose pods are not all there: what is in the way, or what exactly is waited for."""

from firsttoken.manifests.names import REVISION_LABEL, ROLE_LABEL
from firsttoken.planning.words import count
from firsttoken.reconcile.fleet import Fleet, of_wanted
from firsttoken.reconcile.objects import Object, Progress, condition, is_workload, label
from firsttoken.reconcile.observation import Observation
from firsttoken.reconcile.pods import trouble
from firsttoken.reconcile.verdict import Verdict


def waiting(observation: Observation, fleet: Fleet, revision: str) -> Verdict:
    """Why `revision` is not complete."""
    late = _overdue(fleet, revision)
    found = trouble([p for p in observation.pods if label(p, REVISION_LABEL) == revision])
    if found is not None:
        return Verdict(False, found.reason, f"revision {revision}: {found.message}", stalled=late)
    refused = _refusal(fleet, revision)
    if refused is not None:
        return Verdict(False, "PodsRefused", f"revision {revision}: {refused}", stalled=late)
    message = f"revision {revision}: {_awaited(fleet, revision)}"
    if late:
        return Verdict(False, "ProgressDeadlineExceeded", f"{message}; no progress for too long", stalled=True)
    return Verdict(False, "WaitingForPods", message)


def _awaited(fleet: Fleet, revision: str) -> str:
    """What is ready, and of what is not complete which part and why: a router holds requests up like an engine."""
    ready, late = [], []
    for wanted in fleet.revision_objects(revision):
        if not is_workload(wanted):
            continue
        role, replicas = label(wanted, ROLE_LABEL) or "", int(wanted["spec"]["replicas"])
        seen = fleet.observed.workload(wanted["metadata"]["name"])
        part = of_wanted(seen, replicas)
        ready.append(f"{role} {min(part.ready, replicas)} of {count(replicas, 'replica')} ready")
        if not part.complete:
            late.append(f"{role} ({_why(wanted['kind'], seen, replicas, part)})")
    waits = f"; waiting for {' and '.join(late)}" if late else ""
    return f"{', '.join(ready)}{waits}"


def _why(kind: str, seen: Object | None, wanted: int, part: Progress) -> str:
    if seen is None:
        return f"its {kind} is not there yet"
    status = seen.get("status") or {}
    if kind == "Deployment" and status.get("observedGeneration", 0) < seen["metadata"].get("generation", 1):
        return f"Kubernetes' controller has yet to take up its {kind}: observedGeneration is behind"
    if part.ready < wanted:
        return f"{wanted - part.ready} not ready" + ("" if status else f"; no controller has taken up its {kind} yet")
    if int(status.get("replicas", 0)) > int(status.get("updatedReplicas", 0)):
        return "older pods are going"
    return "surplus pods are going" if int(status.get("replicas", 0)) > wanted else "ready, not yet available"


def _overdue(fleet: Fleet, revision: str) -> bool:
    found = (condition(d, "Progressing") for d in fleet.observed.workloads(revision))
    return any(c is not None and c.get("reason") == "ProgressDeadlineExceeded" for c in found)


def _refusal(fleet: Fleet, revision: str) -> str | None:
    """Why the API server refuses pods (quota, admission), as the workload reports it."""
    for workload in fleet.observed.workloads(revision):
        failure = condition(workload, "ReplicaFailure")
        if failure is not None and failure["status"] == "True":
            return str(failure.get("message", failure.get("reason")))
    return None
