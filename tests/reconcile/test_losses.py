"""What serves is never taken, whatever was lost, garbled, refused or cut short: status, records, routes, clocks."""

from dataclasses import replace
from typing import Any

import pytest

from reconcile.world import World, kinds, ready, rolled

LONGER = {"model": {"maxModelLength": 8192}}
SHORTER = {"model": {"maxModelLength": 7168}}
TOO_BIG = {"model": {"uri": "hf://meta-llama/Llama-3.1-70B-Instruct"}}


def changing(**spec: Any) -> tuple[World, str, str]:
    """A new revision starts beside the one that serves: the world, the serving one, the new one."""
    world = ready(**spec)
    old = world.revision["stable"]
    world.edit(**LONGER)
    world.reconcile()
    return world, old, world.revision["desired"]


@pytest.mark.parametrize("stamp", ["2026-01-01t00:00:00z", "0000-01-01T00:00:00Z", "2026-01-01T00:00:00+99:99"])
@pytest.mark.parametrize("where", ["shiftedAt", "lastTransitionTime"])
def test_a_time_that_the_api_server_takes_and_python_does_not_is_no_fault(stamp: str, where: str) -> None:
    world, _, new = rolled(LONGER)
    world.come_up(new, ready=1)
    world.reconcile()
    status = world.service["status"]
    (status["revision"] if where == "shiftedAt" else status["conditions"][0])[where] = stamp
    world.reconcile()
    world.settle()
    assert world.says("Ready") == ("True", "Serving")


@pytest.mark.parametrize("garbled", [{"conditions": "x"}, {"revision": []}, {"conditions": [{"type": "Ready"}]}, [1]])
def test_a_garbled_status_counts_as_lost(garbled: Any) -> None:
    world = ready()
    name = world.revision["stable"]
    world.service["status"] = garbled
    world.settle()
    assert world.says("Ready") == ("True", "Serving")
    assert world.weights() == {name: 100}


def test_an_old_record_that_this_version_cannot_read_is_no_fault() -> None:
    world, old, new = rolled(LONGER)
    world.wait(200)
    world.settle()
    world.get("InferenceRevision", old)["spec"]["plan"] = {"version": 2}
    del world.service["status"]
    world.reconcile()
    assert world.revision["stable"] == new


def test_a_clock_that_jumped_back_does_not_keep_a_revision_for_ever() -> None:
    world, old, _ = rolled(LONGER)
    world.wait(-86400)
    world.settle(most=10)
    world.wait(121)
    world.settle()
    assert old not in world.names("Deployment")


def test_a_lost_time_of_the_shift_does_not_keep_a_revision_for_ever() -> None:
    world, old, _ = rolled(LONGER)
    del world.service["status"]["revision"]["shiftedAt"]
    world.settle()
    world.wait(121)
    world.settle()
    assert old not in world.names("Deployment")


def test_18_a_lost_status_starts_no_rollout_by_a_new_operator_version() -> None:
    world = ready()
    before = world.revision["stable"]
    world.images = replace(world.images, engine="firsttoken/runtime:9.9.9")
    del world.service["status"]
    world.settle()
    assert world.revision["stable"] == before


def test_S15_D9_a_status_lost_in_mid_change_with_a_pod_down_keeps_what_serves() -> None:
    world, old, new = changing()
    world.come_up(old, ready=1)
    del world.service["status"]
    decision = world.reconcile()
    assert f"Deployment/{old}" not in kinds(decision.delete)
    assert world.weights() == {old: 100, new: 0}


def test_a_status_lost_while_a_revision_drains_and_nothing_can_be_planned_moves_no_request() -> None:
    world, _, new = rolled({"model": {"maxModelLength": None}}, model=LONGER["model"])
    world.edit(**TOO_BIG)
    del world.service["status"]
    world.reconcile()
    assert {name: weight for name, weight in world.weights().items() if weight} == {new: 100}


def test_S15_a_lost_record_of_the_serving_revision_keeps_its_pods_in_every_pass() -> None:
    world, old, _ = changing()
    world.remove(world.get("InferenceRevision", old))
    for _ in range(3):
        world.reconcile()
        assert old in world.names("Deployment")
        assert world.weights()[old] == 100


def test_S4_S23_a_lost_record_does_not_waive_capacity_and_draining() -> None:
    world, old, new = changing()
    world.remove(world.get("InferenceRevision", old))
    world.come_up(new, ready=1)
    decision = world.reconcile()
    assert world.weights() == {old: 100, new: 0}
    assert decision.delete == ()


