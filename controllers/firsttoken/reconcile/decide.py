"""`decide`: one observation of a service in, everything to be done about it out. Pure (DESIGN §1)."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceService, InferenceServiceStatus
from firsttoken.manifests.names import GATEWAY_ROLE, REVISION_LABEL, gateway_name, selector
from firsttoken.planning.types import Infeasible
from firsttoken.reconcile.conditions import dated, transitions
from firsttoken.reconcile.drift import drifted
from firsttoken.reconcile.fleet import Fleet, Observed, by_ref
from firsttoken.reconcile.judge import Findings, World, judge
from firsttoken.reconcile.objects import Object, Ref, adopt, is_owned, label, progress, ref
from firsttoken.reconcile.observation import Decision, Observation, Sync
from firsttoken.reconcile.revisions import content_hash, target
from firsttoken.reconcile.status import build_status
from firsttoken.reconcile.traffic import Traffic, traffic

RETRY_TAKEN_NAME_SECONDS = 10.0
_LOOK_AGAIN_SECONDS = (2.0, 60.0)  # while something is not ready: first and slowest


def decide(observation: Observation) -> Decision:
    """What to do about one service. Equal observations give equal decisions; a quiet one writes nothing."""
    meta = observation.service["metadata"]
    if meta.get("deletionTimestamp"):
        return Decision()  # children go with their owner: the garbage collector's work
    try:
        service = InferenceService.model_validate(observation.service)
    except ValidationError as error:
        return _conclude(observation, None, Findings(invalid=_first_fault(error)))
    return _decide(observation, service)


def _decide(observation: Observation, service: InferenceService) -> Decision:
    observed = _observed(observation)
    profiles = {n: AcceleratorProfileSpec.model_validate(p["spec"]) for n, p in observation.profiles.items()}
    wanted = target(service, observed.revisions, profiles, observation.images)
    infeasible = wanted if isinstance(wanted, Infeasible) else None
    fleet = Fleet(service, observed, None if isinstance(wanted, Infeasible) else wanted, observation.images)
    flow = traffic(
        service,
        fleet.target.name if fleet.target else None,
        {*observed.revisions, *([fleet.target.name] if fleet.target else [])},
        fleet.progress,
        fleet.is_known_to_gateway,
        now=observation.now,
    )
    desired = tuple(_desired_objects(observation, fleet, flow))
    world = World(observation, fleet, flow, desired, infeasible)
    return _conclude(observation, world, judge(world))


def _observed(observation: Observation) -> Observed:
    uid = observation.service["metadata"]["uid"]
    children = by_ref(c for c in observation.children if is_owned(c, uid))
    revisions = {r["metadata"]["name"]: r for r in observation.revisions if is_owned(r, uid)}
    return Observed(children, revisions)


def _desired_objects(observation: Observation, fleet: Fleet, flow: Traffic) -> list[dict[str, Any]]:
    """Everything that should exist, in the order of creation: records first, so that a crash leaves a trace."""
    names = sorted({*flow.kept, *([fleet.target.name] if fleet.target else [])})
    objects = [obj for name in names for obj in fleet.revision_objects(name)]
    if names and flow.lost is None:
        objects += fleet.gateway(flow, routes=observation.gateway_api)
    objects = [adopt(obj, observation.service) for obj in objects]
    if fleet.target is not None and fleet.target.is_new:
        objects.insert(0, adopt(fleet.target.record, observation.service))
    return objects


def _conclude(observation: Observation, world: World | None, findings: Findings) -> Decision:
    before = InferenceServiceStatus.model_validate(observation.service.get("status") or {})
    generation = int(observation.service["metadata"].get("generation", 1))
    conditions = dated(findings.aspects(), before.conditions, observation.now, generation)
    status = build_status(before, conditions, generation, world.fleet if world else None, world.flow if world else None)
    wire = status.wire()
    decision = Decision(
        status=None if wire == (observation.service.get("status") or {}) else wire,
        events=transitions(before.conditions, conditions),
        requeue_after=_requeue(observation, world, findings, before),
    )
    if world is None or findings.blocked:
        return decision
    apply = tuple(o for o in world.desired if drifted(o, _seen(world, o)))
    return replace(decision, apply=apply, sync=_to_sync(world, apply), delete=_obsolete(world))


def _to_sync(world: World, apply: tuple[dict[str, Any], ...]) -> tuple[Sync, ...]:
    """Pods whose mounted ConfigMap changes: the kubelet would tell them only after up to a minute."""
    syncs = []
    for obj in apply:
        if obj["kind"] == "ConfigMap" and _seen(world, obj) is not None:
            revision, service = label(obj, REVISION_LABEL), world.fleet.service.metadata.name
            pods = {REVISION_LABEL: revision} if revision else selector(service, GATEWAY_ROLE)
            syncs.append(Sync(pods, content_hash(obj["data"])))
    return tuple(syncs)


def _seen(world: World, obj: Object) -> Object | None:
    if obj["kind"] == "InferenceRevision":
        return world.fleet.observed.revisions.get(obj["metadata"]["name"])
    return world.fleet.observed.children.get(ref(obj))


def _obsolete(world: World) -> tuple[Object, ...]:
    """Children nobody wants any more, then the oldest records beyond the limit. Without a plan, or with its
    serving revision's record lost, nothing goes."""
    if world.fleet.target is None or world.flow.lost is not None:
        return ()
    wanted = {ref(obj) for obj in world.desired}
    safe = world.flow.untouchable
    gone = [
        obj
        for key, obj in sorted(world.fleet.observed.children.items())
        if key not in wanted and label(obj, REVISION_LABEL) not in safe and _is_spent(world, obj)
    ]
    return (*gone, *_pruned(world))


def _is_spent(world: World, obj: Object) -> bool:
    """The gateway's parts go only when the gateway is complete: a pod of its old template may still need them."""
    if label(obj, REVISION_LABEL) is not None or obj["kind"] != "ConfigMap":
        return True
    name = world.fleet.service.metadata.name
    return progress(world.fleet.observed.children.get(Ref("apps/v1", "Deployment", gateway_name(name)))).complete


def _pruned(world: World) -> Iterable[Object]:
    keep = {*world.flow.untouchable, *([world.fleet.target.name] if world.fleet.target else [])}
    old = [r for name, r in world.fleet.observed.revisions.items() if name not in keep]
    old.sort(key=lambda r: (r["metadata"].get("creationTimestamp", ""), r["metadata"]["name"]), reverse=True)
    return old[world.fleet.service.spec.revision_history_limit :]


def _requeue(
    observation: Observation, world: World | None, findings: Findings, before: InferenceServiceStatus
) -> float | None:
    delays = []
    if findings.taken:
        delays.append(RETRY_TAKEN_NAME_SECONDS)
    if world is not None and world.flow.drained_at is not None:
        delays.append(max(0.0, (world.flow.drained_at - observation.now).total_seconds()))
    if findings.waits:
        delays.append(_patience(observation.now, before))
    return min(delays, default=None)


def _patience(now: datetime, before: InferenceServiceStatus) -> float:
    """Pods are not watched: look again soon at first, then ever more rarely."""
    first, slowest = _LOOK_AGAIN_SECONDS
    ready = next((c for c in before.conditions if c.type == "Ready"), None)
    if ready is None:
        return first
    waited = (now - datetime.fromisoformat(ready.last_transition_time)).total_seconds()
    return min(slowest, max(first, waited / 4))


def _first_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
