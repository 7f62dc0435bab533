"""What is true of a service now, as ordered checks: the first that fails is what a person should read."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from firsttoken.manifests.names import gateway_name, gateway_routes_name
from firsttoken.planning.types import Infeasible
from firsttoken.planning.words import size
from firsttoken.reconcile.calibrating import metrics_aspect
from firsttoken.reconcile.conditions import Aspect
from firsttoken.reconcile.envoy_views import AWAITED, Envoys
from firsttoken.reconcile.fleet import Fleet
from firsttoken.reconcile.objects import Progress, Ref, is_owned, progress, ref, time_or
from firsttoken.reconcile.observation import Observation
from firsttoken.reconcile.plan_words import replicas, unbuilt
from firsttoken.reconcile.revisions import Target
from firsttoken.reconcile.routes import Versions, versions
from firsttoken.reconcile.traffic import Traffic
from firsttoken.reconcile.verdict import Verdict
from firsttoken.reconcile.waiting import waiting

_SEE_READY = "condition Ready says why"
SETTLED_SECONDS = 600.0  # until what became ready is expected to be measured


@dataclass(frozen=True)
class Findings:
    """Everything that conditions are made of."""

    invalid: str | None = None
    taken: tuple[Ref, ...] = ()
    verdict: Verdict | None = None
    planned: Aspect | None = None
    available: Aspect | None = None
    rollout: Aspect | None = None
    awaited: Aspect | None = None
    metrics: Aspect | None = None

    @property
    def waits(self) -> bool:
        """Something is under way that no watched object will tell of."""
        return self.verdict is not None and not self.verdict.ready

    def aspects(self) -> Iterable[Aspect]:
        """The conditions in the order people read them; those that don't apply stay unset (S5)."""
        verdict = self.verdict
        if self.invalid is not None:
            verdict = Verdict(False, "InvalidSpec", f"the spec can't be used: {self.invalid}; correct it", stalled=True)
        assert verdict is not None  # noqa: S101 - Findings are built by judge() or for an invalid spec
        yield Aspect("Ready", verdict.ready, verdict.reason, verdict.message)
        if not verdict.ready:  # whole: Flux and Argo CD show this one alone
            yield Aspect("Stalled" if verdict.stalled else "Reconciling", True, verdict.reason, verdict.message)
        yield from (
            a for a in (self.planned, self.available, self.rollout, self.awaited, self.metrics) if a is not None
        )


@dataclass(frozen=True)
class World:
    """One service as it is and as it should be, complete enough to be judged."""

    observation: Observation
    fleet: Fleet
    flow: Traffic
    desired: tuple[dict[str, Any], ...]
    infeasible: Infeasible | None = None
    overdue: bool = False  # Envoys have been awaited for long enough

    @property
    def envoys(self) -> Envoys:
        """What the Envoys say."""
        return self.observation.envoys or Envoys()

    @property
    def versions(self) -> Versions | None:
        """Of the routes as they should be."""
        routes = Ref("v1", "ConfigMap", gateway_routes_name(self.fleet.service.metadata.name))
        return versions(next((o for o in self.desired if ref(o) == routes), None))

    @property
    def taken(self) -> tuple[Ref, ...]:
        """Names we want that belong to somebody else, be they listed (with our label on them) or looked up."""
        uid = self.observation.service["metadata"]["uid"]
        listed = {ref(o) for o in (*self.observation.children, *self.observation.revisions) if not is_owned(o, uid)}
        foreign = self.observation.foreign | listed
        return tuple(sorted({ref(o) for o in self.desired} & foreign))

    @property
    def gateway(self) -> Progress:
        """How far Envoy is."""
        return progress(self.fleet.observed.workload(gateway_name(self.fleet.service.metadata.name)))


def judge(world: World) -> Findings:
    """Findings of one reconcile."""
    verdict = _verdict(world)
    available = _available(world, verdict)
    return Findings(
        taken=world.taken,
        verdict=verdict,
        planned=_planned(world, verdict),
        available=available,
        rollout=_rollout(world.fleet, world.flow, verdict),
        awaited=_awaited(world, verdict, available),
        metrics=_metrics(world),
    )


