"""Every field of the spec is in force or named as not in force (S3); every one that shapes engines is an input."""

from typing import Any

import pytest

from firsttoken.api.change import RolloutSpec
from firsttoken.api.schema import with_defaults
from firsttoken.api.service import InferenceService, InferenceServiceSpec
from firsttoken.api.validation import schemas
from firsttoken.manifests.images import Images
from firsttoken.manifests.revision import revision_objects
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import Plan
from firsttoken.reconcile.inactive import inactive_fields, inactive_reason
from firsttoken.reconcile.records import PLACEHOLDER, canonical
from firsttoken.reconcile.revisions import revision_inputs
from reconcile.world import ready

BASE: dict[str, Any] = {
    "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"},
    "accelerator": {"type": "nvidia-a100-40gb", "maxCount": 4},
}

# Fields without effect yet, each with a value that is not its default.
LATER: dict[str, dict[str, Any]] = {
    "spec.engine.initial": {"engine": {"initial": {"tokenBudget": 512}}},
    "spec.measurement.promptTokenBuckets": {"measurement": {"promptTokenBuckets": [128]}},
    "spec.tuning.mode": {"tuning": {"mode": "Auto"}},
    "spec.rollout.steps": {"rollout": {"steps": [{"weight": 20}]}},
    "spec.rollout.split": {"rollout": {"split": {"mode": "Random"}}},
    "spec.rollout.capacity": {"rollout": {"capacity": {"surgeGPUs": 0}}},
    "spec.rollout.analysis": {"rollout": {"analysis": {"baseline": "Fresh"}}},
    "spec.rollout.approval": {"rollout": {"approval": "Manual"}},
    "spec.evaluation": {"evaluation": {"minPrompts": 200}},
    "spec.inspection": {"inspection": {"schedule": "@daily"}},
}
# Fields in force. A field that is in neither list fails the test below: decide, then name it.
IN_FORCE = {
    *("spec.slos", "spec.model", "spec.accelerator", "spec.workload", "spec.layout", "spec.scaling", "spec.routing"),
    *("spec.podTemplate", "spec.revisionHistoryLimit"),
    *("spec.engine.image", "spec.engine.pins", "spec.engine.extraArgs"),
    *("spec.tuning.tokenBudget", "spec.rollout.drainTimeout"),
}
SPLIT = {"spec.engine", "spec.tuning", "spec.rollout", "spec.measurement"}  # listed field by field


def paths() -> set[str]:
    found = set()
    for name, field in InferenceServiceSpec.model_fields.items():
        path = f"spec.{field.alias or name}"
        if path in SPLIT:
            below: Any = field.annotation
            found |= {f"{path}.{f.alias or n}" for n, f in below.model_fields.items()}
        else:
            found.add(path)
    return found


def spec(**patch: Any) -> InferenceServiceSpec:
    return InferenceServiceSpec.model_validate({**BASE, **patch})


def rendered(wanted: InferenceServiceSpec) -> str:
    service = InferenceService.model_validate({"metadata": {"name": "chat"}, "spec": wanted.wire()})
    plan = make_plan(wanted, catalogue())
    assert isinstance(plan, Plan)
    return canonical(revision_objects(service, PLACEHOLDER, plan, catalogue(), Images()))


def test_S3_every_field_is_in_force_or_named() -> None:
    assert paths() == IN_FORCE | set(LATER)


@pytest.mark.parametrize("path", LATER)
def test_S3_a_field_without_effect_is_named_and_only_it(path: str) -> None:
    wanted = spec(**LATER[path])
    assert inactive_fields(wanted) == (path,)
    reason = inactive_reason(wanted)
    assert reason is not None
    assert path in reason.message


def stored(**patch: Any) -> InferenceServiceSpec:
    """As the API server keeps it, defaults filled in."""
    value = {"spec": {**BASE, **patch}}
    return InferenceServiceSpec.model_validate(with_defaults(value, schemas()["InferenceService"])["spec"])


def test_defaults_are_not_named() -> None:
    assert inactive_reason(spec()) is None
    assert inactive_reason(stored(rollout={"drainTimeout": "5m"})) is None


def test_S3_a_default_that_is_written_out_is_named_like_any_other_value() -> None:
    """Whoever writes canary weights counts on them, whatever the default is."""
    steps = [{"weight": 10, "hold": "2h"}, {"weight": 50, "hold": "1h"}, {"weight": 100}]
    assert stored(rollout={"steps": steps}).rollout.steps == RolloutSpec().steps
    assert inactive_fields(stored(rollout={"steps": steps})) == ("spec.rollout.steps",)
    assert inactive_fields(stored(rollout={"split": {}})) == ("spec.rollout.split",)


