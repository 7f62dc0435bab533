"""What `status` asks the API server for, and what it says when that answers oddly or not at all."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cli.fake_cluster import FakeCluster
from firsttoken_operator.cli import asking
from firsttoken_operator.cli.errors import Unreachable
from firsttoken_operator.cluster import ClusterError


def one(**answers: Any) -> Any:
    return asyncio.run(asking.one(FakeCluster(**answers), "serving", "kb-assistant"))  # type: ignore[arg-type]


def every(**answers: Any) -> Any:
    return asyncio.run(asking.every(FakeCluster(**answers), "serving"))  # type: ignore[arg-type]


def test_everything_is_fetched() -> None:
    seen = one()
    assert seen.ready
    assert seen.revisions[0].why == "first revision"
    assert [e.reason for e in seen.events] == ["Serving"]
    assert [r.name for r in every()] == ["kb-assistant"]


def test_no_such_service_and_no_such_kind_are_told_apart() -> None:
    empty = FakeCluster(InferenceService=None, listed=[])
    assert asyncio.run(asking.one(empty, "serving", "kb-assistant")) is None  # type: ignore[arg-type]
    for ask in (one, every):
        with pytest.raises(Unreachable, match="install Firsttoken's CRDs"):
            ask(InferenceService=None)


def test_what_may_not_be_seen_is_a_note_and_the_rest_is_shown() -> None:
    forbidden = ClusterError(403, "Forbidden", "events is forbidden")
    seen = one(Event=forbidden)
    assert seen.ready
    assert seen.events == ()
    assert seen.notes == (
        "events can't be shown: you may not look at this (403): events is forbidden; ask for the right to read it",
    )


@pytest.mark.parametrize("ask", [one, every])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ClusterError(401, "Unauthorized", "no"), "doesn't know you"),
        (ClusterError(403, "Forbidden", "no"), "you may not look at this"),
        (ClusterError(500, "InternalError", "etcd is away"), "etcd is away"),
        (TimeoutError(), "does not answer in time"),
        (ConnectionRefusedError(111, "Connection refused"), "can't be reached"),
    ],
)
def test_every_trouble_with_the_server_is_one_sentence(ask: Callable[..., Any], error: Exception, said: str) -> None:
    with pytest.raises(Unreachable, match=said):
        ask(InferenceService=error)
