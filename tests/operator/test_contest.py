"""Objects that somebody else keeps changing don't make two programs write for ever."""

from typing import Any

from firsttoken_operator.contest import FREE_REPAIRS, Contest, managers


def deployment(replicas: int = 2) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "x", "namespace": "n"},
        "spec": {"replicas": replicas},
    }


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_few_repairs_are_made_at_once_and_then_ever_more_rarely() -> None:
    clock = Clock()
    contest = Contest(clock)
    for _ in range(FREE_REPAIRS):
        now, later, wait = contest.split("u", [deployment()])
        assert (len(now), later, wait) == (1, (), None)
    pauses = []
    for _ in range(8):
        now, later, wait = contest.split("u", [deployment()])
        assert now == ()
        assert len(later) == 1
        assert wait is not None
        pauses.append(wait)
        clock.now += wait
        assert contest.split("u", [deployment()])[0], "its time has come"
    assert pauses == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]


def test_a_changed_wish_and_other_objects_and_services_are_not_held_up() -> None:
    contest = Contest(Clock())
    for _ in range(FREE_REPAIRS):
        contest.split("u", [deployment()])
    assert contest.split("u", [deployment()])[0] == ()
    assert contest.split("u", [deployment(replicas=3)])[0]
    assert contest.split("another", [deployment()])[0]


def test_people_are_told_once_when_pauses_begin() -> None:
    clock = Clock()
    contest = Contest(clock)
    told = []
    for _ in range(FREE_REPAIRS + 3):
        _, later, wait = contest.split("u", [deployment()])
        told += [contest.is_new("u", o) for o in later]
        clock.now += wait or 0.0
    assert told[0] is True
    assert sum(told) == 1


def test_quiet_objects_are_forgotten() -> None:
    clock = Clock()
    contest = Contest(clock)
    for _ in range(FREE_REPAIRS):
        contest.split("u", [deployment()])
    clock.now += 3600
    contest.split("u", [])
    assert contest.split("u", [deployment()])[0]


def test_the_others_are_named() -> None:
    entries = [{"manager": "firsttoken"}, {"manager": "hpa"}, {"manager": "kcm", "subresource": "status"}]
    assert managers({"metadata": {"managedFields": entries}}) == "hpa"
    assert "admission" in managers({"metadata": {}})