@pytest.mark.parametrize("mode", ["Auto", "Colocated"])
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_S3_devices_of_roles_are_named_where_there_are_none(mode: str, role: str) -> None:
    device = {"accelerator": {**BASE["accelerator"], role: {"type": "nvidia-a100-80gb"}}}
    path = f"spec.accelerator.{role}.type"
    wanted = stored(**device, layout={"mode": mode})
    assert inactive_fields(wanted) == (path,)
    reason = inactive_reason(wanted)
    assert reason is not None
    assert reason.message.startswith(f"{path}: nothing runs there while spec.layout.mode is {mode}")
    assert inactive_fields(stored(**device, layout={"mode": "Disaggregated"})) == ()
    both = inactive_reason(stored(**device, layout={"mode": mode}, tuning={"mode": "Auto"}))
    assert both is not None
    assert both.message.startswith("spec.tuning.mode: accepted")
    assert path in both.message


def test_S3_bounds_of_tuning_are_named_where_they_bound_nothing() -> None:
    """They cap what an engine starts with, unless nothing is tuned or the value is pinned."""
    bounds = {"tokenBudget": {"min": 128, "max": 8192}}
    assert inactive_fields(stored(tuning=bounds)) == ()
    assert inactive_fields(stored(tuning={"mode": "Off", **bounds})) == ("spec.tuning.tokenBudget",)
    pinned = stored(tuning=bounds, engine={"pins": {"tokenBudget": 1024}})
    assert inactive_fields(pinned) == ("spec.tuning.tokenBudget",)


RESTARTS_NOTHING: dict[str, dict[str, Any]] = {
    "slos": {"slos": [{"metric": "TTFT", "target": "1s"}]},
    "rollout": {"rollout": {"steps": [{"weight": 20}], "drainTimeout": "1h", "approval": "Manual"}},
    "evaluation": LATER["spec.evaluation"],
    "inspection": LATER["spec.inspection"],
    "tuning.mode": LATER["spec.tuning.mode"],
    "routing": {"routing": {"gateway": {"name": "public"}}},
    "scaling": {"scaling": {"replicas": 3}},
    "revisionHistoryLimit": {"revisionHistoryLimit": 3},
    "maxCount": {"accelerator": {"type": "nvidia-a100-40gb", "maxCount": 8}},
    "requestsPerSecond": {"workload": {"requestsPerSecond": 5}},
}
RESTARTS: dict[str, dict[str, Any]] = {
    "model": {"model": {"uri": "hf://Qwen/Qwen2.5-7B-Instruct"}},
    "accelerator": {"accelerator": {"type": "nvidia-h100-80gb", "maxCount": 4}},
    "workload": {"workload": {"profile": "Summarization"}},
    "layout": {"layout": {"mode": "Disaggregated"}},
    "engine": {"engine": {"extraArgs": {"seed": "1"}}},
    "measurement": LATER["spec.measurement.promptTokenBuckets"],
    "podTemplate": {"podTemplate": {"metadata": {"labels": {"team": "ml"}}}},
    "tuning.tokenBudget": {"tuning": {"tokenBudget": {"min": 4096, "max": 8192}}},
}


# A first plan is made for them; a pinned one stays whatever becomes of them.
PLANNED_FOR = {"slos", "scaling", "maxCount", "requestsPerSecond"}


@pytest.mark.parametrize("name", sorted(RESTARTS_NOTHING.keys() - PLANNED_FOR))
def test_D24_what_is_no_input_changes_nothing_that_is_rendered(name: str) -> None:
    changed = spec(**RESTARTS_NOTHING[name])
    assert revision_inputs(changed) == revision_inputs(spec())
    assert rendered(changed) == rendered(spec())


@pytest.mark.parametrize("name", RESTARTS_NOTHING)
def test_D24_what_is_no_input_makes_no_new_revision(name: str) -> None:
    world = ready(**BASE)
    before = world.revision["desired"]
    world.edit(**RESTARTS_NOTHING[name])
    world.settle()
    assert world.revision["desired"] == before
    assert world.names("InferenceRevision") == [before]


@pytest.mark.parametrize("name", RESTARTS)
def test_S25_what_changes_what_is_rendered_is_an_input(name: str) -> None:
    changed = spec(**RESTARTS[name])
    assert rendered(changed) != rendered(spec())
    assert revision_inputs(changed) != revision_inputs(spec())
