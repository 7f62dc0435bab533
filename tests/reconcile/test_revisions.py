"""Which edits make a new revision, and what never does (invariants 16 and 18; D24, S22)."""

from dataclasses import replace
from typing import Any

import pytest

from firsttoken.api.extra_args import FLAGS
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.reconcile import decide
from firsttoken.reconcile.revisions import revision_inputs
from reconcile.services import merged
from reconcile.world import World, ready

LONGER = {"model": {"maxModelLength": 8192}}

RESTARTS = {
    "model": LONGER,
    "tensor parallel": {"engine": {"pins": {"tensorParallel": 2}}},
    "extra argument": {"engine": {"extraArgs": {"seed": "1"}}},
    "image": {"engine": {"image": "example.com/runtime:2"}},
    "pod template": {"podTemplate": {"spec": {"nodeSelector": {"pool": "a"}}}},
    "prompt buckets": {"measurement": {"promptTokenBuckets": [128, 1024]}},
}
RESTARTS_NOTHING = {
    "budget": {"accelerator": {"maxCount": 1}},
    "replicas": {"scaling": {"replicas": 1}},
    "range": {"scaling": {"minReplicas": 1, "maxReplicas": 2}},
    "autoscaler": {"scaling": {"mode": "External", "replicas": 1}},
    "SLO": {"slos": [{"metric": "TTFT", "target": "900ms"}]},
    "rate": {"workload": {"requestsPerSecond": 7.5}},
    "rollout": {"rollout": {"drainTimeout": "9s", "approval": "Manual"}},
    "sticky users": {"rollout": {"split": {"mode": "HeaderHash", "header": "x-user"}}},
    "gateway": {"routing": {"gateway": {"name": "public"}, "hostnames": ["chat.example.com"]}},
    "tuning": {"tuning": {"mode": "Off"}},
    "inspection": {"inspection": {"schedule": "@daily"}},
    "history": {"revisionHistoryLimit": 1},
    "the same as the default, in words": {"workload": {"profile": "Chat"}, "tuning": {"mode": "Recommend"}},
}


def plan_of(revision: dict[str, Any]) -> tuple[str, str, str]:
    """Which revision is wanted and serves, and what it was planned for."""
    return revision["desired"], revision["stable"], revision["inputsHash"]


@pytest.mark.parametrize("change", RESTARTS.values(), ids=RESTARTS)
def test_S25_what_engines_are_built_from_makes_a_new_revision(change: dict[str, Any]) -> None:
    world = ready()
    before = world.revision["desired"]
    world.edit(**change)
    world.reconcile()
    assert world.revision["desired"] != before
    assert len(world.names("InferenceRevision")) == 2


@pytest.mark.parametrize("change", RESTARTS_NOTHING.values(), ids=RESTARTS_NOTHING)
def test_D24_what_needs_no_restart_makes_none(change: dict[str, Any]) -> None:
    world = ready()
    before = world.revision
    world.edit(**change)
    world.settle()
    assert plan_of(world.revision) == plan_of(before)
    assert len(world.names("InferenceRevision")) == 1


def test_D24_replicas_reach_the_deployment_of_the_same_revision() -> None:
    world = ready()
    world.edit(accelerator={"maxCount": 4})
    world.settle()
    deployment = world.get("Deployment", world.revision["stable"])
    assert deployment["spec"]["replicas"] == world.status["replicas"] == 4


@pytest.mark.parametrize("change", [*RESTARTS_NOTHING.values()], ids=RESTARTS_NOTHING)
def test_the_inputs_leave_out_what_restarts_nothing_and_every_default(change: dict[str, Any]) -> None:
    def inputs(spec: dict[str, Any]) -> Any:
        return revision_inputs(InferenceServiceSpec.model_validate(spec))

    base = World().service["spec"]
    assert inputs(merged(base, change)) == inputs(base)
    assert inputs(base) == {
        "model": base["model"],
        "accelerator": {"type": "nvidia-a100-40gb"},
        "engine": base["engine"],
    }


def test_naming_the_layout_that_auto_chose_changes_the_inputs_and_restarts_nothing() -> None:
    world = ready()
    before = world.revision
    world.edit(layout={"mode": "Colocated"})
    world.settle()
    assert world.revision["inputsHash"] != before["inputsHash"]
    assert world.revision["stable"] == before["stable"]
    assert len(world.names("InferenceRevision")) == 1


