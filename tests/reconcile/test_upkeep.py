"""What is put right, what is left alone, what goes: names of others, drift, deletion, history."""

import copy
from typing import Any

import pytest

from reconcile.services import API
from reconcile.world import World, kinds, ready, rolled

LONGER = {"model": {"maxModelLength": 8192}}
ALL = World()
ALL.settle()


# names of others


@pytest.mark.parametrize("taken", kinds(ALL.objects()))
def test_0006_a_name_of_somebody_else_stops_every_write_and_is_said(taken: str) -> None:
    kind, _, name = taken.partition("/")
    world = World()
    theirs = world.create(kind, name, ALL.get(kind, name)["apiVersion"], spec={"theirs": True}, data={"a": "b"})
    before = copy.deepcopy(theirs)
    decision = world.reconcile()
    assert (decision.apply, decision.delete, decision.sync) == ((), (), ())
    assert world.objects() == [before]
    assert world.says("Ready") == ("False", "NameTaken")
    assert taken in world.condition("Ready")["message"]  # type: ignore[index]
    world.remove(theirs)
    world.settle()
    assert world.says("Ready") == ("True", "Serving")


def test_0006_objects_of_an_earlier_service_of_the_same_name_are_waited_for() -> None:
    """Deleted and made anew within a second: the garbage collector is not done yet."""
    world = ready()
    earlier = world.objects()
    world.service["metadata"]["uid"] = "uid-of-the-second"
    del world.service["status"]
    assert (world.reconcile().apply, world.look()[1].delete) == ((), ())
    assert world.says("Ready")[0] == "False"  # type: ignore[index]
    assert (world.look()[1].requeue_after or 3600) <= 10.0
    for obj in earlier:
        world.remove(obj)
    world.settle()
    assert world.says("Ready") == ("True", "Serving")


def test_0006_our_label_on_it_makes_no_object_ours() -> None:
    world = World()
    world.create("Service", "chat", metadata={"labels": {"firsttoken.dev/service": "chat"}}, spec={"theirs": True})
    world.reconcile()
    assert world.says("Ready") == ("False", "NameTaken")
    assert world.get("Service", "chat")["spec"] == {"theirs": True}


def test_an_object_of_ours_that_lost_its_owner_or_label_is_taken_up_again() -> None:
    world = ready()
    service = world.get("Service", "chat")
    del service["metadata"]["ownerReferences"]
    del service["metadata"]["labels"]["firsttoken.dev/service"]
    assert kinds(world.reconcile().apply) == ["Service/chat"]
    again = world.get("Service", "chat")["metadata"]
    assert again["ownerReferences"][0]["uid"] == "uid-of-chat"
    assert again["labels"]["firsttoken.dev/service"] == "chat"
    assert not world.look()[1].writes


def test_D18_objects_and_fields_of_others_are_left_alone() -> None:
    world = ready()
    labels = {"firsttoken.dev/service": "chat"}
    world.create("ConfigMap", "notes", metadata={"labels": labels}, data={"a": "b"})
    owner = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "uid-x", "controller": True}
    world.create("ConfigMap", "theirs", metadata={"labels": labels, "ownerReferences": [owner]}, data={"a": "b"})
    deployment = world.get("Deployment", world.revision["stable"])
    world.by_hand(deployment, {"metadata": {"annotations": {"example.com/team": "ml"}}})
    assert not world.look()[1].writes


def test_13_D18_a_condition_of_somebody_else_is_kept_and_causes_no_writes() -> None:
    world = ready()
    stamp = "2026-05-01T12:00:00Z"
    theirs = {"type": "Audited", "status": "True", "reason": "Yes", "message": "", "lastTransitionTime": stamp}
    world.service["status"]["conditions"].append(theirs)
    world.reconcile()
    assert world.condition("Audited") == theirs
    assert not world.look()[1].writes


