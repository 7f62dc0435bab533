"""What an Envoy's answer says, which pods are asked for one, and what the routes call their content (0013)."""

import json
from typing import Any

import pytest

from firsttoken.reconcile.envoy_views import Envoys, EnvoyView, askable, read_view
from firsttoken.reconcile.objects import Ref
from firsttoken.reconcile.routes import Versions, observed_weights, versions
from reconcile.world import ready

ANSWER = """\
# TYPE envoy_cluster_membership_healthy gauge
envoy_cluster_membership_healthy{envoy_cluster_name="admin"} 1
envoy_cluster_membership_healthy{envoy_cluster_name="chat-1"} 2
envoy_cluster_membership_healthy{envoy_cluster_name="chat-2"} 0
# TYPE envoy_cluster_manager_cds_version_text gauge
envoy_cluster_manager_cds_version_text{text_value="c0ffee"} 0
# TYPE envoy_http_rds_version_text gauge
envoy_http_rds_version_text{envoy_rds_route_config="service",envoy_http_conn_manager_prefix="ingress",text_value="ab"} 0
envoy_http_rds_version_text{envoy_rds_route_config="other",text_value="1"} 0
"""
TOLD = Versions("c0ffee", "ab")


def test_an_answer_is_read() -> None:
    assert read_view("e", ANSWER) == EnvoyView("e", {"admin": 1, "chat-1": 2, "chat-2": 0}, TOLD)
    assert read_view("e", "garbage {} \n") == EnvoyView("e", {}, None)
    assert read_view("e", 'envoy_cluster_membership_healthy{envoy_cluster_name="x"} ' + "9" * 5000).endpoints == {}


def test_who_is_late() -> None:
    envoys = Envoys((read_view("e1", ANSWER),))
    assert envoys.late(TOLD, "chat-1") == ()
    assert envoys.late(TOLD, "chat-2") == envoys.late(TOLD, "chat-3") == ("e1",)
    assert envoys.late(Versions("c0ffee", "new"), "chat-1") == envoys.late(Versions("new", "ab")) == ("e1",)
    assert Envoys(envoys.answered, ("e2",)).late(TOLD, "chat-1") == ("e2",)
    assert Envoys(envoys.answered, ("e2",)).late(TOLD, "chat-1", silent=False) == ()
    assert Envoys((), ("e1", "e2")).late(TOLD, "chat-1") == (), "nobody answers: there is no way to them"


def pod(**changes: Any) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat-gateway-7d9", "controller": True}
    labels = {"firsttoken.dev/service": "chat", "firsttoken.dev/role": "gateway", "pod-template-hash": "7d9"}
    meta = {"name": "chat-gateway-7d9-x", "namespace": "apps", "labels": labels, "ownerReferences": [owner]}
    status = {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {**meta, **changes.get("metadata", {})}, "status": {**status, **changes.get("status", {})}}


OWNER = pod()["metadata"]["ownerReferences"][0]
LABELS = pod()["metadata"]["labels"]


def test_ready_envoys_of_the_service_are_asked() -> None:
    assert askable([pod()], "chat") == [pod()]


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata": {"ownerReferences": []}},
        {"metadata": {"ownerReferences": [{**OWNER, "controller": False}]}},
        {"metadata": {"ownerReferences": [{**OWNER, "kind": "DaemonSet"}]}},
        {"metadata": {"ownerReferences": [{**OWNER, "apiVersion": "x/v1"}]}},
        {"metadata": {"ownerReferences": [{**OWNER, "name": "mine-7d9"}]}},
        {"metadata": {"ownerReferences": [{**OWNER, "name": "chat-gateway-2-7d9"}]}},
        {"metadata": {"labels": {**LABELS, "firsttoken.dev/service": "other"}}},
        {"metadata": {"labels": {**LABELS, "firsttoken.dev/role": "serve"}}},
        {"metadata": {"deletionTimestamp": "2026-05-01T12:00:00Z"}},
        {"status": {"podIP": None}},
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        {"status": {"conditions": []}},
    ],
    ids=str,
)
def test_0006_others_are_not_asked(changes: dict[str, Any]) -> None:
    assert askable([pod(**changes)], "chat") == []


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"data": {"routes.json": "{", "clusters.json": "{}"}},
        {"data": {}},
        {"data": {"routes.json": "[" * 100_000, "clusters.json": "[" * 100_000}},
        {"data": []},
    ],
    ids=lambda value: str(value)[:40],
)
def test_garbled_routes_have_no_version_and_no_weights(data: Any) -> None:
    assert versions(data) is None
    assert observed_weights(data) == {}


def test_a_weight_without_end_is_garbled() -> None:
    arm = {"name": "chat-1", "weight": float("inf")}
    route = {"route": {"weighted_clusters": {"clusters": [arm]}}}
    routes = json.dumps({"resources": [{"virtual_hosts": [{"routes": [route]}]}]})
    assert observed_weights({"data": {"clusters.json": '{"resources": []}', "routes.json": routes}}) == {}


def test_the_version_follows_from_the_content_alone() -> None:
    world, again = ready(), ready()
    key = Ref("v1", "ConfigMap", "chat-gateway-routes")
    assert versions(world.store[key]) == versions(again.store[key]) is not None
    before = versions(world.store[key])
    world.edit(rollout={"split": {"mode": "HeaderHash", "header": "X-User-Id"}})
    world.settle()
    after = versions(world.store[key])
    assert before is not None
    assert after is not None
    assert (after.clusters == before.clusters, after.routes == before.routes) == (True, False)
