"""Requests move, a service is Ready, and what drained goes, only when the Envoys that answer have it all (0013)."""

from collections.abc import Callable

import pytest

from firsttoken.reconcile.envoy_views import EnvoyView
from firsttoken.reconcile.routes import Versions
from reconcile.world import World, ready

LONGER = {"model": {"maxModelLength": 8192}}
SHORTER = {"model": {"maxModelLength": 7168}}


def first() -> tuple[World, str]:
    """A first revision that is complete, with an Envoy that has found nothing."""
    world = World()
    world.reconcile()
    world.come_up()
    world.say(world.view)
    return world, world.revision["desired"]


def changing() -> tuple[World, str, str]:
    """A complete revision beside the one that serves: the world, the serving one, the new one."""
    world = ready()
    old = world.revision["stable"]
    world.edit(**LONGER)
    world.reconcile()
    new = world.revision["desired"]
    world.come_up(new)
    return world, old, new


def knows(world: World, *revisions: str, pod: str = "envoy-1", stale: bool = False) -> Callable[[], EnvoyView]:
    """An Envoy with these endpoints and the stored routes, or (stale) for ever those stored now."""
    routes = dict(world.get("ConfigMap", "chat-gateway-routes"))
    return lambda: world.view(*revisions, pod=pod, routes=routes if stale else None)


def test_a_first_revision_gets_requests_when_envoy_has_found_it() -> None:
    world, name = first()
    world.reconcile()
    assert world.weights() == {name: 0}
    assert world.says("Ready") == ("False", "EnvoySyncing")
    assert world.says("EnvoysInSync") == ("False", "EnvoySyncing")
    assert "envoy-1" in (world.condition("Ready") or {})["message"]
    assert world.look()[1].requeue_after == 1.0
    world.say(knows(world, name))
    world.settle()
    assert world.weights() == {name: 100}
    assert world.says("Ready") == ("True", "Serving")
    assert world.condition("EnvoysInSync") is None


def test_a_written_weight_is_not_yet_ready_nor_available() -> None:
    """Envoy has found the revision at weight 0, and answers 503 until it has the routes with weight 100."""
    world, name = first()
    world.say(knows(world, name, stale=True))
    world.reconcile()
    assert world.weights() == {name: 100}
    world.reconcile()
    assert world.says("Ready") == ("False", "EnvoySyncing")
    assert world.says("Available") == ("False", "EnvoySyncing")
    assert world.look()[1].requeue_after == 1.0
    world.say(knows(world, name))
    world.reconcile()
    assert world.says("Ready") == ("True", "Serving")
    assert world.says("Available") == ("True", "Serving")


def test_changed_routes_of_a_changed_spec_are_confirmed_too() -> None:
    world = ready()
    name = world.revision["stable"]
    world.say(knows(world, name))
    world.edit(rollout={"split": {"mode": "HeaderHash", "header": "X-User-Id"}})
    world.reconcile()
    assert world.says("Ready") == ("False", "EnvoySyncing")
    assert world.says("Available") == ("True", "Serving")
    world.reconcile()
    assert world.says("Ready") == ("True", "Serving")


def test_a_new_revision_waits_for_every_envoy() -> None:
    world, old, new = changing()
    world.say(knows(world, old, new), knows(world, old, pod="envoy-2"))
    world.reconcile()
    assert world.weights() == {old: 100, new: 0}
    assert world.says("Available") == ("True", "Serving")
    world.say(knows(world, old, new), knows(world, old, new, pod="envoy-2"))
    world.reconcile()
    assert world.weights() == {old: 0, new: 100}


def test_what_was_available_stays_so_while_envoys_take_up_routes_that_changed() -> None:
    world, old, new = changing()
    world.say(lambda: EnvoyView("envoy-1", {old: 2}, Versions("a", "b")))
    world.reconcile()
    assert world.says("Ready") == ("False", "EnvoySyncing")
    assert world.says("Available") == ("True", "Serving")
    assert world.weights() == {old: 100, new: 0}


def test_an_envoy_that_gives_no_answer_beside_one_that_does_is_waited_for() -> None:
    world, old, new = changing()
    world.say(knows(world, old, new), silent=("envoy-2",))
    world.reconcile()
    assert world.weights() == {old: 100, new: 0}
    assert "envoy-2" in (world.condition("EnvoysInSync") or {})["message"]
    world.say(silent=("envoy-1", "envoy-2"))
    world.reconcile()
    assert world.weights() == {old: 0, new: 100}, "there is no way to any: what was written counts"