def test_a_record_says_what_changed_and_from_which_revision() -> None:
    world = ready()
    first = world.revision["stable"]
    assert world.get("InferenceRevision", first)["spec"]["reason"]["message"] == "first revision"
    world.edit(**LONGER)
    world.reconcile()
    record = world.get("InferenceRevision", world.revision["desired"])
    assert record["spec"]["parent"] == first
    assert record["spec"]["reason"] == {"type": "SpecChange", "message": "spec.model.maxModelLength: default → 8192"}
    assert record["metadata"]["name"] == f"chat-{record['spec']['hash'][:8]}"


def test_a_long_change_is_told_in_short() -> None:
    world = ready()
    world.edit(engine={"extraArgs": dict.fromkeys(FLAGS[:60], "x" * 100)})
    world.reconcile()
    message = world.get("InferenceRevision", world.revision["desired"])["spec"]["reason"]["message"]
    assert len(message) <= 4096
    assert message.endswith("…")


def test_the_record_comes_before_everything_that_is_made_from_it() -> None:
    """So that a crash in between leaves a trace."""
    world = World()
    _, decision = world.look()
    assert decision.apply[0]["kind"] == "InferenceRevision"


def test_D19_S22_a_running_revision_is_what_its_record_says_whatever_planner_and_images_say_today() -> None:
    world = ready()
    stable = world.revision["stable"]
    world.images = replace(world.images, engine="firsttoken/runtime:9.9.9", router="firsttoken/router:9.9.9")
    profile = catalogue()["nvidia-a100-40gb"].model_copy(update={"memory": "24Gi", "tolerations": []})
    world.profiles = {"nvidia-a100-40gb": {"spec": profile.wire()}}
    assert not world.look()[1].writes
    world.edit(accelerator={"maxCount": 4})
    world.settle()
    assert world.revision["stable"] == stable
    container = world.get("Deployment", stable)["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "firsttoken/runtime:0.1.0"


def test_a_deleted_profile_takes_nothing_from_a_pinned_plan() -> None:
    world = ready()
    world.profiles = {}
    assert not world.look()[1].writes
    world.edit(accelerator={"maxCount": 1})
    world.settle()
    assert world.says("Ready") == ("True", "Serving")


def test_an_unknown_profile_is_said_and_heals_when_it_is_there() -> None:
    world = World(accelerator={"type": "nvidia-h200"})
    decision = world.reconcile()
    assert decision.apply == ()
    message = world.condition("Ready")["message"]  # type: ignore[index]
    assert "nvidia-h200" in message
    assert "nvidia-a100-40gb" in message, "what there is"
    world.profiles["nvidia-h200"] = {"spec": catalogue()["nvidia-h200"].wire()}
    world.settle()
    assert world.says("Ready") == ("True", "Serving")


def test_an_edit_that_comes_back_to_an_earlier_spec_takes_the_earlier_record_up() -> None:
    world = ready()
    first = world.revision["stable"]
    record = world.get("InferenceRevision", first)["metadata"]["uid"]
    world.edit(**LONGER)
    world.settle(step=200)
    world.edit(model={"maxModelLength": None})
    world.settle()
    assert world.revision["stable"] == first
    assert world.get("InferenceRevision", first)["metadata"]["uid"] == record
    assert len(world.names("InferenceRevision")) == 2


def test_a_disaggregated_layout_has_its_roles_and_a_router_between_them() -> None:
    world = ready(layout={"mode": "Disaggregated"})
    name = world.revision["stable"]
    assert {f"{name}-prefill", f"{name}-decode", f"{name}-router"} <= set(world.names("Deployment"))
    assert [r["role"] for r in world.status["plan"]["roles"]] == ["prefill", "decode"]
    assert world.status["layout"] == "Disaggregated"
    assert "selector" not in world.status, "two roles have no one scale"


def test_equal_observations_give_equal_decisions_and_stay_as_they_were() -> None:
    world = ready()
    world.edit(**LONGER)
    observation = world.observe()
    before = repr(observation)
    first, second = decide(observation), decide(world.observe())
    assert repr(first) == repr(second)
    assert repr(observation) == before


def test_D24_18_a_replica_count_that_was_too_high_once_starts_no_rollout() -> None:
    world = ready(engine={"pins": {"prefixCaching": True, "tensorParallel": 1}})
    before = world.revision["stable"]
    world.edit(scaling={"replicas": 4})
    world.settle()
    assert world.says("Ready") == ("False", "MaxCount")
    world.edit(scaling={"replicas": None}, accelerator={"maxCount": 1})
    world.settle()
    assert world.revision["stable"] == before


def engines(world: World) -> int:
    """Replicas of the engines that are wanted."""
    replicas: int = world.get("Deployment", world.revision["desired"])["spec"]["replicas"]
    return replicas


def test_M5_replicas_follow_a_new_promise_without_a_new_revision() -> None:
    """The capacity that replicas are counted by is that of today's SLOs, not of those that a plan was once made for."""
    busy = {"workload": {"requestsPerSecond": 12}, "accelerator": {"maxCount": 8}}
    world = ready(slos=[{"metric": "TPOT", "percentile": 95, "target": "200ms"}], **busy)
    name, few = world.revision["desired"], engines(world)
    world.edit(slos=[{"metric": "TPOT", "percentile": 95, "target": "16ms"}])
    world.reconcile()
    assert world.revision["desired"] == name
    assert engines(world) > few
    world.edit(slos=[{"metric": "TPOT", "percentile": 95, "target": "200ms"}])
    world.reconcile()
    assert engines(world) == few


def test_D24_a_promise_that_only_another_shape_could_keep_replaces_nothing_and_is_refused() -> None:
    """With four GPUs a layer the floor is lower. An edit of SLOs restarts nothing all the same; how to ask is said."""
    world = ready(accelerator={"maxCount": 4})
    name = world.revision["desired"]
    world.edit(slos=[{"metric": "TPOT", "percentile": 95, "target": "9ms"}])
    world.settle()
    assert world.names("InferenceRevision") == [name]
    assert world.weights() == {name: 100}
    refusal = next(c["message"] for c in world.status["conditions"] if "data-sheet" in c["message"])
    assert "spec.engine.pins.tensorParallel" in refusal
    world.edit(engine={"pins": {"tensorParallel": 4}})
    world.settle()
    assert world.revision["desired"] != name


def test_a_shape_that_outgrew_the_budget_gives_way_and_the_record_says_why() -> None:
    world = ready(engine={"pins": None}, slos=[{"metric": "TPOT", "percentile": 95, "target": "9ms"}],
                  accelerator={"maxCount": 4})  # fmt: skip
    wide = world.revision["desired"]
    assert world.get("Deployment", wide)["spec"]["replicas"] == 1
    world.edit(slos=None, scaling={"minReplicas": 4})
    world.settle()
    new = world.revision["desired"]
    assert new != wide
    assert "maxCount" in world.get("InferenceRevision", new)["spec"]["reason"]["message"]


@pytest.mark.parametrize(
    "garbled",
    [
        {"roles": []},
        {"roles": {}},
        {"roles": [{"role": "x"}]},
        {"roles": [{"parallelism": {"tensor": "1"}}]},
        {"roles": [{"capacity": ["a"]}]},
        {"roles": [{"engineArgs": {"max-num-seqs": {}}}]},
        {"roles": [{"accelerator": None}]},
        {"roles": [{"replicas": True}]},
        {"roles": [{"memory": {"kvCacheTokens": "many"}}]},
        {"roles": [{"memory": None}]},
        {"settings": {"tokenBudget": "many"}},
        {"memory": {"weightsBytes": 1.5}},
    ],
)
def test_a_stored_plan_of_other_types_is_unsound_and_what_serves_goes_on(garbled: dict[str, Any]) -> None:
    world = ready()
    name = world.revision["desired"]
    plan = world.get("InferenceRevision", name)["spec"]["plan"]
    for key, value in garbled.items():
        if isinstance(value, list) and value:
            plan[key] = [merged_keeping_none(plan[key][0], value[0])]
        else:
            plan[key] = {**plan[key], **value} if isinstance(value, dict) and value else value
    world.settle()
    assert world.weights().get(name, 0) == 100 or world.draining
    assert "Traceback" not in str(world.status)


def test_a_garbled_prediction_only_loses_what_it_said() -> None:
    world = ready()
    name = world.revision["desired"]
    world.get("InferenceRevision", name)["spec"]["plan"]["predicted"]["ttftInterval"] = "x"
    world.settle()
    assert world.weights() == {name: 100}
    assert world.says("Ready") == ("True", "Serving")


def merged_keeping_none(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """`base` with `patch` laid over it; None is a value."""
    laid = {
        k: {**base[k], **v} if isinstance(v, dict) and isinstance(base.get(k), dict) else v for k, v in patch.items()
    }
    return {**base, **laid}
