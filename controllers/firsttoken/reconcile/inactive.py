"""Fields that are accepted and not in force in this version: named, because silently ignoring them is worse (S3)."""

from firsttoken.api.change import InspectionSpec, RolloutSpec, TuningMode
from firsttoken.api.engine import MeasurementSpec
from firsttoken.api.evaluation import EvaluationSpec
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.types import Reason


def inactive_fields(spec: InferenceServiceSpec) -> tuple[str, ...]:
    """Paths that the user set to something that has no effect yet. tests/reconcile holds this against the schema."""
    rollout, default = spec.rollout, RolloutSpec()
    checks = {
        "spec.engine.initial": spec.engine.initial is not None,
        "spec.measurement.promptTokenBuckets": spec.measurement != MeasurementSpec(),
        "spec.tuning.mode": spec.tuning.mode is TuningMode.AUTO,
        "spec.rollout.steps": rollout.steps != default.steps,
        "spec.rollout.capacity": rollout.capacity != default.capacity,
        "spec.rollout.analysis": rollout.analysis != default.analysis,
        "spec.rollout.approval": rollout.approval != default.approval,
        "spec.evaluation": spec.evaluation != EvaluationSpec(),
        "spec.inspection": spec.inspection != InspectionSpec(),
    }
    return tuple(path for path, inactive in checks.items() if inactive)


def inactive_reason(spec: InferenceServiceSpec) -> Reason | None:
    """The sentence that says so, None if everything that was set is in force."""
    fields = inactive_fields(spec)
    if not fields:
        return None
    message = (
        f"{', '.join(fields)}: accepted and kept, without effect in this version; nothing is measured or tuned while"
        " serving yet, and a new revision takes all requests in one step when it is complete"
    )
    return Reason("NotActiveYet", message)
