"""A name that somebody else has stops what needs it, and nothing else (0006)."""

from reconcile.world import ready

LONGER = {"model": {"maxModelLength": 8192}}


def test_0006_a_taken_name_of_the_next_revision_leaves_the_serving_one_healed() -> None:
    coming = ready(**LONGER).revision["stable"]
    world = ready()
    serving = world.revision["stable"]
    world.create("Service", coming)
    world.edit(**LONGER)
    world.reconcile()
    assert world.says("Ready") == ("False", "NameTaken")
    assert coming not in world.names("Deployment")

    world.remove(world.get("Deployment", serving))
    world.remove(world.get("Service", "chat"))
    world.reconcile()
    assert serving in world.names("Deployment")
    assert "chat" in world.names("Service")
    assert world.weights()[serving] == 100


def test_0006_a_taken_name_of_a_new_service_stops_everything() -> None:
    coming = ready().revision["stable"]
    world = ready()
    for obj in world.objects():
        world.remove(obj)
    del world.service["status"]
    world.create("Service", coming)
    assert world.look()[1].apply == ()
    world.reconcile()
    assert world.says("Ready") == ("False", "NameTaken")
    assert world.names("Deployment") == []


def test_4_an_edit_that_scales_to_zero_in_mid_change_frees_what_served() -> None:
    world = ready(scaling={"mode": "External", "replicas": 2})
    old = world.revision["stable"]
    world.edit(podTemplate={"spec": {"nodeSelector": {"no": "where"}}})
    world.reconcile()
    world.edit(scaling={"replicas": 0})
    for _ in range(4):
        world.settle()
        world.wait(200)
    assert old not in world.names("Deployment")
    assert world.says("Ready") == ("True", "ScaledToZero")
