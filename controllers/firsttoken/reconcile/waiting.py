"""A revision whose pods are not all there: what is in the way, or what exactly is waited for."""

from firsttoken.manifests.names import REVISION_LABEL, ROLE_LABEL
from firsttoken.planning.words import count
from firsttoken.reconcile.fleet import Fleet, of_wanted
from firsttoken.reconcile.objects import Object, condition, label
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
        if wanted["kind"] != "Deployment":
            continue
        role, replicas = label(wanted, ROLE_LABEL) or "", int(wanted["spec"]["replicas"])
        seen = fleet.observed.deployment(wanted["metadata"]["name"])
        part = of_wanted(seen, replicas)
        ready.append(f"{role} {min(part.ready, replicas)} of {count(replicas, 'replica')} ready")
        if not part.complete:
            late.append(f"{role} ({_why(seen, replicas, part.ready)})")
    waits = f"; waiting for {' and '.join(late)}" if late else ""
    return f"{', '.join(ready)}{waits}"


def _why(deployment: Object | None, wanted: int, ready: int) -> str:
    if deployment is None:
        return "its Deployment is not there yet"
    status = deployment.get("status") or {}
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 1):
        return "Kubernetes' controller has yet to take up its Deployment: observedGeneration is behind"
    if ready < wanted:
        return f"{wanted - ready} not ready"
    if int(status.get("replicas", 0)) > int(status.get("updatedReplicas", 0)):
        return "older pods are going"
    return "surplus pods are going" if int(status.get("replicas", 0)) > wanted else "ready, not yet available"


def _overdue(fleet: Fleet, revision: str) -> bool:
    found = (condition(d, "Progressing") for d in fleet.observed.deployments(revision))
    return any(c is not None and c.get("reason") == "ProgressDeadlineExceeded" for c in found)


def _refusal(fleet: Fleet, revision: str) -> str | None:
    """Why the API server refuses pods (quota, admission), as the Deployment reports it."""
    for deployment in fleet.observed.deployments(revision):
        failure = condition(deployment, "ReplicaFailure")
        if failure is not None and failure["status"] == "True":
            return str(failure.get("message", failure.get("reason")))
    return None