def test_a_record_that_lost_its_label_is_taken_up_again() -> None:
    world, _, new = rolled(LONGER)
    world.wait(121)
    world.settle()
    del world.get("InferenceRevision", new)["metadata"]["labels"]["firsttoken.dev/service"]
    world.settle()
    assert world.says("Ready") == ("True", "Serving")
    assert world.get("InferenceRevision", new)["metadata"]["labels"]["firsttoken.dev/service"] == "chat"


def test_a_record_that_lost_its_owner_is_adopted_and_goes_with_the_service() -> None:
    world = ready()
    for obj in world.objects():
        del obj["metadata"]["ownerReferences"]
    world.settle()
    world.delete_service()
    assert kinds(world.objects()) == []


# drift


@pytest.mark.parametrize("gone", [k for k in kinds(ALL.objects()) if "InferenceRevision" not in k])
def test_S26_what_was_deleted_by_hand_comes_back(gone: str) -> None:
    world = ready()
    kind, _, name = gone.partition("/")
    before = world.get(kind, name)
    world.remove(before)
    assert kinds(world.reconcile().apply) == [gone]
    fresh = world.get(kind, name)
    assert {k: v for k, v in fresh.items() if k not in ("metadata", "status")} == {
        k: v for k, v in before.items() if k not in ("metadata", "status")
    }


@pytest.mark.parametrize(
    ("kind", "name", "patch"),
    [
        ("Deployment", "{}", {"spec": {"replicas": 7}}),
        ("Deployment", "chat-gateway", {"spec": {"template": {"spec": {"enableServiceLinks": True}}}}),
        ("Service", "chat", {"spec": {"selector": {"app": "x"}, "ports": []}}),
        ("ConfigMap", "chat-gateway-routes", {"data": {"routes.json": "{}"}}),
        ("ConfigMap", "{}-live", {"data": {"settings.json": None}}),
        ("PodDisruptionBudget", "{}", {"metadata": {"labels": {"firsttoken.dev/revision": None}}}),
    ],
)
def test_S26_what_was_edited_by_hand_is_put_right(kind: str, name: str, patch: dict[str, Any]) -> None:
    world = ready()
    name = name.format(world.revision["stable"])
    world.by_hand(world.get(kind, name), patch)
    assert kinds(world.reconcile().apply) == [f"{kind}/{name}"]
    world.settle()
    assert not world.look()[1].writes
    assert world.says("Ready") == ("True", "Serving")


def test_a_field_that_is_no_longer_wanted_goes_with_the_next_apply() -> None:
    world = ready(routing={"gateway": {"name": "public"}, "hostnames": ["chat.example.com"]})
    assert "hostnames" in world.get("HTTPRoute", "chat")["spec"]
    world.edit(routing={"hostnames": None})
    world.reconcile()
    assert "hostnames" not in world.get("HTTPRoute", "chat")["spec"]
    assert not world.look()[1].writes


def test_13_an_unchanged_reconcile_writes_nothing() -> None:
    for spec in ({}, {"engine": {"pins": {"prefixCaching": True}}}, {"layout": {"mode": "Disaggregated"}}):
        world = ready(**spec)
        world.wait(86400)
        decision = world.reconcile()
        assert not decision.writes
        assert decision.sync == ()


def test_S6_the_spec_of_the_service_is_never_written() -> None:
    world = World()
    for _ in range(4):
        assert "InferenceService" not in [o["kind"] for o in world.reconcile().apply]
        world.come_up()


# deletion


def test_a_service_that_is_being_deleted_is_left_to_the_garbage_collector() -> None:
    world = ready()
    world.service["metadata"]["deletionTimestamp"] = "2026-05-01T12:00:00Z"
    world.remove(world.get("Service", "chat"))
    decision = world.reconcile()
    assert not decision.writes
    assert decision.requeue_after is None


