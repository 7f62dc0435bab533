"""The objects a service consists of, from its revisions and where its requests go."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from firsttoken.api.service import InferenceService
from firsttoken.manifests.gateway import Backend, gateway_objects
from firsttoken.manifests.images import Images
from firsttoken.manifests.live import live_config_map
from firsttoken.manifests.names import (
    ENGINE_PORT,
    REVISION_LABEL,
    ROLE_LABEL,
    ROUTER_PORT,
    ROUTER_ROLE,
    gateway_routes_name,
    router_name,
)
from firsttoken.planning.output import plan_from_json
from firsttoken.planning.plan import with_replicas
from firsttoken.planning.types import Infeasible, Plan
from firsttoken.reconcile.envoy_views import Envoys
from firsttoken.reconcile.objects import WORKLOADS, Object, Progress, Ref, is_workload, label, progress, ref
from firsttoken.reconcile.revisions import Target
from firsttoken.reconcile.routes import Versions, observed_weights, versions
from firsttoken.reconcile.traffic import Arms, Traffic


@dataclass(frozen=True)
class Observed:
    """What is there: children by reference, sound records by name, and why the other records can't be used."""

    children: Mapping[Ref, Object]
    records: Mapping[str, Object]
    unsound: Mapping[str, str] = field(default_factory=dict)

    def workload(self, name: str) -> Object | None:
        """A Deployment or LeaderWorkerSet by name."""
        found = (self.children.get(Ref(version, kind, name)) for version, kind in WORKLOADS)
        return next((o for o in found if o is not None), None)

    def workloads(self, revision: str) -> list[Object]:
        """Those that carry a revision's label."""
        return [o for o in self.children.values() if is_workload(o) and label(o, REVISION_LABEL) == revision]

    def weights(self, service: str) -> dict[str, int]:
        """What Envoy was told (routes.observed_weights)."""
        return observed_weights(self._routes(service))

    def versions(self, service: str) -> Versions | None:
        """Of the content that Envoy was told (routes.versions)."""
        return versions(self._routes(service))

    def _routes(self, service: str) -> Object | None:
        return self.children.get(Ref("v1", "ConfigMap", gateway_routes_name(service)))


