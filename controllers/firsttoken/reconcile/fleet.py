"""The objects a service consists of, from its revisions and where its requests go."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from firsttoken.api.service import InferenceService
from firsttoken.manifests.gateway import Backend, gateway_objects
from firsttoken.manifests.images import Images
from firsttoken.manifests.live import live_config_map
from firsttoken.manifests.names import ROLE_LABEL, entry_point, gateway_routes_name
from firsttoken.planning.output import plan_from_json
from firsttoken.planning.plan import with_replicas
from firsttoken.planning.types import Infeasible, Plan
from firsttoken.reconcile.objects import Object, Progress, Ref, label, progress, ref
from firsttoken.reconcile.revisions import Target
from firsttoken.reconcile.traffic import Traffic


@dataclass(frozen=True)
class Observed:
    """What is there, by reference."""

    children: Mapping[Ref, Object]
    revisions: Mapping[str, Object]

    def deployment(self, name: str) -> Object | None:
        """A Deployment by name."""
        return self.children.get(Ref("apps/v1", "Deployment", name))


@dataclass(frozen=True)
class Fleet:
    """One service's revisions as they should be: the desired one and those that still serve or drain."""

    service: InferenceService
    observed: Observed
    target: Target | None
    images: Images = field(default_factory=Images)

    def record(self, revision: str) -> Object:
        """The stored (or about to be stored) record of a revision."""
        if self.target is not None and self.target.name == revision:
            return self.target.record
        return self.observed.revisions[revision]

    def replicas(self, revision: str) -> dict[str, int]:
        """Replicas wanted by role. A revision that is not the desired one keeps what it has (invariant 4)."""
        if self.target is not None and self.target.name == revision:
            return _by_role(self.target.plan)
        wanted = _by_role(self._last_plan(revision))
        for obj in _deployments(self.record(revision)):
            seen = self.observed.deployment(obj["metadata"]["name"])
            role = label(obj, ROLE_LABEL)
            if seen is not None and role in wanted:
                wanted[role] = int(seen["spec"].get("replicas", wanted[role]))
        return wanted

    def _last_plan(self, revision: str) -> Plan:
        plan = plan_from_json(self.record(revision)["spec"]["plan"])
        resized = with_replicas(plan, self.service.spec)
        return plan if isinstance(resized, Infeasible) else resized

    def revision_objects(self, revision: str) -> list[dict[str, Any]]:
        """The objects of one revision: its snapshot with today's replicas, and its live settings."""
        record, replicas = self.record(revision), self.replicas(revision)
        objects = [_with_replicas(obj, replicas) for obj in record["spec"]["objects"]]
        settings = plan_from_json(record["spec"]["plan"]).settings
        return [*objects, live_config_map(self.service, revision, settings, generation=1)]

    def gateway(self, traffic: Traffic, *, routes: bool) -> list[dict[str, Any]]:
        """Envoy and what leads to it. `routes` is False where the cluster knows no HTTPRoute."""
        names = dict.fromkeys([traffic.stable, self.target.name if self.target else None, *traffic.draining])
        backends = tuple(self._backend(name, traffic) for name in names if name is not None)
        objects = gateway_objects(self.service, backends, self.images)
        return [o for o in objects if routes or o["kind"] != "HTTPRoute"]

    def _backend(self, revision: str, traffic: Traffic) -> Backend:
        """Stable has all requests if it has a replica. The others are known to Envoy with weight 0, so that a later
        shift changes weights only: a route that names a cluster not loaded yet would answer 503.
        """
        service, port = entry_point(revision, plan_from_json(self.record(revision)["spec"]["plan"]))
        serves = revision == traffic.stable and any(self.replicas(revision).values())
        return Backend(revision, service, port, 100 if serves else 0)

    def is_known_to_gateway(self, revision: str) -> bool:
        """Whether Envoy was told of the revision in an earlier reconcile."""
        routes = self.observed.children.get(Ref("v1", "ConfigMap", gateway_routes_name(self.service.metadata.name)))
        return routes is not None and any(f'"{revision}"' in text for text in (routes.get("data") or {}).values())

    def progress(self, revision: str) -> Progress:
        """All Deployments of a revision as one: it serves when each part serves, is complete when each part is."""
        return total(
            _of_wanted(self.observed.deployment(obj["metadata"]["name"]), int(obj["spec"]["replicas"]))
            for obj in self.revision_objects(revision)
            if obj["kind"] == "Deployment"
        )

    def role_progress(self, revision: str) -> dict[str, Progress]:
        """Progress of the engines by role."""
        replicas = self.replicas(revision)
        return {
            role: _of_wanted(self.observed.deployment(obj["metadata"]["name"]), replicas[role])
            for obj in _deployments(self.record(revision))
            if (role := label(obj, ROLE_LABEL)) in replicas
        }


def total(parts: Iterable[Progress]) -> Progress:
    """Several Deployments as one, a chain: it serves if each of them does (a router without engines doesn't)."""
    parts = list(parts)
    return Progress(
        wanted=sum(p.wanted for p in parts),
        ready=sum(p.ready for p in parts) if all(p.serves for p in parts) else 0,
        complete=bool(parts) and all(p.complete for p in parts),
    )


def _of_wanted(deployment: Object | None, wanted: int) -> Progress:
    """Progress against what we want now, which the Deployment may not have been told yet."""
    seen = progress(deployment)
    return Progress(wanted, seen.ready, seen.complete and seen.wanted == wanted)


def _by_role(plan: Plan) -> dict[str, int]:
    return {role.role: role.replicas for role in plan.roles}


def _deployments(record: Object) -> list[Object]:
    return [o for o in record["spec"]["objects"] if o["kind"] == "Deployment"]


def _with_replicas(obj: Object, replicas: Mapping[str, int]) -> dict[str, Any]:
    role = label(obj, ROLE_LABEL) or ""
    if obj["kind"] != "Deployment" or role not in replicas:
        return dict(obj)
    return {**obj, "spec": {**obj["spec"], "replicas": replicas[role]}}


def by_ref(objects: Iterable[Object]) -> dict[Ref, Object]:
    """Objects by reference."""
    return {ref(obj): obj for obj in objects}
