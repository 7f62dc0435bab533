"""Fields that are accepted and not in force in this version: named, because silently ignoring them is worse (S3)."""

from collections.abc import Callable, Mapping

from firsttoken.api.change import InspectionSpec, RolloutSpec, TuningMode
from firsttoken.api.engine import MeasurementSpec
from firsttoken.api.evaluation import EvaluationSpec
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.api.service_inputs import LayoutMode
from firsttoken.planning.types import Reason


def _bounds_nothing(spec: InferenceServiceSpec) -> bool:
    """Bounds of tuning also bound what an engine starts with; not where nothing is tuned, or a pin says it all."""
    pinned = spec.engine.pins is not None and spec.engine.pins.token_budget is not None
    return spec.tuning.token_budget is not None and (pinned or spec.tuning.mode is TuningMode.OFF)


def _one_role(spec: InferenceServiceSpec) -> bool:
    return spec.layout.mode is not LayoutMode.DISAGGREGATED


# Devices of roles that this service does not have; another layout would bring them into force.
_BY_LAYOUT: Mapping[str, Callable[[InferenceServiceSpec], bool]] = {
    "spec.accelerator.prefill.type": lambda spec: _one_role(spec) and spec.accelerator.prefill is not None,
    "spec.accelerator.decode.type": lambda spec: _one_role(spec) and spec.accelerator.decode is not None,
}
# Whether a field is set to something that has no effect. A value that equals the default counts where it was written
# out, since whoever writes it relies on it; the API server fills in those of approval, evaluation and inspection for
# everybody, so there it can't be told from nothing.
_CHECKS: Mapping[str, Callable[[InferenceServiceSpec], bool]] = {
    "spec.engine.initial": lambda spec: spec.engine.initial is not None,
    "spec.measurement.promptTokenBuckets": lambda spec: spec.measurement != MeasurementSpec(),
    "spec.tuning.mode": lambda spec: spec.tuning.mode is TuningMode.AUTO,
    "spec.tuning.tokenBudget": _bounds_nothing,
    "spec.rollout.steps": lambda spec: "steps" in spec.rollout.model_fields_set,
    "spec.rollout.capacity": lambda spec: spec.rollout.capacity is not None,
    "spec.rollout.split": lambda spec: spec.rollout.split is not None,
    "spec.rollout.analysis": lambda spec: spec.rollout.analysis is not None,
    "spec.rollout.approval": lambda spec: spec.rollout.approval != RolloutSpec().approval,
    "spec.evaluation": lambda spec: spec.evaluation != EvaluationSpec(),
    "spec.inspection": lambda spec: spec.inspection != InspectionSpec(),
    **_BY_LAYOUT,
}
WITHOUT_EFFECT = tuple(_CHECKS)


def inactive_fields(spec: InferenceServiceSpec) -> tuple[str, ...]:
    """Paths that the user set and that have no effect. tests/reconcile holds this against the schema."""
    return tuple(path for path, inactive in _CHECKS.items() if inactive(spec))


def inactive_reason(spec: InferenceServiceSpec) -> Reason | None:
    """The sentence that says so, None if everything that was set is in force."""
    fields = inactive_fields(spec)
    later = [path for path in fields if path not in _BY_LAYOUT]
    said = []
    if later:
        said.append(
            f"{', '.join(later)}: accepted and kept, without effect in this version; nothing is measured or tuned while"
            " serving yet, and a new revision takes all requests in one step when it is complete"
        )
    if len(later) < len(fields):
        types = " and ".join(path for path in fields if path in _BY_LAYOUT)
        proposal = ", and a proposal to split is for these" if spec.layout.mode is LayoutMode.AUTO else ""
        said.append(
            f"{types}: nothing runs there while spec.layout.mode is {spec.layout.mode.value}: one engine does both on"
            f" spec.accelerator.type{proposal}; set spec.layout.mode: Disaggregated"
        )
    return Reason("NotActiveYet", ". ".join(said)) if said else None