def test_a_blind_envoy_is_waited_for_a_minute_and_named_after_that() -> None:
    world, old, new = changing()
    world.say(knows(world, old, new), knows(world, old, pod="envoy-2"))
    world.reconcile()
    looks = []
    for seconds in (9, 1, 30, 18, 1):
        world.wait(seconds)
        looks.append(world.reconcile().requeue_after)
    assert looks == [1.0, 2.5, 10.0, 2.0, 1.0], "ever more rarely, and at the deadline"
    assert world.weights() == {old: 100, new: 0}
    world.wait(1)
    world.reconcile()
    assert world.weights() == {old: 0, new: 100}, "the rest serves"
    assert world.says("Ready") == ("False", "Shifting")
    assert "envoy-2" in (world.condition("Ready") or {})["message"]
    world.reconcile()
    world.wait(3600)
    decision = world.reconcile()
    assert world.says("Ready") == ("False", "EnvoySyncing"), "somebody still gets 503 from it"
    assert world.says("Available") == ("True", "Serving")
    assert world.condition("Stalled") is None
    assert decision.requeue_after == 60.0
    world.say(knows(world, new), knows(world, new, pod="envoy-2"))
    world.reconcile()
    assert world.says("Ready") == ("True", "Serving")


def test_a_silent_envoy_is_waited_for_a_minute_and_then_believed_out_of_reach() -> None:
    world, old, new = changing()
    world.say(knows(world, old, new), silent=("envoy-2",))
    world.reconcile()
    world.wait(60)
    world.reconcile()
    assert world.weights() == {old: 0, new: 100}
    world.reconcile()
    assert world.says("Ready") == ("True", "Serving")
    assert "no answer from envoy-2" in (world.condition("Ready") or {})["message"]


def test_requests_never_move_to_what_no_envoy_has_found() -> None:
    world, old, new = changing()
    world.say(knows(world, old), knows(world, old, pod="envoy-2"))
    for _ in range(3):
        world.reconcile()
        world.wait(3600)
    assert world.weights() == {old: 100, new: 0}


def test_each_wait_has_a_minute_of_its_own() -> None:
    world, old, new = changing()
    world.say(knows(world, old, new), knows(world, old, pod="envoy-2"))
    world.reconcile()
    world.wait(3600)
    world.come_up(new, ready=0)
    world.reconcile()
    assert world.condition("EnvoysInSync") is None
    world.come_up(new)
    world.reconcile()
    assert world.weights() == {old: 100, new: 0}


@pytest.mark.parametrize("stamp", ["2126-01-01T00:00:00Z", "0000-01-01T00:00:00Z"])
def test_a_time_that_cannot_be_holds_nothing_up_for_ever(stamp: str) -> None:
    world, old, new = changing()
    world.say(knows(world, old, new), knows(world, old, pod="envoy-2"))
    world.reconcile()
    (world.condition("EnvoysInSync") or {})["lastTransitionTime"] = stamp
    world.reconcile()
    assert world.weights() == {old: 0, new: 100}


def test_S21_D15_one_envoy_is_enough_when_nobody_serves() -> None:
    world, old, new = changing()
    world.come_up(old, ready=0)
    world.say(knows(world, new, stale=True), knows(world, pod="envoy-2"), silent=("envoy-3",))
    world.reconcile()
    assert world.weights() == {old: 0, new: 100}


def test_S21_not_even_then_do_requests_move_to_what_none_has_found() -> None:
    world, old, new = changing()
    world.come_up(old, ready=0)
    world.come_up(new, ready=1)
    world.say(knows(world))
    decision = world.reconcile()
    assert world.weights() == {old: 100, new: 0}
    assert decision.requeue_after == 1.0


def drained() -> tuple[World, str, str]:
    """Requests have moved and the old revision has had its time: the world, the old one, the new one."""
    world, old, new = changing()
    world.say(knows(world, old, new))
    world.settle()
    assert world.says("Ready") == ("True", "Serving")
    world.wait(120)
    return world, old, new


def test_S23_a_drained_revision_goes_when_no_envoy_sends_to_it() -> None:
    world, old, new = drained()
    fresh = world.envoys
    stale = EnvoyView("envoy-2", {old: 2, new: 2}, Versions("a", "b"))
    world.say(knows(world, old, new), lambda: stale)
    decision = world.reconcile()
    assert decision.requeue_after == 1.0
    assert old in world.names("Deployment")
    world.wait(40)
    assert world.reconcile().requeue_after == 10.0
    world.envoys = fresh
    world.reconcile()
    assert old not in world.names("Deployment")


