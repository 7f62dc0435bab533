"""`status` as a command: exit codes, forms, watching. The cluster is a fake."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cli import samples
from cli.conftest import Run
from cli.fake_cluster import FakeCluster
from firsttoken_operator.cli import asking, online
from firsttoken_operator.cluster import ClusterError


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeCluster], FakeCluster]:
    """`cluster(FakeCluster(...))` is the one that commands find."""
    monkeypatch.setattr(asking, "default_namespace", lambda _: "serving")
    monkeypatch.setattr(online, "LOOK_AGAIN_SECONDS", 0.0)

    def use(fake: FakeCluster) -> FakeCluster:
        @asynccontextmanager
        async def connected(_: asking.Access) -> AsyncIterator[FakeCluster]:
            yield fake

        monkeypatch.setattr(asking, "connected", connected)
        return fake

    return use


Use = Callable[[FakeCluster], FakeCluster]


def test_ready_is_0_not_ready_is_1_and_no_such_service_is_1(cli: Run, cluster: Use) -> None:
    cluster(FakeCluster())
    assert cli("status", "kb-assistant").code == 0
    assert cli("status").code == 0
    assert cli("status", "-A").out.startswith("NAMESPACE ")
    cluster(FakeCluster(InferenceService=samples.stored(None)))
    assert cli("status", "kb-assistant").code == 1
    assert cli("status").code == 1
    cluster(FakeCluster(InferenceService=None, listed=[]))
    result = cli("status", "kb-assistant")
    assert (result.code, result.out, len(result.err.splitlines())) == (1, "", 1)
    result = cli("status")
    assert (result.code, result.out, len(result.err.splitlines())) == (0, "", 1)


def test_a_namespace_that_is_not_there_is_a_no_and_one_we_may_not_look_at_counts_as_there(
    cli: Run, cluster: Use
) -> None:
    cluster(FakeCluster(InferenceService=None, listed=[], Namespace=None))
    result = cli("status")
    assert (result.code, result.out) == (1, "")
    assert result.err == "firsttoken: there is no namespace serving; `status -A` looks in all\n"
    cluster(FakeCluster(InferenceService=None, listed=[], Namespace=ClusterError(403, "Forbidden", "no")))
    assert cli("status").code == 0
    assert cli("status", "-A").code == 0


def test_json_of_one_is_an_object_and_of_all_a_list(cli: Run, cluster: Use) -> None:
    cluster(FakeCluster())
    assert json.loads(cli("status", "kb-assistant", "-o", "json").out)["ready"] is True
    assert [r["name"] for r in json.loads(cli("status", "-o", "json").out)] == ["kb-assistant"]


class Changing(FakeCluster):
    """Answers a request for the service with the next of several; exceptions are raised."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.next = list(answers)

    def _answer(self, kind: Any) -> Any:
        if kind.kind == "InferenceService":
            self.answers[kind.kind] = self.next.pop(0)
        return super()._answer(kind)


@pytest.mark.parametrize("form", ["text", "json"])
def test_watching_tells_changes_outlives_a_restart_of_the_server_and_ends_with_the_service(
    cli: Run, cluster: Use, form: str
) -> None:
    waiting, ready = samples.stored(None), samples.stored(samples.ready_status())
    # None twice: the second look is for the list of services, which tells "gone" from "unknown kind".
    cluster(Changing(waiting, waiting, ConnectionRefusedError(111, "refused"), ready, ready, None, []))
    result = cli("status", "kb-assistant", "--watch", "-o", form)
    assert result.code == 1
    refused, gone = result.err.splitlines()
    assert refused.endswith("trying again")
    assert gone.endswith("is gone")
    if form == "json":
        assert [json.loads(line)["ready"] for line in result.out.splitlines()] == [False, True]
    else:
        told = [line.split(" ", 1)[1] for line in result.out.splitlines() if " Ready: " in line]
        assert len(told) == 1
        assert told[0].startswith("Ready: Serving: revision")
