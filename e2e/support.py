"""What the end-to-end tests share: services to apply, children to list, conditions to wait for."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firsttoken_local.cluster import LocalCluster
from firsttoken_local.operator import NAME as OPERATOR
from firsttoken_local.waiting import wait_for

GROUP = "firsttoken.dev/v1alpha1"
OPERATOR_USER = "firsttoken-operator"
SERVICE_LABEL = "firsttoken.dev/service"
EXAMPLES = Path(__file__).parent.parent / "examples"
CHILDREN = (
    (GROUP, "InferenceRevision"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("v1", "Pod"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("v1", "ServiceAccount"),
    ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("gateway.networking.k8s.io/v1", "HTTPRoute"),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
)
_BY_CONTROLLERS = ("ReplicaSet", "Pod")  # made by Kubernetes' own controllers, not by the operator

Object = dict[str, Any]


def merged(base: Object, patch: Object) -> Object:
    """`base` with `patch` laid over it, mappings merged, everything else replaced."""
    result = dict(base)
    for key, value in patch.items():
        result[key] = merged(base.get(key) or {}, value) if isinstance(value, dict) else value
    return result


def inference_service(name: str, **spec: Any) -> Object:
    """A small service: an 8B model, one GPU a replica, two replicas."""
    base = {
        "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"},
        "accelerator": {"type": "nvidia-a100-40gb", "maxCount": 2},
        "engine": {"pins": {"tensorParallel": 1}},
        "rollout": {"drainTimeout": "1s"},
    }
    return {"apiVersion": GROUP, "kind": "InferenceService", "metadata": {"name": name}, "spec": merged(base, spec)}


@dataclass(frozen=True)
class Space:
    """One namespace of one test."""

    cluster: LocalCluster
    name: str

    def apply(self, obj: Object, manager: str = "test") -> Object:
        """Server-side apply into this namespace."""
        meta = {**obj["metadata"], "namespace": self.name}
        return self.cluster.client.apply({**obj, "metadata": meta}, field_manager=manager)

    def get(self, kind: str, name: str, api_version: str = GROUP) -> Object | None:
        """One object or None."""
        return self.cluster.client.get(api_version, kind, name, self.name)

    def service(self, name: str) -> Object:
        """An InferenceService that must be there."""
        found = self.get("InferenceService", name)
        assert found is not None
        return found

    def delete(self, kind: str, name: str, api_version: str = GROUP) -> None:
        """Delete one object."""
        self.cluster.client.delete(api_version, kind, name, self.name)

    def kubectl(self, *arguments: str) -> str:
        """kubectl in this namespace."""
        return self.cluster.kubectl("-n", self.name, *arguments)

    def patch(self, resource: str, patch: Object, *flags: str) -> None:
        """A merge patch by kubectl, as a person would make one."""
        self.kubectl("patch", resource, "--type=merge", "-p", json.dumps(patch), *flags)

    def children(self, service: str, *, made_by_us: bool = True) -> dict[str, Object]:
        """What belongs to a service, as kind/name."""
        found = {}
        for api_version, kind in CHILDREN:
            if made_by_us and kind in _BY_CONTROLLERS:
                continue
            for obj in self.cluster.client.list(api_version, kind, namespace=self.name):
                if (obj["metadata"].get("labels") or {}).get(SERVICE_LABEL) == service:
                    found[f"{kind}/{obj['metadata']['name']}"] = obj
        return found

    def wait(self, what: str, condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
        """Wait for a condition; on time-out say what the operator logged."""
        logs = [self.cluster.processes.log(OPERATOR)]
        return wait_for(f"{what} in {self.name}", condition, timeout_s=timeout_s, logs=logs)

    def wait_condition(self, name: str, kind: str, status: str, reason: str | None = None) -> Object:
        """Wait until a condition, judged on the current spec, has a status (and a reason); return the service."""

        def holds() -> Object | None:
            service = self.service(name)
            found = condition(service, kind)
            right = found is not None and found["status"] == status and reason in (None, found["reason"])
            return service if right and observed(service) else None

        wanted = f"{kind}={status}" + (f" ({reason})" if reason else "")
        result: Object = self.wait(f"{wanted} of {name}; it is {self._brief(name)}", holds)
        return result

    def wait_ready(self, name: str) -> Object:
        """Wait until a service is Ready on its current spec."""
        return self.wait_condition(name, "Ready", "True")

    def _brief(self, name: str) -> str:
        conditions = (self.service(name).get("status") or {}).get("conditions") or []
        return "; ".join(f"{c['type']}={c['status']} {c['reason']}" for c in conditions) or "without conditions"

    def wait_quiet(self, name: str) -> None:
        """Wait until a service is Ready, nothing drains and the operator has written nothing for a second."""

        def quiet() -> bool:
            service = self.wait_ready(name)
            return not (service["status"].get("revision") or {}).get("draining")

        self.wait(f"{name} to be quiet", quiet)
        self.wait_no_writes(1.0)

    def wait_no_writes(self, seconds: float) -> None:
        """Wait until the operator has written nothing into this namespace for a while."""

        def none() -> bool:
            before = len(self.writes())
            time.sleep(seconds)  # the thing measured is that nothing happens in a span of time
            return len(self.writes()) == before

        self.wait(f"{seconds} s without a write", none)

    def writes(self) -> list[Any]:
        """What the operator wrote into this namespace so far, by the audit log."""
        return [w for w in self.cluster.writes(user=OPERATOR_USER) if w.namespace == self.name]


def observed(service: Object) -> bool:
    """Whether the status is about the current spec."""
    return bool((service.get("status") or {}).get("observedGeneration") == service["metadata"]["generation"])


def condition(obj: Object, kind: str) -> Object | None:
    """A condition of an object's status."""
    for item in (obj.get("status") or {}).get("conditions") or []:
        if item["type"] == kind:
            return dict(item)
    return None


def unique(prefix: str) -> str:
    """A name nobody else has."""
    return f"{prefix}-{uuid.uuid4().hex[:6]}"