@dataclass(frozen=True)
class Fleet:
    """One service's revisions as they should be: the desired one and those that still serve or drain.

    A revision whose record somebody deleted (`record` is None) is left as it runs: nothing says how it should be.
    """

    service: InferenceService
    observed: Observed
    target: Target | None
    images: Images = field(default_factory=Images)

    @property
    def desired(self) -> str | None:
        """Name of the revision the spec asks for, None without a plan."""
        return self.target.name if self.target is not None else None

    @property
    def existing(self) -> set[str]:
        """Every revision that has a record or runs."""
        running = {label(o, REVISION_LABEL) for o in self.observed.children.values() if is_workload(o)}
        return {name for name in {*self.observed.records, *running, self.desired} if name is not None}

    def arms(self, envoys: Envoys, *, overdue: bool) -> Arms:
        """What traffic is decided from."""
        return Arms(
            existing=self.existing,
            weights=self.observed.weights(self.service.metadata.name),
            progress=self.progress,
            wants_none=lambda name: not any(self.replicas(name).values()),
            envoys=envoys,
            versions=self.observed.versions(self.service.metadata.name),
            overdue=overdue,
        )

    def record(self, revision: str) -> Object | None:
        """The stored (or about to be stored) record of a revision."""
        if self.target is not None and self.target.name == revision:
            return self.target.record
        return self.observed.records.get(revision)

    def plan(self, revision: str) -> Plan | None:
        """The plan of a revision; the desired one's with today's replicas."""
        if self.target is not None and self.target.name == revision:
            return self.target.plan
        record = self.record(revision)
        return plan_from_json(record["spec"]["plan"]) if record is not None else None

    def replicas(self, revision: str) -> dict[str, int]:
        """Replicas wanted by role. What serves keeps its size while another revision starts (invariant 4)."""
        plan, seen = self.plan(revision), self.service.status.revision
        if plan is None:
            return {
                role: int(d["spec"].get("replicas", 1))
                for d in self.observed.workloads(revision)
                if (role := label(d, ROLE_LABEL)) is not None and role != ROUTER_ROLE
            }
        if revision == self.desired:
            return by_role(plan)
        if seen is not None and seen.stable == revision and set(seen.stable_replicas) == set(by_role(plan)):
            return dict(seen.stable_replicas)
        resized = with_replicas(plan, self.service.spec)
        return by_role(plan if isinstance(resized, Infeasible) else resized)

    def revision_objects(self, revision: str) -> list[dict[str, Any]]:
        """The objects of one revision: its snapshot with today's replicas, and its live settings."""
        record, plan, replicas = self.record(revision), self.plan(revision), self.replicas(revision)
        if record is None or plan is None:
            return []
        objects = [_with_replicas(obj, replicas) for obj in record["spec"]["objects"]]
        return [*objects, live_config_map(self.service, revision, plan.settings, generation=1)]

    def gateway(self, flow: Traffic, *, routes: bool) -> list[dict[str, Any]]:
        """Envoy and what leads to it. `routes` is False where the cluster knows no HTTPRoute."""
        names = dict.fromkeys([flow.stable, flow.next_up, self.desired, *(d.name for d in flow.draining)])
        backends = tuple(self._backend(name, flow) for name in names if name is not None)
        objects = gateway_objects(self.service, backends, self.images)
        return [o for o in objects if routes or o["kind"] != "HTTPRoute"]

    def _backend(self, revision: str, flow: Traffic) -> Backend:
        """`next_up` has all requests if it has a replica. The others are known to Envoy with weight 0, so that a later
        shift changes weights only: a route that names a cluster not loaded yet would answer 503.
        """
        plan, own_router = self.plan(revision), Ref("v1", "Service", router_name(revision))
        routed = plan.router if plan is not None else own_router in self.observed.children
        service, port = (own_router.name, ROUTER_PORT) if routed else (revision, ENGINE_PORT)
        serves = revision == flow.next_up and any(self.replicas(revision).values())
        return Backend(revision, service, port, 100 if serves else 0)

    def progress(self, revision: str) -> Progress:
        """All workloads of a revision as one: it serves when each part serves, is complete when each part is."""
        wanted = [o for o in self.revision_objects(revision) if is_workload(o)]
        if not wanted:
            return total(progress(d) for d in self.observed.workloads(revision))
        return total(
            of_wanted(self.observed.workload(o["metadata"]["name"]), int(o["spec"]["replicas"])) for o in wanted
        )

    def role_progress(self, revision: str) -> dict[str, Progress]:
        """Progress of the engines by role."""
        replicas = self.replicas(revision)
        return {
            role: of_wanted(self.observed.workload(obj["metadata"]["name"]), replicas[role])
            for obj in self.revision_objects(revision)
            if is_workload(obj) and (role := label(obj, ROLE_LABEL)) in replicas
        }


def total(parts: Iterable[Progress]) -> Progress:
    """Several workloads as one, a chain: it serves if each of them does (a router without engines doesn't)."""
    parts = list(parts)
    return Progress(
        wanted=sum(p.wanted for p in parts),
        ready=sum(p.ready for p in parts) if all(p.serves for p in parts) else 0,
        complete=bool(parts) and all(p.complete for p in parts),
    )


def of_wanted(workload: Object | None, wanted: int) -> Progress:
    """Progress against what we want now, which the workload may not have been told yet."""
    seen = progress(workload)
    return Progress(wanted, seen.ready, seen.complete and seen.wanted == wanted)


def by_role(plan: Plan) -> dict[str, int]:
    """Replicas of a plan by role."""
    return {role.role: role.replicas for role in plan.roles}


def by_ref(objects: Iterable[Object]) -> dict[Ref, Object]:
    """Objects by reference."""
    return {ref(obj): obj for obj in objects}


def _with_replicas(obj: Object, replicas: Mapping[str, int]) -> dict[str, Any]:
    role = label(obj, ROLE_LABEL) or ""
    if not is_workload(obj) or role not in replicas:
        return dict(obj)
    return {**obj, "spec": {**obj["spec"], "replicas": replicas[role]}}
