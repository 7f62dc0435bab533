"""What Kubernetes makes of Deployments in virtual time: pods that are placed, start, become Ready, drain and end."""

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

from firsttoken.api.quantities import quantity
from firsttoken.manifests.drain import SETTLE_SECONDS
from firsttoken.manifests.names import ROUTER_ROLE
from firsttoken.planning.words import count
from firsttoken.reconcile.objects import Ref, progress
from firsttoken.reconcile.records import content_hash
from firsttoken.rehearsal.cluster import Cluster
from firsttoken.rehearsal.nodes import Nodes
from firsttoken.rehearsal.pods import DNS_SECONDS, WATCH_SECONDS, Pod
from firsttoken.rehearsal.storing import Object
from firsttoken.rehearsal.timeline import Tell

# Envoy and vllm-router load nothing; a container that is there takes seconds.
_LIGHT_START_SECONDS = 5.0
_ASK_SECONDS = 1.0  # how often a draining engine's hook looks whether it is idle (manifests/drain.py)


class Kubelet:
    """Deployment controller, scheduler, kubelets and the user's Gateway, for one namespace."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: Nodes,
        tell: Tell,
        *,
        startup: float,
        hardware: Callable[[str, str], tuple[str, bool]],
        idle: Callable[[Pod], bool],
    ) -> None:
        """`startup`: seconds from an engine's placement to Ready. `hardware`: by revision and role the type of
        GPU, and whether a router is in front. `idle`: whether an engine has no request any more.
        """
        self.cluster, self.nodes, self.pods = cluster, nodes, list[Pod]()
        self._tell, self._startup, self._hardware, self._idle = tell, startup, hardware, idle
        self._made: dict[str, int] = {}
        self._seen: dict[str, tuple[int, int, int]] = {}  # of each Deployment: ready, updated, wanted
        self._moved: dict[str, float] = {}  # when a Deployment last came further
        self._pending: dict[str, str] = {}  # what was told of pods without a node

    def settle(self, now: float) -> None:
        """Everything that is due, until nothing changes any more."""
        while self._step(now):
            pass
        self._report(now)
        self._accept_routes()
        self.cluster.pods = [p.manifest() for p in self.pods]

    def next(self, now: float) -> float:
        """When something is due without anybody's doing, seconds; infinite: never."""
        times = []
        for pod in self.pods:
            if pod.leaving < math.inf:
                times += [pod.leaving + pod.known_after, pod.leaving + SETTLE_SECONDS, pod.leaving + pod.grace]
                if now >= pod.leaving + SETTLE_SECONDS:
                    times.append(now + _ASK_SECONDS)
            elif pod.node:
                times += [pod.ready_at, pod.ready_at + pod.known_after]
        for name, since in self._moved.items():
            deployment = self.cluster.store.get(Ref("apps/v1", "Deployment", name))
            if deployment is not None and not progress(deployment).complete:
                times.append(since + _deadline(deployment))
        return min((t for t in times if t > now), default=math.inf)

    def of(self, deployment: str) -> list[Pod]:
        """Pods of a Deployment that stay."""
        return [p for p in self.pods if p.owner == deployment and p.stays]

    def lose(self, pods: Iterable[Pod]) -> None:
        """These pods are gone at once, with all they had."""
        for pod in pods:
            pod.ended = True
        self.pods = [p for p in self.pods if not p.ended]

    def _step(self, now: float) -> bool:
        before = [(p.name, p.node, p.ready, p.leaving) for p in self.pods]
        deployments = {o["metadata"]["name"]: o for o in self.cluster.objects("Deployment")}
        for pod in self.pods:
            if pod.owner not in deployments:
                self._leave(pod, now)
        for name, deployment in deployments.items():
            self._scale(name, deployment, now)
        for pod in self.pods:
            if pod.leaving < math.inf and self._over(pod, now):
                pod.ended = True
        self.pods = [p for p in self.pods if not p.ended]
        for pod in self.pods:
            if not pod.node and pod.stays:
                self.nodes.place(pod, self.pods)
                if pod.node:
                    pod.ready_at = now + (self._startup if pod.is_engine else _LIGHT_START_SECONDS)
            if pod.stays and pod.ready_at <= now and not pod.ready and self._passes_probe(pod, now):
                pod.ready = True
                pod.ready_at = now
        return before != [(p.name, p.node, p.ready, p.leaving) for p in self.pods]

    def _passes_probe(self, pod: Pod, now: float) -> bool:
        """vllm-router says that it is ready once it has found an engine (manifests/router.py); others, once started."""
        engines = (p for p in self.pods if p.is_engine and p.revision == pod.revision)
        return pod.role != ROUTER_ROLE or any(p.known(now) for p in engines)

    def _over(self, pod: Pod, now: float) -> bool:
        """Whether a terminating pod ends now: its hook is done, or its grace period is."""
        if not pod.ready or now >= pod.leaving + pod.grace:
            return True
        return now >= pod.leaving + SETTLE_SECONDS and (not pod.is_engine or self._idle(pod))

    def _scale(self, name: str, deployment: Object, now: float) -> None:
        """ReplicaSets: pods of the template that are missing come, what is too many goes; old ones as new ones are up
        (maxUnavailable 0, maxSurge 1).
        """
        wanted = int(deployment["spec"].get("replicas", 1))
        template = content_hash(deployment["spec"]["template"])[:10]
        mine = self.of(name)
        current = [p for p in mine if p.template == template]
        old = [p for p in mine if p.template != template]
        room = wanted + 1 - len(mine) if old else wanted - len(current)
        for _ in range(min(room, wanted - len(current))):
            current.append(self._create(name, deployment, template, now))
        youngest = sorted(current, key=lambda p: (p.ready, -p.created, -current.index(p)))  # as ReplicaSets choose
        for pod in youngest[: max(0, len(current) - wanted)]:
            self._leave(pod, now)
        surplus = sum(p.ready for p in current) + len(old) - wanted
        for pod in sorted(old, key=lambda p: (p.ready, p.name))[: max(0, surplus)]:
            self._leave(pod, now)

    def _create(self, name: str, deployment: Object, template: str, now: float) -> Pod:
        self._made[name] = self._made.get(name, 0) + 1
        body = deployment["spec"]["template"]
        labels = {**body["metadata"]["labels"], "pod-template-hash": template}
        meta = {"namespace": deployment["metadata"]["namespace"], "labels": labels}
        pod = Pod(f"{name}-{self._made[name]}", name, template, meta, body["spec"], "", 0, now)
        pod.grace = float(body["spec"].get("terminationGracePeriodSeconds", 30))
        if pod.is_engine:
            pod.accelerator, routed = self._hardware(pod.revision, pod.role)
            pod.gpus = _devices(body["spec"], self.nodes.resource(pod.accelerator))
            pod.known_after = WATCH_SECONDS if routed else DNS_SECONDS
        self.pods.append(pod)
        return pod

    def _leave(self, pod: Pod, now: float) -> None:
        if pod.leaving == math.inf:
            pod.leaving = now

    def _report(self, now: float) -> None:
        """Status of Deployments, and what is worth telling of it."""
        for deployment in self.cluster.objects("Deployment"):
            name, wanted = deployment["metadata"]["name"], int(deployment["spec"].get("replicas", 1))
            template, mine = content_hash(deployment["spec"]["template"])[:10], self.of(name)
            ready, updated = sum(p.ready for p in mine), sum(p.template == template for p in mine)
            before = self._seen.get(name, (0, 0, 0))
            if before != (ready, updated, wanted):
                self._seen[name], self._moved[name] = (ready, updated, wanted), now
            if before[0] != ready:
                reason = "PodsReady" if ready > before[0] else "PodsNotReady"
                self._tell("cluster", reason, f"{name}: {ready} of {wanted} pods ready")
            unplaced = [p for p in mine if not p.node]
            late = not (ready >= wanted and len(mine) == updated == wanted) and (
                now - self._moved.get(name, now) >= _deadline(deployment)
            )
            self._put_status(deployment, _status(deployment, ready, updated, len(mine), late=late))
            self._tell_unplaced(name, unplaced)
        for name in [n for n in self._seen if Ref("apps/v1", "Deployment", n) not in self.cluster.store]:
            del self._seen[name]
            self._moved.pop(name, None)

    def _accept_routes(self) -> None:
        """The user's Gateway takes what is attached to it."""
        accepted = {"parents": [{"conditions": [{"type": "Accepted", "status": "True"}]}]}
        for route in self.cluster.objects("HTTPRoute"):
            self._put_status(route, accepted)

    def _tell_unplaced(self, name: str, pods: list[Pod]) -> None:
        told = f"{name}: {count(len(pods), 'pod')} Pending: {pods[0].unplaced}" if pods else ""
        if told and told != self._pending.get(name):
            self._tell("cluster", "PodsPending", told)
        self._pending[name] = told

    def _put_status(self, obj: Object, status: dict[str, Any]) -> None:
        if obj.get("status") != status:
            self.cluster.put({**copy.deepcopy(obj), "status": status})


def _deadline(deployment: Object) -> float:
    return float(deployment["spec"].get("progressDeadlineSeconds", 600))


def _status(deployment: Object, ready: int, updated: int, total: int, *, late: bool) -> dict[str, Any]:
    counts = {"readyReplicas": ready, "availableReplicas": ready} if ready else {}
    reason = "ProgressDeadlineExceeded" if late else "ReplicaSetUpdated"
    progressing = {"type": "Progressing", "status": "False" if late else "True", "reason": reason}
    generation = deployment["metadata"]["generation"]
    return {
        "observedGeneration": generation,
        "replicas": total,
        "updatedReplicas": updated,
        **counts,
        "conditions": [progressing],
    }


def _devices(spec: Object, resource: str) -> int:
    """Devices that a pod asks for."""
    found = 0
    for container in spec["containers"]:
        limits = (container.get("resources") or {}).get("limits") or {}
        found += int(quantity(limits[resource])) if resource in limits else 0
    return found
