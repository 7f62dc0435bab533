"""What people read in the conditions: what exactly is waited for, who serves meanwhile, and nothing twice."""

from typing import Any

import pytest

from firsttoken.manifests.images import Images
from reconcile.services import profile
from reconcile.world import World, ready

ROUTED = {"engine": {"pins": {"prefixCaching": True, "tensorParallel": 1}}}
UNKNOWN = {"model": {"uri": "pvc://claim/nobody-knows-this-one"}}


def message(world: World, kind: str = "Ready") -> str:
    found = world.condition(kind)
    assert found is not None, kind
    return str(found["message"])


def test_a_router_that_is_waited_for_is_named() -> None:
    world = ready(**ROUTED)
    router = next(n for n in world.names("Deployment") if n.endswith("-router"))
    world.report(world.get("Deployment", router), ready=1)
    world.reconcile()
    assert world.says("Ready") == ("False", "WaitingForPods")
    assert "serve 2 of 2 replicas ready, router 1 of 2 replicas ready; waiting for router (1 not ready)" in message(
        world
    )


def engine(world: World) -> Any:
    return world.get("Deployment", world.revision["desired"])


def test_a_deployment_that_its_controller_has_not_taken_up_is_named_as_that() -> None:
    world = ready()
    engine(world)["metadata"]["generation"] += 1
    world.reconcile()
    assert "waiting for serve" in message(world)
    assert "observedGeneration is behind" in message(world)


@pytest.mark.parametrize(
    ("reported", "why"),
    [
        ({"availableReplicas": 1}, "ready, not yet available"),
        ({"replicas": 3, "readyReplicas": 3}, "older pods are going"),
        ({"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3}, "surplus pods are going"),
    ],
)
def test_pods_that_are_all_ready_leave_no_doubt_about_what_is_missing(reported: dict[str, int], why: str) -> None:
    world = ready()
    engine(world)["status"] |= reported
    world.reconcile()
    assert f"serve 2 of 2 replicas ready; waiting for serve ({why})" in message(world)


def test_a_failed_edit_says_who_keeps_the_requests_and_with_what() -> None:
    world = ready()
    stable = world.revision["stable"]
    world.edit(**UNKNOWN)
    world.reconcile()
    assert world.says("Ready") == ("False", "UnknownModel")
    assert message(world).endswith(f"; revision {stable} keeps all requests (2 of 2 × serve ready)")
    world.come_up(stable, ready=1)
    world.reconcile()
    assert message(world).endswith("(1 of 2 × serve ready)")
    (role,) = world.status["plan"]["roles"]
    assert (role["replicas"], role["readyReplicas"]) == (2, 1), "what serves, not what was there before the edit"


def test_a_refusal_is_told_once_beside_what_kstatus_shows() -> None:
    world = World(**UNKNOWN)
    world.reconcile()
    whole = message(world)
    assert "numAttentionHeads" in whole
    for kind in ("Planned", "Available"):
        assert world.says(kind) == ("False", "UnknownModel")
        assert message(world, kind).endswith("condition Ready says why")
    assert message(world, "Stalled") == whole, "Flux and Argo CD show this one alone"


def test_the_image_that_a_device_needs_is_part_of_the_condition() -> None:
    def planned(images: Images, **engine: str) -> str:
        world = World(accelerator={"type": "amd-mi300x"}, engine=engine)
        world.profiles = {"amd-mi300x": profile("amd-mi300x")}
        world.images = images
        world.settle()
        return message(world, "Planned")

    text = "needs spec.engine.image: the default image is built for NVIDIA GPUs"
    assert text in planned(Images())
    assert text in planned(Images(engine="registry.example/firsttoken/runtime@sha256:00"))
    assert text not in planned(Images(), image="rocm/vllm:1")
    assert text not in planned(Images(engine="registry.example/vllm-rocm:1")), "whoever chose that knows"


def test_one_gpu_is_singular() -> None:
    world = ready(accelerator={"maxCount": 1})
    assert message(world, "Planned").endswith("1 × serve (1 × nvidia-a100-40gb), 1 GPU")
