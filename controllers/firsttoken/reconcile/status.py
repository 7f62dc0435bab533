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
from firsttoken.reconcile.fleet import Fleet
from firsttoken.reconcile.inactive import inactive_reason
from firsttoken.reconcile.revisions import Target
from firsttoken.reconcile.traffic import Traffic


def build_status(
    before: InferenceServiceStatus,
    conditions: list[Condition],
    generation: int,
    fleet: Fleet | None,
    flow: Traffic | None,
) -> InferenceServiceStatus:
    """The whole status. With an unreadable spec (`fleet` None) everything but the conditions stays as it was."""
    if fleet is None or flow is None:
        return before.model_copy(update={"conditions": conditions, "observed_generation": generation})
    service, target = fleet.service, fleet.target
    status = InferenceServiceStatus(
        observed_generation=generation,
        conditions=conditions,
        endpoint=f"http://{service.metadata.name}.{service.metadata.namespace}.svc/v1",
        revision=_revisions(before, fleet, flow),
        slo=before.slo,
        diagnosis=before.diagnosis,
    )
    if target is None:
        return status.model_copy(update={"layout": before.layout, "plan": before.plan, "selector": before.selector})
    return status.model_copy(update=_of_target(fleet, target))


def _of_target(fleet: Fleet, target: Target) -> dict[str, object]:
    roles = fleet.role_progress(target.name)
    update: dict[str, object] = {
        "layout": target.plan.layout,
        "plan": PlanStatus(
            gpus=target.plan.gpus,
            roles=[
                RoleStatus(
                    role=r.role,
                    accelerator=r.accelerator,
                    replicas=r.replicas,
                    ready_replicas=roles[r.role].ready,
                    gpus_per_replica=r.gpus_per_replica,
                    engine_args=dict(sorted(r.engine_args.items())),
                )
                for r in target.plan.roles
            ],
            reasons=_reasons(fleet, target),
        ),
    }
    if "serve" in roles:  # colocated replicas scale through /scale; the roles of a split scale by spec
        name = fleet.service.metadata.name
        update["replicas"] = roles["serve"].wanted
        update["ready_replicas"] = roles["serve"].ready
        update["selector"] = f"{SERVICE_LABEL}={name},{REVISION_LABEL}={target.name},{ROLE_LABEL}=serve"
    return update


def _reasons(fleet: Fleet, target: Target) -> list[PlanReason]:
    inactive = inactive_reason(fleet.service.spec)
    reasons = (*target.plan.reasons, *([inactive] if inactive else []))
    return [PlanReason(code=r.code, message=r.message) for r in reasons]


def _revisions(before: InferenceServiceStatus, fleet: Fleet, flow: Traffic) -> RevisionStatus:
    seen = before.revision or RevisionStatus()
    if fleet.target is None:
        desired, inputs_hash = None, None
    else:
        desired, inputs_hash = fleet.target.name, fleet.target.inputs_hash
    return seen.model_copy(
        update={
            "desired": desired,
            "inputs_hash": inputs_hash,
            "stable": flow.stable,
            "draining": list(flow.draining),
            "shifted_at": flow.shifted_at,
            "canary_weight": 0 if flow.stable is not None and desired not in (None, flow.stable) else None,
        }
    )
