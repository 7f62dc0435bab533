"""Which revision has the requests: capacity first, weight next, scale-down last, whatever comes in between."""

from datetime import datetime

import pytest

from reconcile.world import World, kinds, ready, rolled

LONGER = {"model": {"maxModelLength": 8192}}
SHORTER = {"model": {"maxModelLength": 7168}}
ROUTED = {"engine": {"pins": {"prefixCaching": True, "tensorParallel": 1}}}
EXTERNAL = {"scaling": {"mode": "External", "replicas": 2}}
TOO_BIG = {"model": {"uri": "hf://meta-llama/Llama-3.1-70B-Instruct"}}


def changing(**spec: object) -> tuple[World, str, str]:
    """A new revision starts beside the one that serves: the world, the serving one, the new one."""
    world = ready(**spec)
    old = world.revision["stable"]
    world.edit(**LONGER)
    world.reconcile()
    return world, old, world.revision["desired"]


def test_the_first_revision_serves_with_its_first_replica() -> None:
    world = World()
    world.reconcile()
    name = world.revision["desired"]
    assert world.weights() == {name: 0}
    assert "stable" not in world.revision
    world.come_up(ready=1)
    world.reconcile()
    assert world.weights() == {name: 100}
    world.reconcile()
    assert world.revision["stable"] == name, "read back from the routes"


def test_a_router_without_engines_serves_nobody() -> None:
    world = World(**ROUTED)
    world.reconcile()
    name = world.revision["desired"]
    world.report(world.get("Deployment", f"{name}-router"))
    world.reconcile()
    assert world.weights() == {name: 0}
    world.report(world.get("Deployment", name), ready=1)
    world.reconcile()
    assert world.weights() == {name: 100}


def test_S4_D13_the_whole_capacity_comes_before_any_weight() -> None:
    world, old, new = changing()
    for count in (0, 1):
        world.come_up(new, ready=count)
        world.reconcile()
        assert world.weights() == {old: 100, new: 0}
        assert world.get("Deployment", old)["spec"]["replicas"] == 2
    world.come_up(new)
    world.reconcile()
    assert world.weights() == {old: 0, new: 100}
    assert world.get("Deployment", old)["spec"]["replicas"] == 2


def test_a_revision_is_known_to_envoy_before_it_gets_weight() -> None:
    """A route that names a cluster not loaded yet would answer 503."""
    world, old, new = changing()
    world.by_hand(world.get("ConfigMap", "chat-gateway-routes"), {"data": {"clusters.json": "{}"}})
    routes = world.get("ConfigMap", "chat-gateway-routes")
    routes["data"]["routes.json"] = "{}"
    world.come_up()
    world.reconcile()
    assert world.weights() == {old: 100, new: 0}
    world.reconcile()
    assert world.weights() == {old: 0, new: 100}


def test_S15_S23_the_old_revision_keeps_its_pods_until_its_streams_had_their_time() -> None:
    world, old, new = rolled(LONGER)
    assert world.draining == [old]
    assert datetime.fromisoformat(world.revision["shiftedAt"]) == world.now
    world.wait(119)
    world.settle()
    assert world.get("Deployment", old)["spec"]["replicas"] == 2
    assert world.weights() == {new: 100, old: 0}
    world.wait(1)
    world.settle()
    assert old not in world.names("Deployment")
    assert old in world.names("InferenceRevision"), "its record stays"
    assert world.weights() == {new: 100}
    assert world.draining == []


def test_a_changed_drain_timeout_counts_for_what_drains_already() -> None:
    world, old, _ = rolled(LONGER, rollout={"drainTimeout": "1h"})
    world.wait(600)
    world.settle()
    assert old in world.names("Deployment")
    world.edit(rollout={"drainTimeout": "5m"})
    world.settle()
    assert old not in world.names("Deployment")


def test_a_clock_that_jumps_ahead_ends_draining_and_takes_nothing_else() -> None:
    world, old, new = rolled(LONGER)
    world.wait(10 * 365 * 86400)
    world.settle()
    assert old not in world.names("Deployment")
    assert world.weights() == {new: 100}


def test_a_clock_that_jumps_back_never_cuts_draining_short() -> None:
    world, old, _ = rolled(LONGER)
    world.wait(-3600)
    world.settle()
    assert old in world.names("Deployment")
    assert world.look()[1].requeue_after == 120.0


def test_a_revert_in_mid_change_drops_the_candidate_and_moves_no_request() -> None:
    world, old, new = changing()
    world.edit(model={"maxModelLength": None})
    world.settle()
    assert world.weights() == {old: 100}
    assert new not in world.names("Deployment")
    assert world.draining == []


def test_a_revert_while_the_old_revision_drains_takes_it_up_again_at_once() -> None:
    world, old, new = rolled(LONGER)
    uid = world.get("Deployment", old)["metadata"]["uid"]
    world.edit(model={"maxModelLength": None})
    world.reconcile()
    assert world.weights() == {old: 100, new: 0}
    world.reconcile()
    assert world.draining == [new]
    assert world.get("Deployment", old)["metadata"]["uid"] == uid, "its pods were never taken"


def test_D13_a_revert_to_a_draining_revision_of_another_size_grows_it_first() -> None:
    world, old, new = rolled(LONGER)
    world.edit(model={"maxModelLength": None}, accelerator={"maxCount": 4})
    world.reconcile()
    assert world.get("Deployment", old)["spec"]["replicas"] == 4
    assert world.weights() == {new: 100, old: 0}
    world.settle()
    assert world.weights() == {old: 100, new: 0}


