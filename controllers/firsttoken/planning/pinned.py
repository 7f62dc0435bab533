"""A plan that stands, forecast again: its shape and settings are pinned, the promises and the rate are today's."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from firsttoken.api.engine import InitialSettings
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.calibration import Calibration
from firsttoken.planning.forecast import figures, promises_in_words
from firsttoken.planning.plan import make_plan
from firsttoken.planning.refusal import SLO
from firsttoken.planning.roles import Profiles
from firsttoken.planning.types import Infeasible, Plan


def still_answers(plan: Plan, spec: InferenceServiceSpec) -> bool:
    """Whether the plan's predictions and capacities were made for the promises and the rate that `spec` has now."""
    made = plan.prediction
    if made is None or made.promises != promises_in_words(spec):
        return False
    rate = spec.workload.requests_per_second
    return made.assumed_rate if rate is None else not made.assumed_rate and made.requests_per_second == figures(rate)


def forecast_again(
    plan: Plan,
    spec: InferenceServiceSpec,
    profiles: Profiles,
    calibration: Calibration,
    config: Mapping[str, Any] | None,
) -> Plan | Infeasible:
    """`plan` with the capacities, replicas and predictions of today's `spec`. Nothing that needs a restart changes.

    Infeasible: a promise below what the data sheet allows. A shape that today's catalogue would not allow any more
    keeps what was predicted of it: it runs.
    """
    initial = InitialSettings(
        token_budget=plan.settings.token_budget,
        decode_cap=plan.settings.decode_cap,
        long_prefill_threshold=plan.settings.long_prefill_threshold or None,
    )
    engine = spec.engine.model_copy(update={"initial": initial})
    shapes = {role.role: (role.tensor_parallel, role.pipeline_parallel) for role in plan.roles}
    found = make_plan(spec.model_copy(update={"engine": engine}), profiles, calibration, config, shapes)
    if isinstance(found, Infeasible):
        return found if found.constraint == SLO else plan
    if [r.role for r in found.roles] != [r.role for r in plan.roles]:
        return plan
    roles = tuple(
        replace(role, replicas=new.replicas, capacity=new.capacity, keeps_slos=new.keeps_slos)
        for role, new in zip(plan.roles, found.roles, strict=True)
    )
    return replace(
        plan, roles=roles, reasons=found.reasons, prediction=found.prediction, alternatives=found.alternatives
    )
