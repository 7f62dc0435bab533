"""The Lease without a cluster: what one process does with it. Several of them are in e2e/test_leadership.py."""

import asyncio
from itertools import islice
from typing import Any

import kopf
import pytest
from tests.operator.fake import FakeCluster

from firsttoken_operator import leadership
from firsttoken_operator.cluster import ClusterError
from firsttoken_operator.handlers import configure
from firsttoken_operator.leadership import MOST_TRANSITIONS, Candidacy, lead


class Cluster(FakeCluster):
    """With `replace`, which only Leases use."""

    async def replace(self, obj: Any) -> Any:
        """Replace."""
        self._called("replace", obj["kind"], obj["metadata"]["name"])
        self.objects[obj["kind"], obj["metadata"]["name"]] = obj
        return obj


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(leadership, "STOP_SECONDS", 0.05)


def candidacy(cluster: FakeCluster) -> Candidacy:
    return Candidacy(cluster, "lease", "default", "me")  # type: ignore[arg-type]


def holder(cluster: FakeCluster) -> Any:
    return cluster.objects["Lease", "lease"]["spec"]["holderIdentity"]


def test_K1_work_that_is_dead_and_does_not_end_gives_the_lease_back() -> None:
    """kopf can be left hanging by its own failure: the process lives, renews, and nobody works."""
    cluster = Cluster()
    dead: list[str] = []
    cancelled: list[bool] = []
    over = False

    async def work() -> None:
        dead.append("9 of 9 workers have ended")
        while not over:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                cancelled.append(True)  # and does not end

    async def run() -> bool:
        nonlocal over
        led = await lead(candidacy(cluster), work, lambda: dead)
        over = True
        return led

    assert asyncio.run(run()) is False
    assert cancelled
    assert holder(cluster) == ""


def test_faults_that_pass_end_nothing() -> None:
    cluster, said = Cluster(), iter([["for a moment"], []])

    async def work() -> None:
        await asyncio.sleep(0.2)

    assert asyncio.run(lead(candidacy(cluster), work, lambda: next(said, []))) is True


def test_a_lease_that_can_not_be_had_is_a_fault_of_readiness_until_it_can() -> None:
    cluster, one = Cluster(), None
    one = candidacy(cluster)
    cluster.fails["get Lease/lease"] = ClusterError(403, "Forbidden", "leases is forbidden")
    assert asyncio.run(one.try_to_hold()) is False
    assert "leases is forbidden" in one.fault
    cluster.fails.clear()
    assert asyncio.run(one.try_to_hold()) is True
    assert one.fault == ""
    other = Candidacy(cluster, "lease", "default", "other")  # type: ignore[arg-type]
    assert asyncio.run(other.try_to_hold()) is False
    assert other.fault == "", "it is somebody else's turn"


@pytest.mark.parametrize("transitions", [MOST_TRANSITIONS, 0, None])
def test_a_count_that_somebody_filled_stops_no_election(transitions: int | None) -> None:
    lease = {"kind": "Lease", "metadata": {"name": "lease"}, "spec": {"leaseTransitions": transitions}}
    cluster = Cluster(lease)
    assert asyncio.run(candidacy(cluster).try_to_hold())
    assert 0 < cluster.objects["Lease", "lease"]["spec"]["leaseTransitions"] <= MOST_TRANSITIONS


def test_H1_with_several_namespaces_a_watch_that_is_refused_is_tried_again_for_ever() -> None:
    several, one = kopf.OperatorSettings(), kopf.OperatorSettings()
    configure(several, ["a", "b"])
    configure(one, ["a"])
    assert len(list(islice(several.networking.error_backoffs, 1000))) == 1000  # type: ignore[arg-type]
    assert len(list(islice(one.networking.error_backoffs, 1000))) < 20  # type: ignore[arg-type]