def _metrics(world: World) -> Aspect | None:
    """Of what has the requests, if it has pods."""
    serving, now = world.flow.stable, world.observation.now
    if serving is None or not any(world.fleet.replicas(serving).values()):
        return None
    ready = next((c for c in world.fleet.service.status.conditions if c.type == "Ready"), None)
    since = time_or(ready.last_transition_time, now) if ready is not None and ready.status == "True" else now
    settled = (now - since).total_seconds() >= SETTLED_SECONDS
    return metrics_aspect(world.observation.measurements, world.observation.ratios, serving, settled=settled)


def _awaited(world: World, verdict: Verdict, available: Aspect) -> Aspect | None:
    """Since when Envoys are awaited: a condition, because nothing else of a service keeps that time."""
    late = world.flow.late or verdict.late
    if not late and available.reason != "EnvoySyncing":
        return None
    return Aspect(AWAITED, False, "EnvoySyncing", _behind(late) if late else available.message)


def _verdict(world: World) -> Verdict:
    blocked = _blocked(world)
    if blocked is not None:
        return blocked
    target = world.fleet.target
    if target is None:
        return _not_planned(world)
    gateway = world.gateway
    if not world.fleet.progress(target.name).complete:
        return waiting(world.observation, world.fleet, target.name)
    if not gateway.complete:
        return Verdict(False, "GatewayProgressing", f"Envoy: {gateway.ready} of {gateway.wanted} replicas ready")
    there = world.fleet.observed.children
    absent = [str(ref(o)) for o in world.desired if ref(o) not in there and o["kind"] != "InferenceRevision"]
    if absent:
        return Verdict(False, "Progressing", f"creating {', '.join(absent)}")
    if world.flow.stable != target.name:
        return _moving(world, target)
    return _route_not_accepted(world) or _serving(world, target)


def _moving(world: World, target: Target) -> Verdict:
    late, text = world.flow.late, f"revision {target.name} is complete, requests move to it"
    if world.flow.next_up != target.name:
        return Verdict(False, "EnvoySyncing", f"{text} soon: {_behind(late)}", late=late)
    return Verdict(False, "Shifting", f"{text}; {_behind(late)}" if late else text, soon=True, late=late)


def _behind(pods: Iterable[str]) -> str:
    return f"waiting for Envoy to take up its routes and find the revision's pods: {', '.join(pods)}"


def _serving(world: World, target: Target) -> Verdict:
    """An Envoy that has not the routes, or no endpoint behind them, answers 503. One that says nothing for a minute
    while others answer is out of the operator's reach, not out of order.
    """
    if not any(world.fleet.replicas(target.name).values()):
        return Verdict(True, "ScaledToZero", "no replica is wanted, and none runs")
    late = world.envoys.late(_confirmed_by(world), target.name, silent=not world.overdue)
    if late:
        return Verdict(False, "EnvoySyncing", f"revision {target.name} is complete; {_behind(late)}", late=late)
    silent = world.envoys.silent if world.envoys.answered else ()
    note = f"; no answer from {', '.join(silent)}" if silent else ""
    return Verdict(True, "Serving", f"revision {target.name} serves with {replicas(target.plan)}{note}")


def _confirmed_by(world: World) -> Versions | None:
    """The routes that Envoys must have. Those without a revision that has drained are written in the pass in which it
    goes; who has the ones before sends nobody there either, so nothing of what users get is pending.
    """
    if world.flow.gone:
        return world.fleet.observed.versions(world.fleet.service.metadata.name)
    return world.versions


def _route_not_accepted(world: World) -> Verdict | None:
    """A route that no Gateway has accepted leads nobody here (S28)."""
    for obj in world.desired:
        if obj["kind"] == "HTTPRoute" and (seen := world.fleet.observed.children.get(ref(obj))) is not None:
            parents = (seen.get("status") or {}).get("parents") or ()
            if not parents:
                gateway = obj["spec"]["parentRefs"][0]["name"]
                return Verdict(
                    False, "WaitingForRoute", f"HTTPRoute {ref(obj).name}: Gateway {gateway} hasn't answered yet"
                )
            refused = [
                f"{c['type']}={c['status']} {c.get('reason', '')}: {c.get('message', '')}"
                for parent in parents
                for c in parent.get("conditions") or ()
                if c["type"] in ("Accepted", "ResolvedRefs") and c["status"] != "True"
            ]
            if refused:
                return Verdict(False, "RouteNotAccepted", f"HTTPRoute {ref(obj).name}: {'; '.join(refused)}")
    return None


