"""`decide`: one observation of a service in, everything to be done about it out. Pure (DESIGN §1)."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from firsttoken.api.quantities import duration_seconds
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceService, InferenceServiceStatus
from firsttoken.manifests import groups
from firsttoken.manifests.names import GATEWAY_ROLE, REVISION_LABEL, gateway_name, selector
from firsttoken.planning.types import Infeasible
from firsttoken.reconcile import records
from firsttoken.reconcile.calibrating import calibrated
from firsttoken.reconcile.conditions import OURS, Aspect, dated, transitions
from firsttoken.reconcile.drift import drifted
from firsttoken.reconcile.envoy_views import AWAITED, DEADLINE_SECONDS, Envoys, awaited_seconds, overdue, pause
from firsttoken.reconcile.fleet import Fleet, Observed, by_ref
from firsttoken.reconcile.judge import Findings, World, judge
from firsttoken.reconcile.objects import Object, Ref, adopt, is_owned, label, progress, ref, time_or
from firsttoken.reconcile.observation import Decision, Observation, Sync
from firsttoken.reconcile.records import content_hash
from firsttoken.reconcile.revisions import Library, target
from firsttoken.reconcile.routes import carrying
from firsttoken.reconcile.status import build_status
from firsttoken.reconcile.traffic import Traffic, traffic
from firsttoken.reconcile.verdict import Verdict

RETRY_TAKEN_NAME_SECONDS = 10.0
_LOOK_SOON_SECONDS = 1.0
_GARBAGE_COLLECTOR = ("foregroundDeletion", "orphan")  # its own finalizers: they go by themselves
_LOOK_AGAIN_SECONDS = (2.0, 60.0)  # while something is not ready: first and slowest


def decide(observation: Observation) -> Decision:
    """What to do about one service. Equal observations give equal decisions; a quiet one writes nothing."""
    raw = observation.service
    before = _status(raw)
    if raw["metadata"].get("deletionTimestamp"):
        return _going(observation, before)
    try:
        service = InferenceService.model_validate({**raw, "status": {}}).model_copy(update={"status": before})
        duration_seconds(service.spec.rollout.drain_timeout)  # stored before the bound it breaks
    except ValidationError as error:
        return _conclude(observation, before, None, Findings(invalid=_first_fault(error)))
    except ValueError as error:
        return _conclude(observation, before, None, Findings(invalid=f"spec.rollout.drainTimeout: {error}"))
    world = _world(observation, service)
    return _conclude(observation, before, world, judge(world))


def _going(observation: Observation, before: InferenceServiceStatus) -> Decision:
    """Children go with their owner: the garbage collector's work. Where a finalizer of others holds the owner, nobody
    looks after the service any more, and Ready must not go on saying that it is as asked for (K4).
    """
    held = [f for f in observation.service["metadata"].get("finalizers") or () if f not in _GARBAGE_COLLECTOR]
    if not held or not before.conditions:
        return Decision()
    text = f"being deleted, and no longer looked after; waits for the finalizers of others: {', '.join(held)}"
    gone = Findings(verdict=Verdict(False, "Deleting", text))
    said = {aspect.type for aspect in gone.aspects()} | {"Stalled", AWAITED}
    kept = [Aspect(c.type, c.status == "True", c.reason, c.message) for c in before.conditions if c.type not in said]
    return _told(observation, before, None, (*gone.aspects(), *kept))


def _status(raw: Object) -> InferenceServiceStatus:
    """The status as we left it; one that somebody garbled counts as lost."""
    try:
        return InferenceServiceStatus.model_validate(raw.get("status") or {})
    except ValidationError:
        return InferenceServiceStatus()


def _world(observation: Observation, service: InferenceService) -> World:
    observed = _observed(observation)
    has_requests = carrying(observed.weights(service.metadata.name))
    try:
        library = Library(
            observed.records,
            observed.unsound,
            _profiles(observation),
            observation.images,
            observation.model_config,
            observation.model_fault,
        )
        wanted = target(service, library, has_requests)
    except ValidationError as error:
        wanted = Infeasible("InvalidProfile", f"an AcceleratorProfile can't be used: {_first_fault(error)}")
    infeasible = wanted if isinstance(wanted, Infeasible) else None
    fleet = Fleet(service, observed, None if isinstance(wanted, Infeasible) else wanted, observation.images)
    late = overdue(service.status.conditions, observation.now)
    arms = fleet.arms(observation.envoys or Envoys(), overdue=late)
    flow = traffic(service, fleet.desired, arms, observation.now)
    return World(observation, fleet, flow, tuple(_desired_objects(observation, fleet, flow)), infeasible, late)


def _profiles(observation: Observation) -> dict[str, AcceleratorProfileSpec]:
    return {name: AcceleratorProfileSpec.model_validate(p["spec"]) for name, p in observation.profiles.items()}


def _observed(observation: Observation) -> Observed:
    meta = observation.service["metadata"]
    children = by_ref(c for c in observation.children if is_owned(c, meta["uid"]))
    sound, unsound = {}, {}
    for record in observation.revisions:
        name = record["metadata"]["name"]
        if not is_owned(record, meta["uid"]):
            continue  # somebody else's; if it has a name we need, that name is taken
        why = records.fault(record, meta["name"])
        if why is None:
            sound[name] = record
        else:
            unsound[name] = why
    return Observed(children, sound, unsound)


def _desired_objects(observation: Observation, fleet: Fleet, flow: Traffic) -> list[dict[str, Any]]:
    """Everything that should exist, in the order of creation: records first, so that a crash leaves a trace."""
    names = sorted({*flow.kept, *([fleet.desired] if fleet.desired else [])})
    objects = [obj for name in names for obj in fleet.revision_objects(name)]
    if names:
        objects += fleet.gateway(flow, routes=observation.gateway_api)
    if not observation.groups_api:
        objects = [obj for obj in objects if obj["kind"] != groups.KIND]
    kept = [_core(record) for _, record in sorted(fleet.observed.records.items())]
    if fleet.target is not None and fleet.target.is_new:
        kept.append(fleet.target.record)
    return [adopt(obj, observation.service) for obj in (*kept, *objects)]


def _core(record: Object) -> dict[str, Any]:
    """A stored record as it was first applied, so that lost labels and owners come back."""
    meta = record["metadata"]
    return {
        "apiVersion": record["apiVersion"],
        "kind": record["kind"],
        "metadata": {"name": meta["name"], "labels": records.record_labels(record)},
        "spec": record["spec"],
    }


def _conclude(
    observation: Observation, before: InferenceServiceStatus, world: World | None, findings: Findings
) -> Decision:
    generation = int(observation.service["metadata"].get("generation", 1))
    decision = replace(
        _told(observation, before, world, findings.aspects()),
        requeue_after=_requeue(observation.now, before, world, findings),
        ask=world is not None and observation.envoys is None and _hinges_on_envoys(before, generation, world, findings),
    )
    if world is None:
        return decision
    apply = tuple(o for o in _allowed(world) if drifted(o, _seen(world, o)))
    delete = () if observation.rejected or findings.taken else _obsolete(world)
    kept = calibrated(observation.ratios, world.fleet.observed.records, observation.now)
    return replace(decision, apply=apply, sync=_to_sync(world, apply), calibrate=kept, delete=delete)


def _told(
    observation: Observation, before: InferenceServiceStatus, world: World | None, aspects: Iterable[Aspect]
) -> Decision:
    """The status and the events."""
    generation = int(observation.service["metadata"].get("generation", 1))
    conditions = dated(aspects, before.conditions, observation.now, generation)
    wire = build_status(before, conditions, generation, world).wire()
    wire["conditions"] = [*wire["conditions"], *_conditions_of_others(observation.service)]
    return Decision(
        status=None if wire == (observation.service.get("status") or {}) else wire,
        events=transitions(before.conditions, conditions),
    )


def _hinges_on_envoys(before: InferenceServiceStatus, generation: int, world: World, findings: Findings) -> bool:
    """Whether this pass does what Envoys confirm: requests move, what drained goes, a condition becomes true."""
    flow = world.flow
    if flow.next_up != flow.stable or flow.gone:
        return True
    was = {c.type: c for c in before.conditions if c.status == "True"}
    ready, available = was.get("Ready"), findings.available
    becomes_ready = findings.verdict is not None and findings.verdict.reason == "Serving"
    if becomes_ready and (ready is None or ready.observed_generation != generation):
        return True
    return available is not None and available.holds and "Available" not in was


def _allowed(world: World) -> tuple[dict[str, Any], ...]:
    """What may be applied. A taken name stops the revision (or the gateway) that needs it, not what serves already;
    with nothing serving, nothing is written at all.
    """
    if not world.taken:
        return world.desired
    if world.flow.stable is None:
        return ()
    stopped = {label(o, REVISION_LABEL) for o in world.desired if ref(o) in world.taken}
    return tuple(o for o in world.desired if label(o, REVISION_LABEL) not in stopped)


def _conditions_of_others(service: Object) -> list[Any]:
    """Conditions that others put into our status: they stay as they are."""
    status = service.get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    if not isinstance(found, list):
        return []
    return [c for c in found if isinstance(c, dict) and c.get("type") not in OURS]


def _seen(world: World, obj: Object) -> Object | None:
    if obj["kind"] == "InferenceRevision":
        return world.fleet.observed.records.get(obj["metadata"]["name"])
    return world.fleet.observed.children.get(ref(obj))


def _to_sync(world: World, apply: tuple[dict[str, Any], ...]) -> tuple[Sync, ...]:
    """Pods whose mounted ConfigMap changes: the kubelet would tell them only after up to a minute."""
    syncs = []
    for obj in apply:
        if obj["kind"] == "ConfigMap" and _seen(world, obj) is not None:
            revision, service = label(obj, REVISION_LABEL), world.fleet.service.metadata.name
            pods = {REVISION_LABEL: revision} if revision else selector(service, GATEWAY_ROLE)
            syncs.append(Sync(pods, content_hash(obj["data"])[:16]))
    return tuple(syncs)


def _obsolete(world: World) -> tuple[Object, ...]:
    """Children nobody wants any more, then the oldest records beyond the limit.

    With neither a plan nor anything that serves, nothing goes.
    """
    if world.fleet.desired is None and world.flow.stable is None:
        return ()
    wanted = {ref(obj) for obj in world.desired}
    weights = world.fleet.observed.weights(world.fleet.service.metadata.name)
    gone = [
        obj
        for key, obj in sorted(world.fleet.observed.children.items())
        if key not in wanted and _is_spent(world, obj, weights)
    ]
    return (*gone, *_pruned(world))


def _is_spent(world: World, obj: Object, weights: dict[str, int]) -> bool:
    """Whether nothing needs the object: no requests by the *observed* routes, no streams, no pod of an old template."""
    revision = label(obj, REVISION_LABEL)
    if revision is not None:
        return revision not in world.flow.kept and weights.get(revision, 0) == 0
    if obj["kind"] != "ConfigMap":
        return True
    name = gateway_name(world.fleet.service.metadata.name)
    return progress(world.fleet.observed.children.get(Ref("apps/v1", "Deployment", name))).complete


def _pruned(world: World) -> tuple[Object, ...]:
    keep = {*world.flow.kept, world.fleet.desired}
    old = [r for name, r in world.fleet.observed.records.items() if name not in keep]
    old.sort(key=lambda r: (r["metadata"].get("creationTimestamp", ""), r["metadata"]["name"]), reverse=True)
    return tuple(old[world.fleet.service.spec.revision_history_limit :])


def _requeue(now: datetime, before: InferenceServiceStatus, world: World | None, findings: Findings) -> float | None:
    delays = []
    if findings.taken:
        delays.append(RETRY_TAKEN_NAME_SECONDS)
    if world is not None and world.flow.look_at is not None:
        delays.append(max(0.0, (world.flow.look_at - now).total_seconds()))
    if findings.waits:
        soon = findings.verdict is not None and findings.verdict.soon
        delays.append(_LOOK_SOON_SECONDS if soon else _patience(now, before))
    if findings.awaited is not None:
        waited = awaited_seconds(before.conditions, now) or 0.0
        left = DEADLINE_SECONDS - waited
        delays.append(min(pause(waited), left) if left > 0 else pause(waited))
    return min(delays, default=None)


def _patience(now: datetime, before: InferenceServiceStatus) -> float:
    """Pods are not watched: look again soon at first, then ever more rarely."""
    first, slowest = _LOOK_AGAIN_SECONDS
    ready = next((c for c in before.conditions if c.type == "Ready"), None)
    waited = now - time_or(ready.last_transition_time, now) if ready is not None else timedelta(0)
    return min(slowest, max(first, waited.total_seconds() / 4))


def _first_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
