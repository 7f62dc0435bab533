"""Pods in virtual time. Times are seconds since the start of the rehearsal."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firsttoken.manifests.names import GATEWAY_ROLE, REVISION_LABEL, ROLE_LABEL, ROUTER_ROLE
from firsttoken.rehearsal.storing import Object

# Until a caller knows that a pod is there, or is going. Envoy asks DNS that often (manifests/envoy_routes.py).
DNS_SECONDS = 2.0
# vllm-router is told by a watch, and asks a new engine for its health first. Nobody has measured it yet.
WATCH_SECONDS = 0.5


@dataclass(eq=False)
class Pod:
    """One pod. `ready_at` is when it becomes Ready, once it has a node; `leaving` since when it terminates."""

    name: str
    owner: str  # its Deployment
    template: str  # hash of the pod template it was made from
    meta: Mapping[str, Any]
    spec: Mapping[str, Any]
    accelerator: str
    gpus: int
    created: float
    known_after: float = DNS_SECONDS  # until callers know that it came, or that it is going
    grace: float = 30.0
    node: str = ""
    unplaced: str = ""  # what the scheduler says
    ready_at: float = math.inf
    ready: bool = False
    leaving: float = math.inf
    ended: bool = False

    @property
    def labels(self) -> Mapping[str, str]:
        """Of the pod."""
        return self.meta["labels"]  # type: ignore[no-any-return]

    @property
    def role(self) -> str:
        """serve, router or gateway."""
        return self.labels.get(ROLE_LABEL, "")

    @property
    def revision(self) -> str:
        """Name of its revision; empty for Envoy."""
        return self.labels.get(REVISION_LABEL, "")

    @property
    def uid(self) -> str:
        """Of the pod; names are not given twice here."""
        return f"uid-of-{self.name}"

    @property
    def is_engine(self) -> bool:
        """Whether it runs vLLM."""
        return self.role not in (GATEWAY_ROLE, ROUTER_ROLE)

    @property
    def stays(self) -> bool:
        """Whether it is neither gone nor going."""
        return not self.ended and self.leaving == math.inf

    def known(self, now: float) -> bool:
        """Whether callers send requests to it."""
        came = self.ready and self.ready_at + self.known_after <= now
        return came and not self.ended and now < self.leaving + self.known_after

    def manifest(self) -> Object:
        """As the API server shows it, as far as `decide` reads it."""
        placed = {"type": "PodScheduled", "status": "True" if self.node else "False"}
        if self.unplaced and not self.node:
            placed |= {"reason": "Unschedulable", "message": self.unplaced}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{self.owner}-{self.template}"}
        owned = {**owner, "uid": f"uid-of-{owner['name']}", "controller": True}
        meta = {**self.meta, "name": self.name, "uid": self.uid, "ownerReferences": [owned]}
        if not self.stays:
            meta["deletionTimestamp"] = "set"
        ready = {"type": "Ready", "status": "True" if self.ready and self.stays else "False"}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta,
            "spec": dict(self.spec),
            "status": {"phase": "Running" if self.node else "Pending", "conditions": [placed, ready]},
        }
