"""Replicas on several nodes against the real definition of LeaderWorkerSet.

Its controller does not run here: the test reports what it would, so no pod of a group exists.
"""

from __future__ import annotations

import os
import signal

from e2e.support import Object, Space, inference_service

from firsttoken_local.operator import NAME, start_operator

API, KIND = "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"
PINS = {"tensorParallel": 8, "pipelineParallel": 2}


def over_nodes(name: str, count: int) -> Object:
    """A 70B model as two stages of eight GPUs, a node each."""
    return inference_service(
        name,
        model={"uri": "hf://meta-llama/Llama-3.1-70B-Instruct"},
        accelerator={"maxCount": count},
        engine={"pins": PINS},
    )


def groups(space: Space, service: str) -> list[Object]:
    return [obj for obj in space.children(service).values() if obj["kind"] == KIND]


def report(space: Space, group: Object) -> None:
    """What the controller of LeaderWorkerSet says when every group is ready."""
    wanted = group["spec"]["replicas"]
    status = {"replicas": wanted, "updatedReplicas": wanted, "readyReplicas": wanted}
    name = group["metadata"]["name"]
    space.patch(f"leaderworkersets.leaderworkerset.x-k8s.io/{name}", {"status": status}, "--subresource=status")


def the_group(space: Space, service: str, replicas: int) -> Object:
    def found() -> Object | None:
        there = groups(space, service)
        return there[0] if len(there) == 1 and there[0]["spec"]["replicas"] == replicas else None

    group: Object = space.wait(f"one LeaderWorkerSet of {replicas} groups", found)
    return group


def kill_and_start_again(space: Space) -> None:
    record = space.cluster.processes.record(NAME)
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    space.wait("the operator to be dead", lambda: not space.cluster.processes.alive(NAME))
    start_operator(space.cluster)


def test_a_service_over_two_nodes_gets_ready_scales_and_goes(space: Space) -> None:
    space.apply(over_nodes("wide", 32))
    group = the_group(space, "wide", 2)
    space.wait_condition("wide", "Ready", "False", "WaitingForPods")
    kill_and_start_again(space)
    report(space, group)
    service = space.wait_ready("wide")
    assert service["status"]["plan"]["gpus"] == 32
    assert service["status"]["replicas"] == 2
    spec = group["spec"]["leaderWorkerTemplate"]
    assert spec["size"] == 2
    args = spec["workerTemplate"]["spec"]["containers"][0]["args"]
    assert {"--headless", "--nnodes=2", "--node-rank=$(LWS_WORKER_INDEX)"} <= set(args)
    space.wait_quiet("wide")  # what the API server adds to the object is no drift

    space.apply(over_nodes("wide", 16))
    report(space, the_group(space, "wide", 1))
    space.wait_ready("wide")
    assert the_group(space, "wide", 1)["metadata"]["uid"] == group["metadata"]["uid"], "scaled, not made anew"

    space.patch(
        f"leaderworkersets.leaderworkerset.x-k8s.io/{group['metadata']['name']}",
        {"spec": {"leaderWorkerTemplate": {"size": 3}}},
    )

    def right() -> bool:
        size: int = the_group(space, "wide", 1)["spec"]["leaderWorkerTemplate"]["size"]
        return size == 2

    space.wait("the size to be put right", right)

    space.delete("InferenceService", "wide")
    space.wait("everything to be gone", lambda: not space.children("wide"))
