"""What the conditions say for each verdict, as people and kstatus read them; events and dates only on transitions."""

from typing import Any

import pytest

from reconcile.world import World, ready, rolled

LONGER = {"model": {"maxModelLength": 8192}}
TOO_BIG = {"model": {"uri": "hf://meta-llama/Llama-3.1-70B-Instruct"}}


def kstatus(world: World) -> str:
    """How kstatus (kubectl wait, Flux, Argo CD) reads the conditions."""
    generation = world.service["metadata"]["generation"]
    if world.status.get("observedGeneration") != generation or world.condition("Reconciling"):
        return "InProgress"
    if world.condition("Stalled"):
        return "Failed"
    found = world.condition("Ready")
    return "Current" if found is not None and found["status"] == "True" else "InProgress"


def waiting(world: World) -> None:
    world.reconcile()


def serving(world: World) -> None:
    world.settle()


def gateway_waits(world: World) -> None:
    world.settle()
    world.report(world.get("Deployment", "chat-gateway"), ready=1)
    world.reconcile()


def part_absent(world: World) -> None:
    world.settle()
    world.remove(world.get("Service", "chat"))
    world.reconcile()


def infeasible(world: World) -> None:
    world.edit(**TOO_BIG)
    world.reconcile()


def unknown_accelerator(world: World) -> None:
    world.edit(accelerator={"type": "nvidia-x"})
    world.reconcile()


def invalid(world: World) -> None:
    world.edit(model={"uri": 7})
    world.reconcile()


def name_taken(world: World) -> None:
    world.create("Service", "chat")
    world.reconcile()


def no_gateway_api(world: World) -> None:
    world.gateway_api = False
    world.edit(routing={"gateway": {"name": "public"}})
    world.reconcile()


def rejected(world: World) -> None:
    world.refuse = {"Deployment"}
    world.reconcile()


def overdue(world: World) -> None:
    world.reconcile()
    for deployment in world.objects("Deployment"):
        world.report(deployment, 0, Progressing={"status": "False", "reason": "ProgressDeadlineExceeded"})
    world.reconcile()


def scaled_to_zero(world: World) -> None:
    world.edit(scaling={"mode": "External", "replicas": 0})
    world.settle()


VERDICTS = [
    (waiting, "InProgress", "WaitingForPods", "False"),
    (gateway_waits, "InProgress", "GatewayProgressing", "True"),
    (part_absent, "InProgress", "Progressing", "True"),
    (serving, "Current", "Serving", "True"),
    (scaled_to_zero, "Current", "ScaledToZero", "False"),
    (infeasible, "Failed", "Memory", "False"),
    (unknown_accelerator, "Failed", "UnknownAccelerator", "False"),
    (name_taken, "Failed", "NameTaken", "False"),
    (no_gateway_api, "Failed", "GatewayAPIMissing", "False"),
    (rejected, "Failed", "ApplyRejected", "False"),
    (overdue, "Failed", "ProgressDeadlineExceeded", "False"),
]


@pytest.mark.parametrize(("arrange", "state", "reason", "available"), VERDICTS, ids=lambda v: getattr(v, "__name__", v))
def test_each_verdict_is_read_alike_by_people_and_by_kstatus(
    arrange: Any, state: str, reason: str, available: str
) -> None:
    world = World()
    arrange(world)
    current = "True" if state == "Current" else "False"
    assert kstatus(world) == state
    assert world.says("Ready") == (current, reason)
    assert (world.says("Available") or ("",))[0] == available
    extra = {"InProgress": "Reconciling", "Failed": "Stalled", "Current": None}[state]
    assert [k for k in ("Reconciling", "Stalled") if world.condition(k)] == ([extra] if extra else [])
    if extra:
        assert world.says(extra) == ("True", reason)


def test_a_spec_that_cannot_be_read_is_said_with_its_place_and_changes_nothing_else() -> None:
    world = ready()
    before = world.status
    world.edit(model={"uri": 7})
    decision = world.reconcile()
    assert kstatus(world) == "Failed"
    assert world.says("Ready") == ("False", "InvalidSpec")
    assert "spec.model.uri" in world.condition("Ready")["message"]  # type: ignore[index]
    assert (decision.apply, decision.delete, decision.requeue_after) == ((), (), None)
    assert world.status["revision"] == before["revision"]
    assert world.status["plan"] == before["plan"]


def test_S5_conditions_that_do_not_apply_are_unset() -> None:
    assert [c["type"] for c in ready().status["conditions"]] == ["Ready", "Planned", "Available"]


def test_S2_a_rollout_is_not_ready_and_says_that_the_old_revision_still_has_the_requests() -> None:
    world = ready()
    old = world.revision["stable"]
    world.edit(**LONGER)
    world.reconcile()
    assert kstatus(world) == "InProgress"
    assert world.says("RolloutProgressing") == ("True", "RollingOut")
    assert old in world.condition("RolloutProgressing")["message"]  # type: ignore[index]
    assert world.says("Available") == ("True", "Serving")


def test_a_service_is_ready_while_its_old_revision_drains_and_the_condition_ends_with_it() -> None:
    world, old, _ = rolled(LONGER)
    assert kstatus(world) == "Current"
    assert world.says("RolloutProgressing") == ("True", "Draining")
    assert old in world.condition("RolloutProgressing")["message"]  # type: ignore[index]
    world.wait(120)
    world.settle()
    assert world.condition("RolloutProgressing") is None


def test_S28_ready_needs_every_deployment_and_the_gateway() -> None:
    world = ready(engine={"pins": {"prefixCaching": True, "tensorParallel": 1}})
    assert len(world.objects("Deployment")) == 3
    for deployment in world.objects("Deployment"):
        world.report(deployment, 0)
        world.reconcile()
        assert world.says("Ready")[0] == "False", deployment["metadata"]["name"]  # type: ignore[index]
        world.come_up()
        world.reconcile()
        assert world.says("Ready") == ("True", "Serving")


