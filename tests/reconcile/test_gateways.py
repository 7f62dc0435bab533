"""Requests move, and a service is Ready, only when every Envoy that answers knows endpoints of the revision."""

import pytest

from firsttoken.reconcile.gateways import GatewayView, read_view, without, worth_asking
from reconcile.world import World, ready

LONGER = {"model": {"maxModelLength": 8192}}
ANSWER = """\
# TYPE envoy_cluster_membership_healthy gauge
envoy_cluster_membership_healthy{envoy_cluster_name="admin"} 1
envoy_cluster_membership_healthy{envoy_cluster_name="chat-1"} 2
envoy_cluster_membership_healthy{envoy_cluster_name="chat-2"} 0
"""


def knows(*revisions: str, pod: str = "envoy-1") -> GatewayView:
    return GatewayView(pod, dict.fromkeys(revisions, 1))


def test_an_answer_is_read() -> None:
    view = read_view("envoy-1", ANSWER)
    assert view == GatewayView("envoy-1", {"admin": 1, "chat-1": 2, "chat-2": 0})
    assert without([view], "chat-1") == []
    assert without([view], "chat-2") == ["envoy-1"]
    assert without([view], "chat-3") == ["envoy-1"]
    assert without([], "chat-3") == [], "nobody answers: nothing is held up"
    assert read_view("envoy-1", "garbage {} \n") == GatewayView("envoy-1", {})


def test_a_first_revision_gets_requests_when_envoy_has_found_it() -> None:
    world = World()
    world.reconcile()
    name = world.revision["desired"]
    world.come_up()
    world.gateways = (knows(),)
    world.reconcile()
    assert world.weights() == {name: 0}
    assert world.says("Ready") == ("False", "Shifting")
    assert "envoy-1 has found" in (world.condition("Ready") or {})["message"]
    assert world.look()[1].requeue_after == 1.0
    world.gateways = (knows(name),)
    world.settle()
    assert world.weights() == {name: 100}
    assert world.says("Ready") == ("True", "Serving")


def test_a_new_revision_waits_for_every_envoy() -> None:
    world = ready()
    old = world.revision["stable"]
    world.edit(**LONGER)
    world.reconcile()
    new = world.revision["desired"]
    world.come_up(new)
    world.gateways = (knows(old, new), knows(old, pod="envoy-2"))
    world.reconcile()
    assert world.weights() == {old: 100, new: 0}
    world.gateways = (knows(old, new), knows(old, new, pod="envoy-2"))
    world.reconcile()
    assert world.weights() == {old: 0, new: 100}


def test_an_envoy_that_lost_the_endpoints_is_named_and_looked_at_again() -> None:
    world = ready()
    world.gateways = (knows(),)
    world.reconcile()
    assert world.says("Ready") == ("False", "GatewaySyncing")
    assert world.says("Available") is not None
    world.gateways = ()
    world.reconcile()
    assert world.says("Ready") == ("True", "Serving")


def test_nothing_is_asked_of_envoys_in_front_of_no_replica() -> None:
    world = ready(scaling={"replicas": 0})
    world.gateways = (knows(),)
    world.reconcile()
    assert world.says("Ready") == ("True", "ScaledToZero")


def test_envoys_are_asked_only_while_something_may_move() -> None:
    world = World()
    assert worth_asking(world.service)
    world = ready()
    assert not worth_asking(world.service)
    world.edit(**LONGER)
    assert worth_asking(world.service), "the status is about the spec before"
    world.reconcile()
    assert worth_asking(world.service)


@pytest.mark.parametrize("status", [{}, {"conditions": []}, {"revision": None}])
def test_a_lost_status_asks(status: dict[str, object]) -> None:
    assert worth_asking({"metadata": {"generation": 1}, "status": status})