def test_D9_what_the_api_server_refused_to_route_away_is_not_deleted() -> None:
    world, old, _ = changing()
    world.refuse = {"ConfigMap"}
    for _ in range(4):
        world.come_up()
        world.reconcile()
        world.wait(121)
    assert world.weights()[old] == 100
    assert old in world.names("Deployment")


def test_D9_a_taken_name_records_no_shift_that_did_not_happen() -> None:
    world, old, new = changing()
    world.remove(world.get("Service", "chat"))
    theirs = world.create("Service", "chat")
    world.come_up()
    for _ in range(3):
        world.reconcile()
        world.wait(121)
    assert world.weights() == {old: 100, new: 0}
    world.remove(theirs)
    decision = world.reconcile()
    assert f"Deployment/{old}" not in kinds(decision.delete), "it had all requests until this very pass"


def test_3_with_no_drain_timeout_deletion_still_waits_until_the_routes_are_written() -> None:
    world, old, _ = changing(rollout={"drainTimeout": "0s"})
    world.come_up()
    assert world.weights()[old] == 100
    assert f"Deployment/{old}" not in kinds(world.look()[1].delete)


def test_9_D8_a_crash_after_the_shift_and_an_edit_drain_what_has_the_requests() -> None:
    world, _, new = changing()
    world.come_up()
    world.reconcile(steps=1)
    assert world.weights()[new] == 100
    world.edit(**SHORTER)
    assert f"Deployment/{new}" not in kinds(world.look()[1].delete)


def test_S26_D17_stable_scaled_by_hand_in_mid_change_is_put_right() -> None:
    world, old, _ = changing()
    world.by_hand(world.get("Deployment", old), {"spec": {"replicas": 0}})
    world.reconcile()
    assert world.get("Deployment", old)["spec"]["replicas"] == 2


@pytest.mark.parametrize("stored", ["9999999999999d", "1w"])
def test_a_stored_duration_that_this_version_refuses_is_no_fault(stored: str) -> None:
    world, old, _ = rolled(LONGER)
    world.edit(rollout={"drainTimeout": stored})
    world.reconcile()
    assert old in world.names("Deployment")


def sent_by_hand(world: World, real: str, other: str) -> None:
    """Somebody's edit of the routes: another revision has all requests."""
    routes = world.get("ConfigMap", "chat-gateway-routes")
    texts = {name: text.replace(real, other) for name, text in routes["data"].items()}
    world.by_hand(routes, {"data": texts})


@pytest.mark.parametrize("ready_pods", [0, 1])
def test_D9_routes_that_somebody_sent_to_a_revision_that_is_not_up_are_put_right(ready_pods: int) -> None:
    """An edit by hand, or an old backup: the revision that serves keeps its pods, whatever the routes say."""
    world, old, new = changing(rollout={"drainTimeout": "10s"})
    world.come_up(new, ready=ready_pods)
    since = world.revision["shiftedAt"]
    sent_by_hand(world, old, new)
    world.reconcile()
    assert world.weights() == {old: 100, new: 0}
    assert (world.revision["stable"], world.draining, world.revision["shiftedAt"]) == (old, [], since)
    for _ in range(20):
        world.wait(10)
        world.reconcile()
    assert world.get("Deployment", old)["spec"]["replicas"] == 2


def test_D9_routes_that_somebody_sent_to_a_revision_long_gone_are_put_right() -> None:
    world, old, new = rolled(LONGER)
    world.wait(300)
    world.settle()
    assert old not in world.names("Deployment")
    sent_by_hand(world, new, old)
    world.reconcile()
    assert world.weights() == {new: 100}
    world.settle()
    assert old not in world.names("Deployment"), "nothing is made anew for it"
    assert world.revision["stable"] == new


def test_a_lost_status_beside_edited_routes_leaves_the_requests_with_what_serves() -> None:
    world, old, new = changing()
    sent_by_hand(world, old, new)
    del world.service["status"]
    world.reconcile()
    assert world.weights() == {old: 100, new: 0}


def test_S21_what_drains_takes_the_requests_back_when_nobody_else_serves() -> None:
    world, old, new = rolled(LONGER)
    world.come_up(new, ready=0)
    world.reconcile()
    assert world.weights() == {old: 100, new: 0}
    world.wait(600)
    world.reconcile()
    assert (world.revision["stable"], world.draining) == (old, [])
    assert world.get("Deployment", old)["spec"]["replicas"] == 2
    world.come_up(new)
    world.reconcile()
    assert world.weights() == {old: 0, new: 100}, "and gives them up when the whole capacity is there again"