def test_K4_a_service_that_a_finalizer_of_others_holds_is_not_ready_and_says_who_holds_it() -> None:
    world = ready()
    before = {c["type"] for c in world.status["conditions"]}
    world.service["metadata"] |= {
        "deletionTimestamp": "2026-05-01T12:00:00Z",
        "finalizers": ["foregroundDeletion", "example.com/billing"],
    }
    world.remove(world.get("Service", "chat"))
    decision = world.reconcile()
    assert (decision.apply, decision.delete) == ((), ()), "children are left to the garbage collector"
    assert world.says("Ready") == ("False", "Deleting")
    assert (world.condition("Ready") or {})["message"].endswith("the finalizers of others: example.com/billing")
    assert [e.reason for e in decision.events] == ["Deleting"]
    assert {c["type"] for c in world.status["conditions"]} == before | {"Reconciling"}
    assert not world.reconcile().writes, "said once"


def test_the_garbage_collector_s_own_finalizers_are_no_matter_of_the_status() -> None:
    world = ready()
    world.service["metadata"] |= {"deletionTimestamp": "2026-05-01T12:00:00Z", "finalizers": ["foregroundDeletion"]}
    assert not world.reconcile().writes
    assert world.says("Ready") == ("True", "Serving")


def test_everything_goes_with_the_service() -> None:
    world, _, _ = rolled(LONGER, routing={"gateway": {"name": "public"}}, layout={"mode": "Disaggregated"})
    world.delete_service()
    assert kinds(world.objects()) == []


def test_a_drained_revision_goes_with_everything_but_its_record() -> None:
    world, old, _ = rolled(LONGER, engine={"pins": {"prefixCaching": True}})
    world.wait(120)
    world.settle()
    assert [k for k in kinds(world.objects()) if old in k] == [f"InferenceRevision/{old}"]


def test_D9_deletions_come_after_the_routes_that_no_longer_name_them() -> None:
    world, old, _ = rolled(LONGER)
    world.wait(120)
    weights: list[dict[str, int]] = []
    world.before_delete = lambda _: weights.append(world.weights())
    world.settle()
    assert weights
    assert not any(old in w for w in weights)


def test_the_bootstrap_of_an_older_envoy_stays_until_the_new_one_is_complete() -> None:
    world = ready()
    stale = copy.deepcopy(next(o for o in world.objects("ConfigMap") if o.get("immutable")))
    stale["metadata"]["name"] = "chat-gateway-00000000"
    world.store[type(next(iter(world.store)))("v1", "ConfigMap", "chat-gateway-00000000")] = stale
    world.report(world.get("Deployment", "chat-gateway"), ready=1)
    world.reconcile()
    assert "chat-gateway-00000000" in world.names("ConfigMap")
    world.settle()
    assert "chat-gateway-00000000" not in world.names("ConfigMap")


def lengths(world: World, *lengths: int) -> list[str]:
    """Names of the revisions for several maximum lengths, one after the other, each drained."""
    names = []
    for length in lengths:
        world.edit(model={"maxModelLength": length})
        world.settle()
        world.wait(121)
        world.settle()
        names.append(world.revision["stable"])
    return names


def test_history_is_pruned_to_its_limit_oldest_first() -> None:
    world = World(revisionHistoryLimit=2)
    names = lengths(world, 5120, 6144, 7168, 8192)
    assert set(world.names("InferenceRevision")) == set(names[1:])
    world.edit(revisionHistoryLimit=0)
    world.settle()
    assert world.names("InferenceRevision") == names[-1:]


def test_a_record_is_never_pruned_while_its_revision_serves_or_drains() -> None:
    world, old, new = rolled(LONGER, revisionHistoryLimit=0)
    world.settle()
    assert set(world.names("InferenceRevision")) == {old, new}
    world.wait(120)
    world.settle()
    assert world.names("InferenceRevision") == [new]


def test_without_a_plan_what_serves_stays_and_what_has_drained_goes() -> None:
    world, old, new = rolled(LONGER, revisionHistoryLimit=0)
    world.edit(accelerator={"type": "unknown"})
    world.wait(3600)
    world.settle()
    assert old not in world.names("Deployment")
    assert new in world.names("Deployment")
    assert world.weights() == {new: 100}
    assert world.service["apiVersion"] == API
