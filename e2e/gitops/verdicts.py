"""What Argo CD and Flux make of an InferenceService, and what speaks against it by the pods and routes themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from e2e.support import SERVICE_LABEL, Object, condition

from chart.test_argocd_health import health
from firsttoken.reconcile.routes import carrying, observed_weights
from firsttoken_local.kube import KubeClient

ROLE_LABEL = "firsttoken.dev/role"
# Argo CD's word, and those of Flux that mean the same.
SAME = {"Healthy": {"Current"}, "Degraded": {"Failed"}, "Progressing": {"InProgress", "Terminating"}}


@dataclass(frozen=True)
class Look:
    """One look at a service; deployments, pods and routes were read right after it."""

    health: str
    message: str
    kstatus: str
    service: Object
    deployments: tuple[Object, ...]
    pods: tuple[Object, ...]
    routes: Object | None

    @property
    def name(self) -> str:
        """The service's."""
        return str(self.service["metadata"]["name"])

    @property
    def generation(self) -> int:
        """Of the spec that was looked at."""
        return int(self.service["metadata"]["generation"])

    @property
    def stable(self) -> str | None:
        """The revision that has the requests, as the status says."""
        revision: dict[str, Any] = (self.service.get("status") or {}).get("revision") or {}
        return revision.get("stable")


def look_at(client: KubeClient, namespace: str) -> Iterator[Look]:
    """Look at every service of a namespace."""
    for service in client.list("firsttoken.dev/v1alpha1", "InferenceService", namespace):
        name = service["metadata"]["name"]
        status, message = health(service)
        selector = f"{SERVICE_LABEL}={name}"
        yield Look(
            health=status,
            message=message,
            kstatus=kstatus(service),
            service=service,
            deployments=tuple(client.list("apps/v1", "Deployment", namespace, selector)),
            pods=tuple(client.list("v1", "Pod", namespace, selector)),
            routes=client.get("v1", "ConfigMap", f"{name}-gateway-routes", namespace),
        )


def kstatus(obj: Object) -> str:
    """Flux's verdict: the rules for kinds it doesn't know, of github.com/fluxcd/cli-utils, pkg/kstatus/status."""
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = obj.get("status") or {}
    if status.get("observedGeneration", obj["metadata"]["generation"]) != obj["metadata"]["generation"]:
        return "InProgress"
    words = {"Reconciling": "InProgress", "Stalled": "Failed"}
    for item in status.get("conditions") or []:
        if item["type"] in words and item["status"] == "True":
            return words[item["type"]]
    ready = condition(obj, "Ready")
    # A kind that says nothing at all counts as done.
    return "Current" if ready is None or ready["status"] == "True" else "InProgress"


def lies(look: Look, replicas: int) -> list[str]:
    """What contradicts the verdict, without asking the status: engines are known by the length they run with."""
    found = [] if look.kstatus in SAME[look.health] else [f"Flux says {look.kstatus}"]
    if look.health != "Healthy":
        return found
    status = look.service.get("status") or {}
    if status.get("observedGeneration") != look.generation:
        found.append(f"seen is generation {status.get('observedGeneration')}")
    engines = [d for d in look.deployments if _serves_length(d["spec"]["template"], look)]
    gateway = [d for d in look.deployments if d["metadata"]["name"] == f"{look.name}-gateway"]
    found += [f"{d['metadata']['name']} is not complete" for d in (*engines, *gateway) if not _complete(d)]
    names = [d["metadata"]["name"] for d in engines]
    if carrying(observed_weights(look.routes)) not in names:
        found.append(f"requests go to {observed_weights(look.routes)}, engines of this spec are {names}")
    ready = sum(_serves_length(p, look) and (condition(p, "Ready") or {}).get("status") == "True" for p in look.pods)
    return found if ready >= replicas else [*found, f"{ready} of {replicas} pods of this spec are ready"]


def _serves_length(pod: Object, look: Look) -> bool:
    """Whether a pod (or a template) is an engine with the length that the spec asks for."""
    wanted = f"--max-model-len={look.service['spec']['model']['maxModelLength']}"
    arguments = [a for c in pod["spec"]["containers"] for a in c.get("args") or []]
    return (pod["metadata"].get("labels") or {}).get(ROLE_LABEL) == "serve" and wanted in arguments


def _complete(deployment: Object) -> bool:
    status, wanted = deployment.get("status") or {}, deployment["spec"]["replicas"]
    seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
    return seen and all(status.get(k, 0) == wanted for k in ("replicas", "updatedReplicas", "availableReplicas"))