def test_S23_an_envoy_that_never_confirms_keeps_a_drained_revision_for_a_minute() -> None:
    world, old, new = drained()
    world.say(knows(world, old, new), silent=("envoy-2",))
    world.wait(59)
    world.reconcile()
    assert old in world.names("Deployment")
    world.wait(1)
    world.reconcile()
    assert old not in world.names("Deployment")


def test_a_second_shift_waits_until_the_first_has_arrived() -> None:
    """Otherwise a third revision could push out one that an Envoy still sends to."""
    world, _, second = drained()
    world.edit(**SHORTER)
    world.reconcile()
    third = world.revision["desired"]
    world.come_up(third)
    world.say(lambda: EnvoyView("envoy-1", {second: 1, third: 1}, Versions("a", "b")))
    world.reconcile()
    assert world.weights()[third] == 0


def test_an_envoy_without_endpoints_of_what_serves_makes_nothing_available() -> None:
    """On a service that has something to confirm; a settled one is not asked."""
    world = ready()
    name = world.revision["stable"]
    world.come_up(name, ready=0)
    world.reconcile()
    world.come_up(name)
    world.say(knows(world))
    decision = world.reconcile()
    assert world.says("Ready") == ("False", "EnvoySyncing")
    assert world.says("Available") == ("False", "EnvoySyncing")
    assert decision.requeue_after == 1.0
    world.say(knows(world, name))
    world.reconcile()
    assert world.says("Ready") == ("True", "Serving")
    assert world.says("Available") == ("True", "Serving")


def test_one_envoy_with_endpoints_is_available() -> None:
    world, name = first()
    world.say(knows(world, name), knows(world, pod="envoy-2"))
    world.come_up(name, ready=1)
    world.reconcile()
    world.reconcile()
    assert world.weights() == {name: 100}
    assert (world.says("Ready") or ("",))[0] == "False"
    assert world.says("Available") == ("True", "Serving")


def test_available_is_looked_for_soon_while_the_rest_comes_up() -> None:
    world, name = first()
    world.say(knows(world, name, stale=True))
    world.come_up(name, ready=1)
    world.wait(3600)
    world.reconcile()
    decision = world.reconcile()
    assert world.says("Available") == ("False", "EnvoySyncing")
    assert decision.requeue_after == 1.0


def test_nothing_is_asked_of_envoys_in_front_of_no_replica() -> None:
    world = ready(scaling={"replicas": 0})
    world.say(world.view)
    del world.service["status"]
    world.settle()
    assert world.says("Ready") == ("True", "ScaledToZero")
    assert world.asked == 0


def test_envoys_are_asked_only_when_that_can_matter() -> None:
    world = World()
    world.say(world.view)
    world.reconcile()
    world.come_up(ready=0)
    world.reconcile()
    assert world.asked == 0, "nothing is complete"
    world = ready()
    name = world.revision["stable"]
    world.say(knows(world, name))
    world.reconcile()
    assert world.asked == 0, "settled"
    world.edit(**LONGER)
    world.reconcile()
    world.reconcile()
    assert world.asked == 0, "the new revision starts"
    world.come_up()
    world.reconcile()
    assert world.asked == 1


def test_a_lost_status_asks() -> None:
    world = ready()
    world.say(knows(world, world.revision["stable"]))
    del world.service["status"]
    world.reconcile()
    assert world.asked == 1


def test_a_service_stays_ready_while_a_drained_revision_goes() -> None:
    """The routes without it are written in that pass, and no Envoy can have them yet; users notice nothing."""
    world, old, new = changing()
    world.say(knows(world, old, new))
    world.settle()
    assert (world.draining, world.says("Ready")) == ([old], ("True", "Serving"))
    world.wait(3600)
    world.say(knows(world, new, stale=True))  # the routes before, as the kubelet has brought them
    world.reconcile()
    assert old not in world.names("Deployment")
    assert world.weights() == {new: 100}, "written, and not yet taken up"
    assert world.says("Ready") == ("True", "Serving")
    assert world.condition("EnvoysInSync") is None
    for _ in range(3):
        world.reconcile()
        assert world.says("Ready") == ("True", "Serving")


def test_an_envoy_that_lost_what_serves_is_not_forgiven_because_something_goes() -> None:
    world, old, new = changing()
    world.say(knows(world, old, new))
    world.settle()
    world.wait(3600)
    world.say(knows(world, stale=True))
    world.reconcile()
    assert world.says("Ready") == ("False", "EnvoySyncing")
