"""Why pods don't run, in one sentence: missing GPUs (S30), crashes, images, quota."""

from typing import Any

from firsttoken.reconcile.pods import trouble
from reconcile.world import World

REVISION = "firsttoken.dev/revision"


def pod(name: str = "p-1", gpus: str | None = "1", revision: str = "", **parts: Any) -> dict[str, Any]:
    limits = {"cpu": "8", "memory": "64Gi", **({} if gpus is None else {"nvidia.com/gpu": gpus})}
    return {
        "metadata": {"name": name, "labels": {REVISION: revision}, **parts.get("metadata", {})},
        "spec": {"containers": [{"name": "engine", "resources": {"limits": limits}}], **parts.get("spec", {})},
        "status": parts.get("status", {"phase": "Running"}),
    }


def unplaced(name: str = "p-1", gpus: str | None = "1", revision: str = "", **parts: Any) -> dict[str, Any]:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    scheduled["message"] = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    return pod(name, gpus, revision, status={"phase": "Pending", "conditions": [scheduled]}, **parts)


def failing(name: str = "p-1", kind: str = "containerStatuses", last: str = "", **waiting: str) -> dict[str, Any]:
    state = {"name": "engine", "state": {"waiting": waiting}}
    if last:
        state["lastState"] = {"terminated": {"reason": last}}
    return pod(name, status={"phase": "Pending", kind: [state]})


def message(*pods: dict[str, Any]) -> str:
    found = trouble(pods)
    assert found is not None
    return found.message


def test_pods_that_run_or_start_are_no_trouble() -> None:
    assert trouble([pod(), failing(reason="ContainerCreating"), failing(reason="PodInitializing")]) is None
    assert trouble([]) is None


def test_S30_gpus_that_are_missing_are_counted_over_all_pods_and_the_scheduler_is_quoted() -> None:
    found = trouble([unplaced("p-1", "2"), unplaced("p-2", "2"), pod("p-3")])
    assert found is not None
    assert found.reason == "MissingGPUs"
    assert found.message == (
        "2 pods can't be placed: 4 × nvidia.com/gpu missing; "
        "scheduler: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    )


def test_S30_devices_are_counted_in_any_notation_of_the_api_server() -> None:
    assert "1000 × nvidia.com/gpu missing" in message(unplaced(gpus="1k"))


def test_S30_the_nodes_that_were_asked_for_are_named() -> None:
    def term(value: str) -> dict[str, Any]:
        return {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": [value, "X"]}]}

    terms = {"nodeSelectorTerms": [term("H200"), term("H200-NVL")]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    said = message(unplaced(spec={"affinity": affinity}))
    assert "on nodes with nvidia.com/gpu.product In H200/X or nvidia.com/gpu.product In H200-NVL/X;" in said


def test_a_pod_without_gpus_that_cannot_be_placed_is_unschedulable() -> None:
    found = trouble([unplaced(gpus=None)])
    assert found is not None
    assert found.reason == "Unschedulable"
    assert found.message.startswith("1 pod can't be placed; scheduler: 0/4 nodes")


def test_a_pod_that_is_going_is_no_trouble_any_more() -> None:
    going = {"name": "p", "deletionTimestamp": "2026-05-01T12:00:00Z"}
    assert trouble([unplaced(metadata=going)]) is None


def test_a_container_that_cannot_start_is_named_with_its_reason() -> None:
    said = message(failing(reason="ImagePullBackOff", message="Back-off pulling image"))
    assert said == "pod p-1: engine: ImagePullBackOff: Back-off pulling image"
    assert message(failing(reason="CrashLoopBackOff", last="OOMKilled")).endswith(
        "engine: CrashLoopBackOff: last run ended with OOMKilled"
    )
    assert message(failing(kind="initContainerStatuses", reason="ErrImagePull")).endswith("engine: ErrImagePull")


def test_several_failing_pods_are_one_sentence() -> None:
    pods = [failing(f"p-{i}", reason="CrashLoopBackOff") for i in range(3)]
    assert message(*pods).startswith("pod p-0 (and 2 more): ")


def test_a_pod_that_the_node_ended_is_told_with_its_reason() -> None:
    evicted = pod(status={"phase": "Failed", "reason": "Evicted", "message": "low on memory"})
    assert message(evicted) == "pod p-1: Evicted: low on memory"


def test_pods_that_cannot_be_placed_come_before_those_that_fail() -> None:
    found = trouble([failing(reason="CrashLoopBackOff"), unplaced("p-2")])
    assert found is not None
    assert found.reason == "MissingGPUs"


def waiting() -> World:
    world = World()
    world.reconcile()
    return world


def test_S30_the_status_says_what_is_missing_and_pods_of_other_revisions_do_not_matter() -> None:
    world = waiting()
    world.pods = [unplaced(revision="chat-00000000")]
    world.reconcile()
    assert world.says("Ready") == ("False", "WaitingForPods")
    world.pods = [unplaced(revision=world.revision["desired"])]
    world.reconcile()
    assert world.says("Ready") == ("False", "MissingGPUs")
    assert world.says("Reconciling") == ("True", "MissingGPUs"), "a cluster autoscaler may still bring nodes"


def test_S29_after_the_progress_deadline_the_trouble_stalls() -> None:
    world = waiting()
    world.pods = [unplaced(revision=world.revision["desired"])]
    deployment = world.get("Deployment", world.revision["desired"])
    world.report(deployment, 0, Progressing={"status": "False", "reason": "ProgressDeadlineExceeded"})
    world.reconcile()
    assert world.says("Stalled") == ("True", "MissingGPUs")


def test_pods_that_the_api_server_refuses_are_explained_by_the_deployment() -> None:
    world = waiting()
    failure = {"status": "True", "reason": "FailedCreate", "message": "exceeded quota: no-gpus"}
    world.report(world.get("Deployment", world.revision["desired"]), 0, ReplicaFailure=failure)
    world.reconcile()
    assert world.says("Ready") == ("False", "PodsRefused")
    assert "exceeded quota: no-gpus" in world.condition("Ready")["message"]  # type: ignore[index]


def test_replicas_that_are_ready_beside_older_pods_are_told_so() -> None:
    world = waiting()
    world.come_up()
    world.get("Deployment", world.revision["desired"])["status"] |= {"replicas": 3, "readyReplicas": 3}
    world.reconcile()
    assert "older pods are going" in world.condition("Ready")["message"]  # type: ignore[index]


def test_S30_a_node_selector_of_the_user_is_part_of_where_gpus_are_missing() -> None:
    message = "0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector."
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    engine = {"name": "engine", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"containers": [engine], "nodeSelector": {"zone": "a"}}
    found = trouble([{"metadata": {"name": "p"}, "spec": spec, "status": {"conditions": [scheduled]}}])
    assert found is not None
    assert "1 × nvidia.com/gpu missing on nodes with zone=a" in found.message