def test_D8_a_superseded_candidate_goes_and_the_serving_revision_keeps_everything() -> None:
    world, old, first = changing()
    world.come_up(first, ready=1)
    world.edit(**SHORTER)
    world.reconcile()
    assert first not in world.names("Deployment")
    assert world.weights()[old] == 100
    world.settle()
    assert world.draining == [old]
    assert world.revision["stable"] == world.revision["desired"]


def test_two_shifts_in_a_row_drain_both_predecessors() -> None:
    world, first, second = rolled(LONGER)
    world.edit(**SHORTER)
    world.settle()
    assert set(world.draining) == {first, second}
    world.wait(119)
    world.settle()
    assert {first, second} <= set(world.names("Deployment"))
    world.wait(1)
    world.settle()
    assert not {first, second} & set(world.names("Deployment"))


def test_stable_keeps_its_size_while_a_smaller_revision_starts() -> None:
    """Invariant 4, D14, D17: an edit of model and budget in one must not shrink what serves."""
    world = ready(accelerator={"maxCount": 4})
    old = world.revision["stable"]
    world.edit(accelerator={"maxCount": 2}, **LONGER)
    world.reconcile()
    assert world.get("Deployment", old)["spec"]["replicas"] == 4
    assert world.get("Deployment", world.revision["desired"])["spec"]["replicas"] == 2


def test_a_serving_revision_that_fails_waits_for_the_first_replica_of_the_new_one() -> None:
    world, old, new = changing()
    world.come_up(ready=0)
    world.reconcile()
    assert world.weights() == {old: 100, new: 0}
    world.come_up(new, ready=1)
    world.reconcile()
    assert world.weights() == {old: 0, new: 100}


def test_S21_an_unhealthy_old_revision_does_not_block_the_new_one() -> None:
    world, old, new = changing()
    world.come_up(new)
    world.come_up(old, ready=0)
    world.reconcile()
    assert world.weights() == {old: 0, new: 100}


def test_a_spec_that_cannot_be_planned_moves_nothing() -> None:
    world = ready()
    old = world.revision["stable"]
    world.edit(**TOO_BIG)
    decision = world.reconcile()
    assert (decision.apply, decision.delete) == ((), ())
    assert world.revision["stable"] == old
    assert world.draining == []
    assert world.weights() == {old: 100}


@pytest.mark.parametrize("ready_replicas", [1, 2])
def test_a_lost_status_is_rebuilt_from_the_revision_that_runs(ready_replicas: int) -> None:
    world = ready()
    before = world.revision["stable"]
    world.come_up(before, ready=ready_replicas)
    del world.service["status"]
    decision = world.reconcile()
    assert world.revision["stable"] == world.revision["desired"] == before
    assert (decision.apply, decision.delete) == ((), ())
    assert world.weights() == {before: 100}


def test_a_status_lost_in_mid_change_leaves_the_requests_where_they_are() -> None:
    world, old, new = changing()
    del world.service["status"]
    world.reconcile()
    assert world.weights() == {old: 100, new: 0}
    assert world.revision["stable"] == old


def test_a_stable_that_is_not_on_record_any_more_is_found_by_what_runs() -> None:
    world = ready()
    before = world.revision["stable"]
    world.service["status"]["revision"]["stable"] = "chat-00000000"
    world.reconcile()
    assert world.revision["stable"] == before


def test_the_record_of_the_serving_revision_comes_back_if_it_is_deleted() -> None:
    world = ready()
    name = world.revision["stable"]
    world.remove(world.get("InferenceRevision", name))
    assert kinds(world.reconcile().apply) == [f"InferenceRevision/{name}"]
    assert world.weights() == {name: 100}


def test_a_lost_record_of_the_serving_revision_takes_neither_its_pods_nor_its_requests() -> None:
    world, old, _ = changing()
    world.remove(world.get("InferenceRevision", old))
    decision = world.reconcile()
    assert decision.delete == ()
    assert old in world.names("Deployment")
    assert world.weights()[old] == 100


def test_scaled_to_zero_envoy_answers_503_by_itself_and_pods_come_back_before_the_weight() -> None:
    world = ready(scaling={"mode": "External", "replicas": 2})
    name = world.revision["stable"]
    world.edit(scaling={"replicas": 0})
    world.settle()
    assert world.weights() == {name: 0}
    assert world.status["replicas"] == 0
    world.edit(scaling={"replicas": 2})
    world.settle()
    assert world.weights() == {name: 100}
    assert world.says("Ready") == ("True", "Serving")


def test_pods_are_told_of_changed_routes_and_only_of_changed_ones() -> None:
    world, _, _ = changing()
    world.come_up()
    _, decision = world.look()
    (sync,) = decision.sync
    assert dict(sync.pods) == {"firsttoken.dev/service": "chat", "firsttoken.dev/role": "gateway"}
    again = world.look()[1].sync
    assert again == (sync,), "repeating it changes nothing"
    assert World().look()[1].sync == (), "pods that start read the first version by themselves"


def test_an_edit_together_with_a_scale_to_zero_ends_with_the_new_revision_at_zero() -> None:
    world = ready(**EXTERNAL)
    old = world.revision["stable"]
    world.edit(scaling={"replicas": 0}, **LONGER)
    for _ in range(4):
        world.settle()
        world.wait(121)
    assert old not in world.names("Deployment")
    assert world.revision["stable"] == world.revision["desired"]


def test_an_edit_at_zero_replicas_ends() -> None:
    world = ready(**EXTERNAL)
    world.edit(scaling={"replicas": 0})
    world.settle()
    world.edit(**LONGER)
    for _ in range(4):
        world.settle()
        world.wait(121)
    assert world.condition("RolloutProgressing") is None
