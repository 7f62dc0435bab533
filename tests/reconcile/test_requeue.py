"""When to look again without an event: what no watch tells of, and time itself."""

from reconcile.world import World, ready, rolled

LONGER = {"model": {"maxModelLength": 8192}}


def asked(world: World) -> float | None:
    return world.look()[1].requeue_after


def test_a_ready_service_asks_for_no_look() -> None:
    assert asked(ready()) is None


def test_pods_are_polled_soon_at_first_and_ever_more_rarely_up_to_a_minute() -> None:
    world = World()
    assert asked(world) == 2.0
    world.reconcile()
    seen = []
    for _ in range(6):
        seen.append(asked(world))
        world.wait(20)
    assert seen == [2.0, 5.0, 10.0, 15.0, 20.0, 25.0]
    world.wait(3600)
    assert asked(world) == 60.0


def test_a_clock_that_jumped_back_asks_for_the_first_look() -> None:
    world = World()
    world.reconcile()
    world.wait(-3600)
    assert asked(world) == 2.0


def test_a_taken_name_is_looked_at_again_within_ten_seconds() -> None:
    world = World()
    world.create("Service", "chat")
    world.reconcile()
    world.wait(3600)
    assert asked(world) == 10.0


def test_S23_the_end_of_draining_is_looked_at_when_it_comes() -> None:
    world, _, _ = rolled(LONGER)
    assert asked(world) == 120.0
    world.wait(45)
    assert asked(world) == 75.0
    world.wait(75)
    world.reconcile()
    assert asked(world) is None


def test_the_nearest_of_several_times_counts() -> None:
    world, _, new = rolled(LONGER)
    world.come_up(new, ready=1)
    world.reconcile()
    assert asked(world) == 2.0
