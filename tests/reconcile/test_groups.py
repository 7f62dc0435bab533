"""Replicas on several nodes: a LeaderWorkerSet instead of a Deployment, judged by its groups."""

from dataclasses import replace
from typing import Any

from firsttoken.manifests import groups
from firsttoken.manifests.names import ROLE_LABEL
from firsttoken.reconcile.decide import decide
from firsttoken.reconcile.objects import label, progress
from firsttoken.reconcile.records import fault
from reconcile.world import World

TWO_NODES: dict[str, Any] = {
    "model": {"uri": "hf://meta-llama/Llama-3.1-70B-Instruct"},
    "accelerator": {"type": "nvidia-a100-40gb", "maxCount": 32},
    "engine": {"pins": {"prefixCaching": False, "tensorParallel": 8, "pipelineParallel": 2}},
}


def report(world: World, ready: int | None = None) -> None:
    """LWS's controller counts groups, all of them ready by default."""
    for group in world.objects(groups.KIND):
        wanted = group["spec"]["replicas"]
        found = wanted if ready is None else ready
        group["status"] = {"replicas": wanted, "updatedReplicas": wanted, "readyReplicas": found}


def settled() -> World:
    world = World(**TWO_NODES)
    for _ in range(20):
        before = world.writes
        world.come_up()
        report(world)
        world.reconcile()
        if world.writes == before:
            return world
    raise AssertionError(world.look()[1])


def test_a_service_whose_replicas_lie_on_two_nodes_gets_ready() -> None:
    world = World(**TWO_NODES)
    world.reconcile()
    (group,) = world.objects(groups.KIND)
    assert (group["spec"]["replicas"], group["spec"]["leaderWorkerTemplate"]["size"]) == (2, 2)
    assert "chat-gateway" in world.names("Deployment")
    assert group["metadata"]["name"] not in world.names("Deployment")
    world.come_up()
    report(world, ready=1)
    world.reconcile()
    assert world.says("Ready") == ("False", "WaitingForPods")
    assert "serve 1 of 2 replicas ready; waiting for serve (1 not ready)" in world.condition("Ready")["message"]
    world = settled()
    assert world.says("Ready") == ("True", "Serving")
    assert "2 × serve (16 × nvidia-a100-40gb on 2 nodes)" in world.condition("Ready")["message"]
    assert world.says("Available") == ("True", "Serving")
    assert world.status["replicas"] == 2
    assert world.status["plan"]["gpus"] == 32


def test_scaling_changes_the_number_of_groups_of_the_same_revision() -> None:
    world = settled()
    before = world.revision["stable"]
    world.edit(accelerator={"maxCount": 16})
    for _ in range(5):
        world.come_up()
        report(world)
        world.reconcile()
    (group,) = world.objects(groups.KIND)
    assert group["spec"]["replicas"] == 1
    assert world.revision["stable"] == before


def test_a_group_that_somebody_deletes_or_edits_comes_back() -> None:
    world = settled()
    (group,) = world.objects(groups.KIND)
    group["spec"]["leaderWorkerTemplate"]["size"] = 3
    world.reconcile()
    assert world.get(groups.KIND, group["metadata"]["name"])["spec"]["leaderWorkerTemplate"]["size"] == 2
    for key in [k for k in world.store if k.kind == groups.KIND]:
        del world.store[key]
    world.reconcile()
    assert len(world.objects(groups.KIND)) == 1


def test_a_new_revision_starts_beside_the_old_groups_which_go_when_it_serves() -> None:
    world = settled()
    old = world.revision["stable"]
    world.edit(
        engine={"pins": {"prefixCaching": False, "tensorParallel": 8, "pipelineParallel": 2, "tokenBudget": 512}}
    )
    world.reconcile()
    assert len(world.objects(groups.KIND)) == 2
    for _ in range(6):
        world.come_up()
        report(world)
        world.reconcile()
        world.wait(700)
    assert world.revision["stable"] != old
    (group,) = world.objects(groups.KIND)
    assert group["metadata"]["name"] == world.revision["stable"]


def test_without_the_definition_the_condition_names_the_remedy_and_nothing_else_waits_for_it() -> None:
    world = World(**TWO_NODES)
    observation = replace(world.observe(), groups_api=False)
    decision = decide(observation)
    assert all(obj["kind"] != groups.KIND for obj in decision.apply)
    assert decision.status is not None
    ready = next(c for c in decision.status["conditions"] if c["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "LeaderWorkerSetMissing")
    assert "install it (https://lws.sigs.k8s.io), or choose GPUs of which one node holds a replica" in ready["message"]
    assert any(c["type"] == "Stalled" for c in decision.status["conditions"])
    assert decision.requeue_after is not None, "the definition may come any time"


def test_without_the_definition_other_services_are_as_ever() -> None:
    world = World()
    decision = decide(replace(world.observe(), groups_api=False))
    assert decision == decide(world.observe())


def test_groups_of_an_older_template_never_count() -> None:
    group = {"kind": groups.KIND, "metadata": {}, "spec": {"replicas": 2}}
    for status, ready, complete in (
        ({}, 0, False),
        ({"replicas": 2, "updatedReplicas": 2, "readyReplicas": 1}, 1, False),
        ({"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}, 2, True),
        ({"replicas": 2, "updatedReplicas": 1, "readyReplicas": 1}, 0, False),
        ({"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3}, 3, False),
    ):
        found = progress({**group, "status": status})
        assert (found.wanted, found.ready, found.complete) == (2, ready, complete), status


def test_a_record_with_groups_is_sound() -> None:
    world = settled()
    (record,) = world.objects("InferenceRevision")
    assert fault(record, "chat") is None
    assert {label(o, ROLE_LABEL) for o in world.objects(groups.KIND)} == {"serve"}
