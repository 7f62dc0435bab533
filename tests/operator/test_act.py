"""Carrying a decision out: in order, again and again, and nothing told twice."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.operator.fake import FakeCluster

from firsttoken.reconcile import Decision, Event, Observation, Sync
from firsttoken.reconcile.objects import Ref
from firsttoken_operator.act import apply_objects, finish, merge_patch, sync_pods
from firsttoken_operator.cluster import ClusterError
from reconcile.world import NOW, World

REFUSED = ClusterError(422, "Invalid", "spec.x: wrong")


def obj(kind: str = "Service", name: str = "chat", **meta: Any) -> dict[str, Any]:
    version = "apps/v1" if kind == "Deployment" else "v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "apps", **meta}}


def observation() -> Observation:
    seen: Observation = World().observe()
    return seen


def act(cluster: FakeCluster, decision: Decision, seen: Observation | None = None) -> None:
    asyncio.run(finish(cluster, seen or observation(), decision))  # type: ignore[arg-type]


def test_objects_are_applied_in_order_and_refusals_are_returned_with_their_message() -> None:
    cluster = FakeCluster()
    cluster.fails["apply Service/b"] = REFUSED
    rejected = asyncio.run(apply_objects(cluster, [obj(name=n) for n in "cba"]))  # type: ignore[arg-type]
    assert cluster.writes() == ["apply Service/c", "apply Service/b", "apply Service/a"]
    assert rejected == {Ref("v1", "Service", "b"): "spec.x: wrong"}


@pytest.mark.parametrize("error", [ClusterError(503, "ServiceUnavailable", "later"), TimeoutError(), OSError()])
def test_what_may_pass_later_ends_the_pass_at_once(error: Exception) -> None:
    cluster = FakeCluster()
    cluster.fails["apply Service/b"] = error
    with pytest.raises(type(error)):
        asyncio.run(apply_objects(cluster, [obj(name=n) for n in "cba"]))  # type: ignore[arg-type]
    assert cluster.writes() == ["apply Service/c", "apply Service/b"]


def test_events_come_first_then_the_status_then_deletions() -> None:
    """A crash in between tells an event once more instead of never, and never deletes what the status still names."""
    cluster = FakeCluster(obj())
    act(cluster, Decision(status={"x": 1}, events=(Event("Normal", "R", "m"),), delete=(obj(uid="u"),)))
    verbs = [call.partition("/")[0] for call in cluster.writes()]
    assert verbs == ["create Event", "merge InferenceService", "delete Service"]
    assert cluster.writes()[1].endswith("chat/status")


def test_a_decision_without_writes_asks_nothing() -> None:
    cluster = FakeCluster()
    act(cluster, Decision())
    assert cluster.calls == []


def test_a_status_is_written_into_this_very_service_as_it_was_observed() -> None:
    written: list[Any] = []

    class Recorder(FakeCluster):
        async def merge(
            self, kind: Any, name: str, namespace: str, patch: Mapping[str, Any], subresource: str = ""
        ) -> Any:
            written.append((kind.kind, name, namespace, patch, subresource))
            return patch

    act(Recorder(), Decision(status={"x": 1}))
    ((kind, name, namespace, patch, subresource),) = written
    assert (kind, name, namespace, subresource) == ("InferenceService", "chat", "apps", "status")
    assert patch["metadata"] == {"uid": "uid-of-chat", "resourceVersion": "7"}
    assert set(patch) == {"metadata", "status"}, "never the spec (S6)"


def test_a_field_of_the_status_that_is_not_ours_to_keep_is_removed() -> None:
    old = {"revision": {"desired": "a", "canaryWeight": 50}, "layout": "x", "conditions": [1]}
    new = {"revision": {"desired": "a"}, "conditions": [1, 2]}
    assert merge_patch(old, new) == {"revision": {"canaryWeight": None}, "layout": None, "conditions": [1, 2]}
    assert merge_patch(new, new) == {}


def test_an_event_belongs_to_the_service_and_has_its_time_and_source() -> None:
    cluster = FakeCluster()
    act(cluster, Decision(events=(Event("Warning", "MissingGPUs", "Ready: " + "x" * 2000),)))
    ((_, event),) = cluster.objects.items()
    assert event["involvedObject"]["uid"] == "uid-of-chat"
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "MissingGPUs", 1)
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-05-01T12:00:00Z"
    assert len(event["message"]) == 1024


def test_an_event_told_again_in_a_repeated_pass_stays_one() -> None:
    cluster = FakeCluster()
    decision = Decision(events=(Event("Normal", "Serving", "Ready: it serves"),))
    act(cluster, decision)
    act(cluster, decision)
    ((_, event),) = cluster.objects.items()
    assert event["count"] == 1


def test_an_event_that_happens_again_is_counted_up() -> None:
    cluster = FakeCluster()
    decision = Decision(events=(Event("Normal", "Serving", "Ready: it serves"),))
    act(cluster, decision)
    later = replace(observation(), now=NOW.replace(hour=13))
    act(cluster, decision, later)
    ((_, event),) = cluster.objects.items()
    assert (event["count"], event["lastTimestamp"]) == (2, "2026-05-01T13:00:00Z")
    assert event["firstTimestamp"] == "2026-05-01T12:00:00Z"


def test_different_events_have_different_names_within_the_limit() -> None:
    cluster = FakeCluster()
    events = [Event(t, r, m) for t in ("Normal", "Warning") for r in ("A", "B") for m in ("x", "y")]
    act(cluster, Decision(events=tuple(events)))
    names = [name for _, name in cluster.objects]
    assert len(set(names)) == len(events)
    assert all(name.startswith("chat.") and len(name) <= len("chat.") + 16 for name in names)


def pod(name: str, **labels: str) -> dict[str, Any]:
    return obj("Pod", name, labels={f"firsttoken.dev/{k}": v for k, v in labels.items()})


def test_pods_of_a_changed_configuration_are_touched_and_no_others() -> None:
    cluster = FakeCluster(pod("a", service="chat", role="gateway"), pod("b", service="chat", role="serve"))
    sync = Sync({"firsttoken.dev/service": "chat", "firsttoken.dev/role": "gateway"}, "0a1b2c3d")
    asyncio.run(sync_pods(cluster, "apps", [sync]))  # type: ignore[arg-type]
    assert cluster.writes() == ["merge Pod/a"]
    assert cluster.objects["Pod", "a"]["metadata"]["annotations"] == {"firsttoken.dev/sync": "0a1b2c3d"}


def test_a_pod_that_went_in_between_needs_no_sync() -> None:
    cluster = FakeCluster(pod("a", role="x"), pod("b", role="x"))
    cluster.fails["merge Pod/a"] = ClusterError(404, "NotFound", "gone")
    asyncio.run(sync_pods(cluster, "apps", [Sync({"firsttoken.dev/role": "x"}, "c")]))  # type: ignore[arg-type]
    assert cluster.writes() == ["merge Pod/a", "merge Pod/b"]
    cluster.fails["merge Pod/a"] = ClusterError(500, "InternalError", "x")
    with pytest.raises(ClusterError):
        asyncio.run(sync_pods(cluster, "apps", [Sync({"firsttoken.dev/role": "x"}, "c")]))  # type: ignore[arg-type]


MEASURED = {**obj("InferenceRevision", "chat-1", uid="u"), "status": {"calibration": []}}


@pytest.mark.parametrize(
    "error",
    [
        ClusterError(403, "Forbidden", "may not patch"),
        ClusterError(404, "NotFound", "gone"),
        ClusterError(409, "Conflict", "another uid"),
        ClusterError(422, "Invalid", "an older definition"),
    ],
)
def test_a_calibration_that_can_t_be_written_is_no_reason_to_leave_the_rest(error: ClusterError) -> None:
    cluster = FakeCluster()
    cluster.fails["apply InferenceRevision/chat-1/status"] = error
    act(cluster, Decision(calibrate=(MEASURED,), status={"x": 1}))
    assert cluster.writes() == ["apply InferenceRevision/chat-1/status", "merge InferenceService/chat/status"]


def test_a_calibration_is_tried_again_when_that_may_help() -> None:
    cluster = FakeCluster()
    cluster.fails["apply InferenceRevision/chat-1/status"] = ClusterError(503, "ServiceUnavailable", "later")
    with pytest.raises(ClusterError):
        act(cluster, Decision(calibrate=(MEASURED,), status={"x": 1}))
    assert cluster.writes() == ["apply InferenceRevision/chat-1/status"]
