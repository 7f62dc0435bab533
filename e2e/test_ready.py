"""From `kubectl apply` to Ready, and what a newcomer sees on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from e2e.support import EXAMPLES, GROUP, Object, Space, condition, inference_service, observed

# The others need GPUs that no node has, a real node, or LeaderWorkerSet's controller (test_over_nodes plays it).
LEFT_OUT = ("cant-fit.yaml", "cpu-tiny.yaml", "over-nodes.yaml")
PROFILES = sorted(p for p in EXAMPLES.glob("*.yaml") if p.name not in LEFT_OUT)


@pytest.mark.parametrize("path", PROFILES, ids=lambda p: p.stem)
def test_S20_each_example_reaches_ready(space: Space, path: Path) -> None:
    manifest = yaml.safe_load(path.read_text())
    name = manifest["metadata"]["name"]
    space.apply(manifest)
    service = space.wait_ready(name)

    status = service["status"]
    pods = [o for k, o in space.children(name, made_by_us=False).items() if k.startswith("Pod/")]
    gpus = sum(
        int(c.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0))
        for p in pods
        for c in p["spec"]["containers"]
    )
    assert gpus == status["plan"]["gpus"] <= manifest["spec"]["accelerator"].get("maxCount", 8)
    assert {p["metadata"]["name"]: condition(p, "Ready") for p in pods if not is_true(p, "Ready")} == {}
    assert {r["role"]: r["replicas"] for r in status["plan"]["roles"]} == {
        r["role"]: r["readyReplicas"] for r in status["plan"]["roles"]
    }
    assert status["endpoint"] == f"http://{name}.{space.name}.svc/v1"
    assert condition(service, "Stalled") is None
    assert condition(service, "Reconciling") is None


def is_true(obj: Object, kind: str) -> bool:
    found = condition(obj, kind)
    return found is not None and found["status"] == "True"


def test_every_profile_has_an_example() -> None:
    profiles = {yaml.safe_load(p.read_text())["spec"]["workload"]["profile"] for p in PROFILES}
    assert profiles == {"Summarization", "Chat", "CodeCompletion", "OfflineBatch", "KnowledgeQA"}


def test_S30_gpus_that_are_not_there_leave_pending_pods_and_say_which(space: Space) -> None:
    manifest = yaml.safe_load((EXAMPLES / "cant-fit.yaml").read_text())
    name = manifest["metadata"]["name"]
    space.apply(manifest)
    service = space.wait_condition(name, "Ready", "False", "MissingGPUs")

    message = condition(service, "Ready")["message"]  # type: ignore[index]
    assert "nvidia.com/gpu missing" in message
    assert "NVIDIA-H200" in message
    assert "0/4 nodes are available" in message
    engines = [
        o
        for k, o in space.children(name, made_by_us=False).items()
        if k.startswith("Pod/") and o["metadata"]["labels"]["firsttoken.dev/role"] in ("serve", "prefill", "decode")
    ]
    assert engines
    assert {p["status"]["phase"] for p in engines} == {"Pending"}
    assert condition(service, "Available")["status"] == "False"  # type: ignore[index]
    assert condition(service, "Planned")["status"] == "True"  # type: ignore[index]


def test_kubectl_wait_get_and_describe_tell_a_newcomer_what_runs_and_why(space: Space) -> None:
    space.apply(inference_service("chat"))
    space.kubectl("wait", "--for=condition=Ready", "infsvc/chat", "--timeout=60s")

    table = space.kubectl("get", "infsvc", "chat").splitlines()
    assert table[0].split() == ["NAME", "READY", "LAYOUT", "REVISION", "CANARY", "TTFT-P95", "SLO", "BOTTLENECK", "AGE"]
    row = table[1].split()
    assert row[:3] == ["chat", "True", "Colocated"]
    assert row[3].startswith("chat-")

    described = space.kubectl("describe", "infsvc", "chat")
    for told in ("Serving", "nvidia-a100-40gb", "Reasons:", "Code:", "Message:", "Planned", "TokenBudget"):
        assert told in described, f"describe doesn't tell {told!r}"
    events = space.kubectl("get", "events", "--field-selector=involvedObject.name=chat")
    assert "Ready: revision chat-" in events
    assert "chat-" in space.kubectl("get", "infrev")
    assert "chat" in space.kubectl("get", "firsttoken")


def test_S2_S14_S28_ready_only_when_every_part_of_the_current_revision_is(space: Space) -> None:
    """From the first apply on and over an edit: never Ready while a part of the revision asked for is incomplete."""
    wrong: list[str] = []

    def ready_and_right() -> bool:
        service = space.service("parts")
        ready = condition(service, "Ready")
        if ready is None or ready["status"] != "True" or not observed(service):
            return False
        desired = service["status"]["revision"]["desired"]
        found = space.children("parts")
        parts = [o for k, o in found.items() if k.startswith((f"Deployment/{desired}", "Deployment/parts-gateway"))]
        wrong.extend(
            o["metadata"]["name"] for o in parts if o["status"].get("readyReplicas", 0) < o["spec"]["replicas"]
        )
        wrong.extend([] if len(parts) == 3 else [f"{len(parts)} Deployments"])
        wrong.extend([] if desired in found["ConfigMap/parts-gateway-routes"]["data"]["routes.json"] else ["no route"])
        return True

    for longest in (4096, 8192, 6144):
        space.apply(inference_service("parts", model={"maxModelLength": longest}))
        space.wait(f"parts to be ready with {longest} tokens", ready_and_right)
    assert wrong == []


def test_S28_a_route_counts_only_when_a_gateway_has_accepted_it(space: Space) -> None:
    space.apply(inference_service("routed", routing={"gateway": {"name": "public"}, "hostnames": ["kb.example.com"]}))
    space.wait_condition("routed", "Ready", "False", "WaitingForRoute")
    answer_as_gateway(space, "routed", "False", "NotAllowedByListeners")
    refused = space.wait_condition("routed", "Ready", "False", "RouteNotAccepted")
    assert "NotAllowedByListeners" in condition(refused, "Ready")["message"]  # type: ignore[index]
    assert condition(refused, "Available")["status"] == "True", "inside the cluster it serves"  # type: ignore[index]
    answer_as_gateway(space, "routed", "True", "Accepted")
    space.wait_ready("routed")
    space.kubectl("delete", "httproute", "routed", "--wait=false")
    space.wait_condition("routed", "Ready", "False", "WaitingForRoute")
    space.apply(inference_service("routed"))
    space.wait_ready("routed")
    # The status comes before the deletions, so that it never claims one that was not carried out yet.
    space.wait("the route to be gone", lambda: space.get("HTTPRoute", "routed", "gateway.networking.k8s.io/v1") is None)


def answer_as_gateway(space: Space, route: str, status: str, reason: str) -> None:
    """What a Gateway's controller writes; none runs here."""
    stamp = "2026-01-01T00:00:00Z"
    answer = {
        "type": "Accepted",
        "status": status,
        "reason": reason,
        "message": "said the test",
        "lastTransitionTime": stamp,
    }
    parent = {"parentRef": {"name": "public"}, "controllerName": "example.com/test", "conditions": [answer]}
    space.patch(f"httproute/{route}", {"status": {"parents": [parent]}}, "--subresource=status")


