"""The status of a service, built from scratch each time: what is not true any more disappears."""

from firsttoken.api.base import Condition
from firsttoken.api.service import (
    InferenceServiceStatus,
    PlanReason,
    PlanStatus,
    RevisionStatus,
    RoleStatus,
)
from firsttoken.manifests.names import REVISION_LABEL, ROLE_LABEL, SERVICE_LABEL
from firsttoken.planning.types import Plan
from firsttoken.reconcile.fleet import Fleet
from firsttoken.reconcile.inactive import inactive_reason
from firsttoken.reconcile.judge import World
from firsttoken.reconcile.traffic import Traffic

_MAX_REASONS, _MAX_REASON = 32, 1024  # bounds of the CRD; a longer text would cost the whole status


def build_status(
    before: InferenceServiceStatus, conditions: list[Condition], generation: int, world: World | None
) -> InferenceServiceStatus:
    """The whole status. With an unreadable spec (`world` None) everything but the conditions stays as it was."""
    if world is None:
        return before.model_copy(update={"conditions": conditions, "observed_generation": generation})
    fleet, flow = world.fleet, world.flow
    service, target = fleet.service, fleet.target
    status = InferenceServiceStatus(
        observed_generation=generation,
        conditions=conditions,
        endpoint=f"http://{service.metadata.name}.{service.metadata.namespace}.svc/v1",
        revision=_revisions(before, fleet, flow),
        slo=before.slo,
        diagnosis=before.diagnosis,
    )
    status = status.model_copy(update=_scale(fleet, flow.stable or fleet.desired))
    shown = target.name if target is not None else flow.stable
    plan = fleet.plan(shown) if shown is not None else None
    if shown is None or plan is None:
        return status.model_copy(update={"layout": before.layout, "plan": before.plan})
    roles = _roles(fleet, shown, plan)
    gpus = sum(role.replicas * role.gpus_per_replica for role in roles)
    in_force = PlanStatus(gpus=gpus, roles=roles, reasons=_reasons(fleet, plan))
    return status.model_copy(update={"layout": plan.layout, "plan": in_force})


def _roles(fleet: Fleet, revision: str, plan: Plan) -> list[RoleStatus]:
    """Of the plan in force: of the revision that is asked for, or, where the spec can't be planned, the serving one."""
    progress, replicas = fleet.role_progress(revision), fleet.replicas(revision)
    return [
        RoleStatus(
            role=r.role,
            accelerator=r.accelerator,
            replicas=replicas[r.role],
            ready_replicas=progress[r.role].ready,
            gpus_per_replica=r.gpus_per_replica,
            engine_args=dict(sorted(r.engine_args.items())),
        )
        for r in plan.roles
    ]


def _scale(fleet: Fleet, revision: str | None) -> dict[str, object]:
    """What /scale shows: the pods that have the requests. An autoscaler must not judge a new revision's idle ones."""
    if revision is None or "serve" not in fleet.replicas(revision):
        return {}  # the roles of a split scale by spec
    engine = fleet.observed.workload(revision)
    seen = (engine or {}).get("status") or {}
    name = fleet.service.metadata.name
    return {
        "replicas": int(seen.get("replicas", 0)),
        "ready_replicas": int(seen.get("readyReplicas", 0)),
        "selector": f"{SERVICE_LABEL}={name},{REVISION_LABEL}={revision},{ROLE_LABEL}=serve",
    }


def _reasons(fleet: Fleet, plan: Plan) -> list[PlanReason]:
    inactive = inactive_reason(fleet.service.spec)
    reasons = (*plan.reasons, *([inactive] if inactive else []))
    return [PlanReason(code=r.code, message=r.message[:_MAX_REASON]) for r in reasons[:_MAX_REASONS]]


def _revisions(before: InferenceServiceStatus, fleet: Fleet, flow: Traffic) -> RevisionStatus:
    """Without a plan `desired` and its pin stay: a count that was too high once must not cost the plan its pin."""
    seen, target = before.revision or RevisionStatus(), fleet.target
    desired = target.name if target is not None else seen.desired
    waits = flow.stable is not None and desired not in (None, flow.stable)
    return RevisionStatus(
        desired=desired,
        inputs_hash=target.inputs_hash if target is not None else seen.inputs_hash,
        stable=flow.stable,
        stable_replicas=fleet.replicas(flow.stable) if flow.stable is not None else {},
        draining=list(flow.draining),
        shifted_at=flow.shifted_at,
        canary_weight=0 if waits else None,
    )
