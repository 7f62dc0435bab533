"""Several replicas of the operator, one of which works (S24, K7)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from e2e.support import Space, inference_service

from firsttoken_local.operator import NAME, start_operator
from firsttoken_operator.leadership import LEASE_SECONDS, RETRY_SECONDS

REPLICAS = ("operator-a", "operator-b")
LEASE = "e2e-leadership"


@pytest.fixture
def replicas(space: Space) -> Iterator[Space]:
    """Two replicas that run for one Lease, instead of the operator of the other tests."""
    cluster = space.cluster
    cluster.processes.stop([NAME])
    try:
        for name in REPLICAS:
            start_operator(cluster, name, "--leader-elect", "--leader-election-id", LEASE)
        yield space
    finally:
        cluster.processes.stop(REPLICAS)
        for name in REPLICAS:
            if cluster.prometheus is not None:
                cluster.prometheus.remove_target(name)
        start_operator(cluster)


def leader(space: Space) -> str:
    """The replica whose log said last that it leads; the Lease must name its identity."""

    def found() -> str | None:
        lease = space.cluster.client.get("coordination.k8s.io/v1", "Lease", LEASE, "default")
        holder = lease["spec"].get("holderIdentity") if lease else None
        for name in REPLICAS:
            text = space.cluster.processes.log(name).read_text()
            if holder and f"{holder} leads" in text and space.cluster.processes.alive(name):
                return name
        return None

    return str(space.wait("a living leader", found, timeout_s=40.0))


def test_S24_K7_one_replica_works_and_a_standby_takes_over_when_it_is_killed(replicas: Space) -> None:
    space = replicas
    first = leader(space)
    other = next(name for name in REPLICAS if name != first)
    space.apply(inference_service("led"))
    space.wait_ready("led")
    assert "applying" not in space.cluster.processes.log(other).read_text(), "the standby writes nothing"

    killed = time.monotonic()
    space.cluster.processes.stop([first], grace_s=0.0)
    space.apply(inference_service("led", accelerator={"maxCount": 4}))
    space.wait("four replicas", lambda: space.service("led")["status"].get("readyReplicas") == 4)
    assert leader(space) == other
    # The bound is the design's (lease plus one retry), not a wish about this machine's speed.
    assert time.monotonic() - killed < LEASE_SECONDS + RETRY_SECONDS + 20


def test_a_leader_told_to_stop_hands_over_at_once(replicas: Space) -> None:
    space = replicas
    first = leader(space)
    record = space.cluster.processes.record(first)
    assert record is not None
    os.kill(record.pid, signal.SIGTERM)
    space.wait("the leader to end", lambda: not space.cluster.processes.alive(first))
    space.apply(inference_service("handed"))
    space.wait_ready("handed")
    log = space.cluster.processes.log(first).read_text()
    assert "Traceback" not in log
    assert "could not be given back" not in log


def test_a_leader_without_its_lease_stops_working(replicas: Space) -> None:
    """Somebody else holds the Lease: the process ends, so that two never work at once."""
    space = replicas
    first = leader(space)
    lease = space.cluster.client.get("coordination.k8s.io/v1", "Lease", LEASE, "default")
    assert lease is not None
    stolen = {"spec": {"holderIdentity": "somebody-else", "renewTime": "2100-01-01T00:00:00.000000Z"}}
    space.cluster.kubectl("patch", "lease", LEASE, "--type=merge", "-p", str(stolen).replace("'", '"'))
    space.wait("the leader to end", lambda: not space.cluster.processes.alive(first), timeout_s=60.0)