def test_S1_ready_follows_a_child_that_breaks_and_heals(space: Space) -> None:
    space.apply(inference_service("heals"))
    revision = space.wait_ready("heals")["status"]["revision"]["desired"]
    pods = [k.partition("/")[2] for k in space.children("heals", made_by_us=False) if k.startswith("Pod/" + revision)]
    # A pod that can't be placed again: its node and all others are closed.
    nodes = [n["metadata"]["name"] for n in space.cluster.client.list("v1", "Node")]
    try:
        space.cluster.kubectl("cordon", *nodes)
        space.kubectl("delete", "pod", pods[0])
        broken = space.wait_condition("heals", "Ready", "False", "Unschedulable")
        assert "unschedulable" in condition(broken, "Ready")["message"]  # type: ignore[index]
        assert condition(broken, "Available")["status"] == "True", "one of two replicas still serves (S16)"  # type: ignore[index]
    finally:
        space.cluster.kubectl("uncordon", *nodes)
    space.wait_ready("heals")


def test_an_unknown_accelerator_is_said_and_healed_when_its_profile_arrives(space: Space) -> None:
    profile = {
        "apiVersion": GROUP,
        "kind": "AcceleratorProfile",
        "metadata": {"name": f"own-{space.name}"},
        "spec": {
            "vendor": "NVIDIA",
            "product": "as the A100-40",
            "computeCapability": "8.0",
            "resourceName": "nvidia.com/gpu",
            "memory": "40Gi",
            "devicesPerNode": 8,
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-A100-SXM4-40GB"]}
                    ]
                }
            ],
        },
    }
    space.apply(inference_service("later", accelerator={"type": f"own-{space.name}"}))
    stalled = space.wait_condition("later", "Planned", "False")
    assert f"own-{space.name}" in condition(stalled, "Ready")["message"]  # type: ignore[index]
    assert condition(stalled, "Stalled")["status"] == "True"  # type: ignore[index]
    try:
        space.cluster.client.apply(profile, field_manager="test")
        space.wait_ready("later")
    finally:
        space.cluster.client.delete(GROUP, "AcceleratorProfile", profile["metadata"]["name"], None)