def test_S14_pods_of_an_older_template_never_count() -> None:
    world = ready()
    (name,) = (n for n in world.names("Deployment") if n != "chat-gateway")
    deployment = world.get("Deployment", name)
    deployment["status"] |= {"replicas": 3, "updatedReplicas": 1, "readyReplicas": 2}
    world.reconcile()
    assert world.says("Ready") == ("False", "WaitingForPods")
    (role,) = world.status["plan"]["roles"]
    assert role["readyReplicas"] == 0


def test_a_report_about_an_older_spec_of_a_deployment_counts_for_nothing() -> None:
    world = ready()
    world.edit(accelerator={"maxCount": 1})
    world.reconcile()
    assert world.says("Ready") == ("False", "WaitingForPods")


def test_S16_one_replica_of_two_is_not_ready_and_still_available() -> None:
    world = ready()
    world.come_up(world.revision["stable"], ready=1)
    world.reconcile()
    assert world.says("Ready") == ("False", "WaitingForPods")
    assert world.says("Available") == ("True", "Serving")
    assert "1 of 2" in world.condition("Available")["message"]  # type: ignore[index]


def test_without_envoy_nobody_can_get_an_answer() -> None:
    world = ready()
    world.report(world.get("Deployment", "chat-gateway"), ready=0)
    world.reconcile()
    assert world.says("Available") == ("False", "GatewayProgressing")


def test_what_the_api_server_refuses_is_quoted_and_heals_when_it_no_longer_does() -> None:
    world = World()
    rejected(world)
    assert "admission webhook denied Deployment" in world.condition("Ready")["message"]  # type: ignore[index]
    world.refuse = set()
    world.settle()
    assert world.says("Ready") == ("True", "Serving")


def test_the_gateway_api_is_needed_only_for_a_gateway_and_the_rest_runs_without_it() -> None:
    world = World(routing={"gateway": {"name": "public"}})
    world.gateway_api = False
    world.settle()
    assert world.says("Ready") == ("False", "GatewayAPIMissing")
    assert world.says("Available") == ("True", "Serving")
    assert world.names("HTTPRoute") == []
    world.gateway_api = True
    world.settle()
    assert world.says("Ready") == ("True", "Serving")
    assert world.names("HTTPRoute") == ["chat"]
    world.edit(routing={"gateway": None})
    world.settle()
    assert world.names("HTTPRoute") == []


def test_a_transition_time_stays_while_the_status_of_a_condition_stays() -> None:
    world = World()
    world.reconcile()
    world.wait(60)
    world.come_up(ready=1)
    world.reconcile()
    world.reconcile()
    assert world.condition("Ready")["lastTransitionTime"] == "2026-05-01T12:00:00Z"  # type: ignore[index]
    assert world.condition("Available")["lastTransitionTime"] == "2026-05-01T12:01:00Z"  # type: ignore[index]
    world.wait(60)
    world.settle()
    assert world.condition("Ready")["lastTransitionTime"] == "2026-05-01T12:02:00Z"  # type: ignore[index]
    assert world.condition("Planned")["lastTransitionTime"] == "2026-05-01T12:00:00Z"  # type: ignore[index]


def test_conditions_name_the_generation_they_were_judged_on() -> None:
    world = ready()
    world.edit(scaling={"replicas": 1})
    world.reconcile()
    assert world.status["observedGeneration"] == 2
    assert {c["observedGeneration"] for c in world.status["conditions"]} == {2}


def test_events_tell_transitions_once() -> None:
    world = World()
    world.reconcile()
    told = [(e.type, e.reason, e.message.partition(":")[0]) for e in world.events]
    assert told == [
        ("Normal", "WaitingForPods", "Ready"),
        ("Normal", "Planned", "Planned"),
        ("Normal", "WaitingForPods", "Available"),
    ]
    world.events.clear()
    world.come_up(ready=1)
    world.reconcile()
    world.reconcile()
    assert [(e.reason, e.message.partition(":")[0]) for e in world.events] == [("Serving", "Available")]
    world.events.clear()
    world.reconcile()
    assert world.events == [], "another number of ready replicas is no transition"
    world.settle()
    assert [(e.type, e.reason) for e in world.events] == [("Normal", "Serving")]


@pytest.mark.parametrize("arrange", [infeasible, invalid, name_taken, no_gateway_api, rejected, overdue])
def test_what_somebody_must_act_on_is_told_as_a_warning(arrange: Any) -> None:
    world = World()
    arrange(world)
    assert "Warning" in {e.type for e in world.events if e.message.startswith("Ready:")}


@pytest.mark.parametrize("arrange", [waiting, serving, gateway_waits, scaled_to_zero])
def test_a_stage_on_the_way_is_no_warning(arrange: Any) -> None:
    world = World()
    arrange(world)
    assert {e.type for e in world.events if e.message.startswith("Ready:")} == {"Normal"}


def changing() -> tuple[World, str, str]:
    world = ready()
    old = world.revision["stable"]
    world.edit(**LONGER)
    world.reconcile()
    return world, old, world.revision["desired"]


def test_S2_S14_a_complete_revision_that_has_no_requests_yet_is_not_ready() -> None:
    world, old, _ = changing()
    world.by_hand(world.get("ConfigMap", "chat-gateway-routes"), {"data": {"clusters.json": "{}", "routes.json": "{}"}})
    world.come_up()
    world.reconcile()
    assert world.weights()[old] == 100
    assert world.says("Ready")[0] == "False"  # type: ignore[index]
