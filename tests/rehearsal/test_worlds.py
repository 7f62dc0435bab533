"""World files: what they may say, and one line for each fault."""

from typing import Any

import pytest

from firsttoken.rehearsal.errors import WorldError
from firsttoken.rehearsal.world import World, read_world


def read(value: Any) -> World:
    return read_world(value, lambda _: "w.yaml")


def test_an_empty_world_has_defaults_and_kind_is_optional() -> None:
    assert read({}) == read({"kind": "World"})
    assert (read({}).duration, read({}).seed, read({}).nodes) == ("1h", 0, None)


def test_each_event_says_one_thing_under_its_own_name() -> None:
    found = read(
        {"events": [{"at": "1m", "losePods": {"count": 2}}, {"at": "90s", "traffic": {"rate": 2, "for": "1h"}}]}
    )
    assert [(e.name, e.seconds) for e in found.events] == [("losePods", 60.0), ("traffic", 90.0)]
    assert found.events[1].what.lasts == "1h"


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ([], "w.yaml: not a mapping: write fields such as duration and events"),
        ({"kind": "Pod"}, "w.yaml: kind is 'Pod': a world file has kind World or none"),
        ({"durration": "1h"}, "w.yaml: durration: unknown field"),
        ({"duration": "soon"}, "w.yaml: duration: not a duration: 'soon'; write a number of at most"),
        ({"duration": "0s"}, "w.yaml: duration: give some time, such as 10m"),
        ({"duration": "8d"}, "w.yaml: duration is more than 7d: give less"),
        ({"seed": -1}, "w.yaml: seed: Input should be greater than or equal to 0"),
        ({"nodes": [{"gpus": 0}]}, "w.yaml: nodes[0].gpus: Input should be greater than or equal to 1"),
        ({"nodes": [{}]}, "w.yaml: nodes[0].gpus: is missing"),
        ({"nodes": [{"gpus": 1}, {"gpus": 2}]}, "w.yaml: nodes: two groups have the same name"),
        ({"events": [{"losePods": {}}]}, "w.yaml: events[0].at: is missing"),
        ({"events": [{"at": "1m"}]}, "w.yaml: events[0]: says none: give `at` and one thing that happens"),
        (
            {"events": [{"at": "1m", "losePods": {}, "burst": {"requests": 1}}]},
            "w.yaml: events[0]: says burst, losePods: give `at` and one thing that happens",
        ),
        ({"events": [{"at": "1m", "traffic": {"rate": 0}}]}, "w.yaml: events[0].traffic.rate: Input should be greater"),
        (
            {"events": [{"at": "1m", "traffic": {"rate": "x"}}]},
            "w.yaml: events[0].traffic.rate: Input should be a valid",
        ),
        ({"events": [{"at": "1m", "explode": {}}]}, "w.yaml: events[0].explode: unknown field"),
        ({"events": [{"at": "1m", "badVersion": {}}]}, "w.yaml: events[0].badVersion: is not bad: give prefill"),
        (
            {"events": [{"at": "1m", "metricsOutage": {"for": "0s"}}]},
            "w.yaml: events[0].metricsOutage.for: give some time, such as 10m",
        ),
        (
            {"events": [{"at": "1m", "metricsOutage": None}]},
            "w.yaml: events[0]: says none: give `at` and one thing that happens",
        ),
    ],
)
def test_a_fault_is_one_line_with_its_place(value: Any, line: str) -> None:
    with pytest.raises(WorldError) as raised:
        read(value)
    assert str(raised.value).startswith(line)
    assert "\n" not in str(raised.value)


def test_several_faults_are_several_lines() -> None:
    with pytest.raises(WorldError) as raised:
        read({"seed": -1, "events": [{"at": "x", "burst": {"requests": 0}}]})
    assert [line.split(": ")[1] for line in str(raised.value).splitlines()] == [
        "seed",
        "events[0].at",
        "events[0].burst.requests",
    ]