def _blocked(world: World) -> Verdict | None:
    """What only a person can put right."""
    if world.taken:
        names = ", ".join(map(str, world.taken))
        return Verdict(False, "NameTaken", f"{names} exists and is not ours: rename it or the service", stalled=True)
    if world.infeasible is None and world.fleet.service.spec.routing.gateway and not world.observation.gateway_api:
        missing = "spec.routing.gateway needs the Gateway API: install its CRDs, or remove the field"
        return Verdict(False, "GatewayAPIMissing", missing, stalled=True)
    if world.infeasible is None and not world.observation.groups_api and _needs_groups(world.fleet):
        missing = (
            f"revision {world.fleet.desired} has replicas on several nodes, which needs LeaderWorkerSet: install it "
            "(https://lws.sigs.k8s.io), or choose GPUs of which one node holds a replica"
        )
        return Verdict(False, "LeaderWorkerSetMissing", missing, stalled=True)
    if world.observation.rejected:
        refused = "; ".join(f"{name}: {why}" for name, why in sorted(world.observation.rejected.items()))
        return Verdict(False, "ApplyRejected", f"the API server refused {refused}", stalled=True)
    return None


def _needs_groups(fleet: Fleet) -> bool:
    return fleet.target is not None and any(role.nodes > 1 for role in fleet.target.plan.roles)


def _not_planned(world: World) -> Verdict:
    if world.infeasible is None:
        return Verdict(False, "NotPlanned", "no plan yet")
    message = f"{world.infeasible.message}{_still_serving(world)}"
    return Verdict(False, world.infeasible.constraint, message, stalled=True)


def _still_serving(world: World) -> str:
    """Who has the requests while the spec can't be used: that is the next question of whoever reads it."""
    stable = world.flow.stable
    if stable is None:
        return ""
    parts = [f"{p.ready} of {p.wanted} × {role} ready" for role, p in world.fleet.role_progress(stable).items()]
    return f"; revision {stable} keeps all requests" + (f" ({', '.join(parts)})" if parts else "")


def _planned(world: World, verdict: Verdict) -> Aspect:
    fleet = world.fleet
    if fleet.target is None:
        why = _not_planned(world)
        return Aspect("Planned", False, why.reason, _SEE_READY if verdict == why else why.message)
    plan = fleet.target.plan
    return Aspect(
        "Planned", True, "Planned", f"{plan.layout}: {replicas(plan)}, {size(plan)}{unbuilt(plan, fleet.images)}"
    )


def _available(world: World, verdict: Verdict) -> Aspect:
    """Can somebody get an answer? An older revision that still serves counts; so does one replica of many (S16)."""
    fleet, flow, gateway = world.fleet, world.flow, world.gateway
    if flow.stable is None:
        return Aspect("Available", False, verdict.reason, f"nothing serves yet; {_SEE_READY}")
    serving = fleet.progress(flow.stable)
    if not gateway.serves:
        return Aspect("Available", False, "GatewayProgressing", f"Envoy: 0 of {gateway.wanted} replicas ready")
    if not serving.serves:
        return Aspect("Available", False, "NoReplicaReady", f"revision {flow.stable}: no replica ready")
    if not _reachable(world, flow.stable):
        text = f"revision {flow.stable} has pods, but no Envoy sends requests to them yet"
        return Aspect("Available", False, "EnvoySyncing", text)
    message = f"revision {flow.stable}: {serving.ready} of {serving.wanted} pods ready"
    return Aspect("Available", True, "Serving", message)


def _reachable(world: World, stable: str) -> bool:
    """Whether one Envoy at least leads to what serves. Its routes did if somebody got an answer before; else they must
    have arrived.
    """
    before = next((c.status for c in world.fleet.service.status.conditions if c.type == "Available"), None)
    views, told = world.envoys.answered, world.fleet.observed.versions(world.fleet.service.metadata.name)
    arrived = before == "True" or not views or any(not view.late(told, stable) for view in views)
    return world.envoys.found(stable) and arrived


def _rollout(fleet: Fleet, flow: Traffic, verdict: Verdict) -> Aspect | None:
    desired = fleet.desired
    if desired is not None and flow.stable is not None and desired != flow.stable:
        message = f"{desired} starts beside {flow.stable}, which has all requests: {verdict.message}"
        return Aspect("RolloutProgressing", True, "RollingOut", message)
    if flow.draining:
        names = ", ".join(d.name for d in flow.draining)
        return Aspect("RolloutProgressing", True, "Draining", f"finishing streams: {names}")
    return None


__all__ = ["Findings", "Verdict", "judge"]
