"""Each Envoy has its own idea of the routes: what was mounted at its start, and changes when they have reached it."""

import json
from datetime import UTC, datetime

from firsttoken.manifests.envoy_bootstrap import CLUSTERS_FILE, ROUTES_FILE
from firsttoken.manifests.names import GATEWAY_ROLE, REVISION_LABEL, ROLE_LABEL, gateway_routes_name
from firsttoken.reconcile import Sync
from firsttoken.rehearsal.cluster import Cluster
from firsttoken.rehearsal.gateway import Gateway
from firsttoken.rehearsal.pods import Pod
from reconcile.world import ready

START = datetime(2026, 1, 1, tzinfo=UTC)
TOUCH = Sync({ROLE_LABEL: GATEWAY_ROLE}, "x")


def pod(name: str, role: str, revision: str, ready_at: float) -> Pod:
    labels = {ROLE_LABEL: role, REVISION_LABEL: revision}
    return Pod(name, role, "t", {"labels": labels}, {}, "", 0, 0.0, node="n", ready=True, ready_at=ready_at)


def stage() -> tuple[Cluster, Gateway, list[Pod], str]:
    """The routes that the operator writes for a service that serves, an Envoy, and an engine of its revision."""
    world = ready()
    revision = world.revision["stable"]
    pods = [pod("envoy-1", GATEWAY_ROLE, "", 0.0), pod("engine-1", "serve", revision, 10.0)]
    return world, Gateway(world, lambda: pods), pods, revision


def other_routes(cluster: Cluster, version: str) -> None:
    """Somebody writes routes that send nobody anywhere."""
    (stored,) = (o for o in cluster.objects("ConfigMap") if o["metadata"]["name"] == gateway_routes_name("chat"))
    clusters, routes = (json.loads(stored["data"][file]) for file in (CLUSTERS_FILE, ROUTES_FILE))
    routes["version_info"], routes["resources"] = version, []
    data = {CLUSTERS_FILE: json.dumps(clusters), ROUTES_FILE: json.dumps(routes)}
    cluster.by_hand(stored, {"data": data})


def test_an_envoy_starts_with_what_is_stored_and_finds_pods_by_dns() -> None:
    _, gateway, (envoy, _), revision = stage()
    gateway.settle(11.0)
    assert gateway.weights(envoy) == {revision: 100}
    assert not gateway.reaches(envoy, revision)
    gateway.settle(12.0)
    assert gateway.reaches(envoy, revision)
    assert not gateway.reaches(envoy, "chat-ffffffff")


def test_a_change_arrives_a_second_after_a_touch_and_within_a_minute_without() -> None:
    for touched, due in ((True, 21.0), (False, 80.0)):
        cluster, gateway, (envoy, _), _ = stage()
        gateway.settle(20.0)
        before = gateway.views().answered[0].versions
        other_routes(cluster, "2")
        if touched:
            gateway.touch(TOUCH)
        gateway.settle(20.0)
        assert gateway.next(20.0) == due
        assert gateway.weights(envoy)
        assert gateway.views().answered[0].versions == before
        gateway.settle(due)
        assert not any(gateway.weights(envoy).values())
        assert gateway.views().answered[0].versions != before


def test_garbled_routes_change_nothing_and_only_ready_envoys_are_asked() -> None:
    cluster, gateway, (envoy, _), revision = stage()
    gateway.settle(20.0)
    (stored,) = (o for o in cluster.objects("ConfigMap") if o["metadata"]["name"] == gateway_routes_name("chat"))
    shapeless = '{"version_info": "1", "resources": [{}]}'
    for number, garbled in enumerate(({ROUTES_FILE: "{"}, {CLUSTERS_FILE: "[" * 100_000}, {CLUSTERS_FILE: shapeless})):
        cluster.by_hand(stored, {"data": garbled})
        gateway.settle(120.0 * (number + 1))
        assert gateway.weights(envoy) == {revision: 100}
    envoy.leaving = 120.0
    assert gateway.views().answered == ()
