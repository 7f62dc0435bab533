"""A spec edit and what it causes: the new revision first, then the requests, then the old one goes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from e2e.support import GROUP, Space, condition, inference_service

from firsttoken_local.errors import LocalError


def revisions(space: Space, name: str) -> dict[str, Any]:
    return dict(space.service(name)["status"]["revision"])


def routed_to(space: Space, name: str) -> str:
    """What Envoy is told, as text."""
    routes = space.get("ConfigMap", f"{name}-gateway-routes", "v1")
    assert routes is not None
    return str(routes["data"]["routes.json"])


def test_S25_an_edit_rolls_over_without_a_gap_and_the_old_revision_drains(space: Space) -> None:
    space.apply(inference_service("edit", rollout={"drainTimeout": "4s"}))
    old = space.wait_ready("edit")["status"]["revision"]["stable"]
    space.apply(inference_service("edit", rollout={"drainTimeout": "4s"}, model={"maxModelLength": 8192}))

    gaps = []

    def shifted() -> bool:
        """Until the shift every pod of the old revision is there, and at all times somebody serves."""
        service = space.service("edit")
        now = service["status"]["revision"]
        if condition(service, "Available")["status"] != "True":  # type: ignore[index]
            gaps.append(condition(service, "Available"))
        deployment = space.get("Deployment", old, "apps/v1")
        if now["stable"] == old and (deployment is None or deployment["spec"]["replicas"] != 2):
            gaps.append("the old revision was reduced before the requests moved (S4, S15)")
        return bool(now["stable"] != old)

    space.wait("the requests to move", shifted)
    assert gaps == []
    new = revisions(space, "edit")["stable"]
    assert old in [d["name"] for d in revisions(space, "edit")["draining"]]
    assert new in routed_to(space, "edit")
    assert old not in routed_to(space, "edit")
    assert space.get("Deployment", old, "apps/v1") is not None, "the old revision finishes its streams first (S23)"
    space.wait("the old revision to go", lambda: space.get("Deployment", old, "apps/v1") is None)
    record = space.get("InferenceRevision", new)
    assert record is not None
    assert record["spec"]["parent"] == old
    assert "maxModelLength" in record["spec"]["reason"]["message"]
    assert space.get("InferenceRevision", old) is not None, "its record stays"


def test_a_revert_takes_the_old_revision_up_again(space: Space) -> None:
    space.apply(inference_service("revert"))
    first = space.wait_ready("revert")["status"]["revision"]["stable"]
    space.apply(inference_service("revert", model={"maxModelLength": 8192}))
    second = space.wait_ready("revert")["status"]["revision"]["stable"]
    space.apply(inference_service("revert"))
    space.wait("the first revision to serve again", lambda: revisions(space, "revert")["stable"] == first)
    assert first != second
    names = {k for k in space.children("revert") if k.startswith("InferenceRevision/")}
    assert names == {f"InferenceRevision/{first}", f"InferenceRevision/{second}"}


def test_D8_an_edit_during_a_change_supersedes_the_candidate(space: Space) -> None:
    space.apply(inference_service("again"))
    stable = space.wait_ready("again")["status"]["revision"]["stable"]
    # The candidate asks for GPUs that are not there, so it stays a candidate.
    space.apply(inference_service("again", accelerator={"type": "nvidia-h200"}))
    waiting = space.wait_condition("again", "RolloutProgressing", "True", "RollingOut")
    candidate = waiting["status"]["revision"]["desired"]
    assert waiting["status"]["revision"]["stable"] == stable
    assert condition(waiting, "Available")["status"] == "True"  # type: ignore[index]
    space.wait_condition("again", "Ready", "False", "MissingGPUs")

    space.apply(inference_service("again"))
    space.wait_ready("again")
    assert revisions(space, "again")["stable"] == stable
    space.wait("the candidate to be gone", lambda: space.get("Deployment", candidate, "apps/v1") is None)
    assert stable in routed_to(space, "again")


def test_an_edit_that_cannot_be_planned_leaves_what_serves_alone(space: Space) -> None:
    space.apply(inference_service("keeps"))
    stable = space.wait_ready("keeps")["status"]["revision"]["stable"]
    space.apply(inference_service("keeps", model={"uri": "hf://meta-llama/Llama-3.1-70B-Instruct"}))
    refused = space.wait_condition("keeps", "Planned", "False")
    assert condition(refused, "Stalled")["status"] == "True"  # type: ignore[index]
    assert condition(refused, "Available")["status"] == "True"  # type: ignore[index]
    assert refused["status"]["revision"]["stable"] == stable
    deployment = space.get("Deployment", stable, "apps/v1")
    assert deployment is not None
    assert deployment["spec"]["replicas"] == 2
    assert stable in routed_to(space, "keeps")


def test_D24_replicas_and_budget_scale_without_a_new_revision(space: Space) -> None:
    space.apply(inference_service("scale"))
    stable = space.wait_ready("scale")["status"]["revision"]["stable"]
    space.apply(inference_service("scale", accelerator={"maxCount": 4}))
    space.wait("four replicas", lambda: space.service("scale")["status"].get("readyReplicas") == 4)
    space.apply(inference_service("scale", accelerator={"maxCount": 4}, scaling={"replicas": 3}))
    space.wait("three replicas", lambda: space.service("scale")["status"].get("replicas") == 3)
    assert revisions(space, "scale")["desired"] == stable


def test_S19_scale_subresource_works_as_hpa_uses_it(space: Space) -> None:
    spec: dict[str, Any] = {"accelerator": {"maxCount": 4}, "scaling": {"mode": "External", "replicas": 1}}
    space.apply(inference_service("hpa", **spec))
    space.wait_ready("hpa")
    space.kubectl("scale", "infsvc/hpa", "--replicas=3")
    space.wait("three replicas", lambda: space.service("hpa")["status"].get("readyReplicas") == 3)
    path = f"/apis/{GROUP}/namespaces/{space.name}/inferenceservices/hpa/scale"
    scale = json.loads(space.cluster.client.raw("GET", path))
    selected = space.kubectl("get", "pods", "-l", scale["status"]["selector"], "-o", "name").split()
    assert (scale["spec"]["replicas"], scale["status"]["replicas"], len(selected)) == (3, 3, 3)


def test_scale_to_zero_and_back(space: Space) -> None:
    spec: dict[str, Any] = {"scaling": {"mode": "External", "replicas": 1}}
    space.apply(inference_service("zero", **spec))
    space.wait_ready("zero")
    space.kubectl("scale", "infsvc/zero", "--replicas=0")
    service = space.wait_condition("zero", "Ready", "True", "ScaledToZero")
    assert condition(service, "Available")["status"] == "False"  # type: ignore[index]
    space.kubectl("scale", "infsvc/zero", "--replicas=2")
    space.wait_condition("zero", "Ready", "True", "Serving")


def test_what_the_api_server_refuses_is_in_the_status_and_healed_by_an_edit(space: Space) -> None:
    broken = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.bogus"}}}
    space.apply(inference_service("refused", podTemplate={"engine": {"env": [broken]}}))
    stalled = space.wait_condition("refused", "Ready", "False", "ApplyRejected")
    assert "spec.bogus" in condition(stalled, "Ready")["message"]  # type: ignore[index]
    assert condition(stalled, "Stalled")["status"] == "True"  # type: ignore[index]
    fine = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    space.apply(inference_service("refused", podTemplate={"engine": {"env": [fine]}}))
    space.wait_ready("refused")


def test_pods_that_a_quota_refuses_are_explained(space: Space) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-gpus"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "1"}},
    }
    space.apply(quota)
    space.apply(inference_service("quota"))
    service = space.wait_condition("quota", "Ready", "False", "PodsRefused")
    assert "exceeded quota" in condition(service, "Ready")["message"]  # type: ignore[index]
    space.delete("ResourceQuota", "no-gpus", "v1")


def test_S3_fields_that_are_not_in_force_yet_are_named(space: Space) -> None:
    space.apply(inference_service("early", tuning={"mode": "Auto"}))
    reasons = space.wait_ready("early")["status"]["plan"]["reasons"]
    said = [r["message"] for r in reasons if r["code"] == "NotActiveYet"]
    assert len(said) == 1
    assert "spec.tuning.mode" in said[0]


def test_a_lost_status_is_rebuilt_from_what_runs(space: Space) -> None:
    space.apply(inference_service("amnesia"))
    before = space.wait_ready("amnesia")["status"]
    space.kubectl(
        "patch", "infsvc", "amnesia", "--subresource=status", "--type=json", "-p", '[{"op":"remove","path":"/status"}]'
    )
    after = space.wait_ready("amnesia")["status"]
    assert after["revision"]["stable"] == before["revision"]["stable"]
    assert len([k for k in space.children("amnesia") if k.startswith("InferenceRevision/")]) == 1


def test_S22_a_revision_cannot_be_edited_and_one_deleted_by_hand_does_no_harm(space: Space) -> None:
    space.apply(inference_service("record"))
    stable = space.wait_ready("record")["status"]["revision"]["stable"]
    with pytest.raises(LocalError) as refused:
        space.patch(f"infrev/{stable}", {"spec": {"serviceName": "other"}})
    assert "can't be changed" in refused.value.details
    uid = (space.get("Deployment", stable, "apps/v1") or {})["metadata"]["uid"]
    space.kubectl("delete", "infrev", stable)
    space.wait("the record to come back", lambda: space.get("InferenceRevision", stable) is not None)
    space.wait_ready("record")
    assert (space.get("Deployment", stable, "apps/v1") or {})["metadata"]["uid"] == uid, "pods were left alone"


def test_two_services_in_a_namespace_do_not_touch_each_other(space: Space) -> None:
    space.apply(inference_service("left"))
    space.apply(inference_service("left-right"))
    space.wait_quiet("left")
    space.wait_quiet("left-right")
    before = {k: o["metadata"]["uid"] for k, o in space.children("left-right").items()}
    space.kubectl("delete", "infsvc", "left", "--wait=true", "--timeout=30s")
    space.wait("left to be gone", lambda: not space.children("left", made_by_us=False))
    assert {k: o["metadata"]["uid"] for k, o in space.children("left-right").items()} == before
    space.wait_ready("left-right")
