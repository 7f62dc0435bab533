"""Nothing of a real node is left: after `down`, after a crash of everything, after half a start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.node.support import Traces, kill_everything, pod, ready, traces

from firsttoken_local.cluster import LocalCluster, down, ephemeral_cluster, up
from firsttoken_local.node.host import connected
from firsttoken_local.node.registration import registered
from firsttoken_local.processes import ProcessTable
from firsttoken_local.progress import Printed
from firsttoken_local.waiting import wait_for

DOWN_S = 15.0  # how long `down` may take
ROOT = str(Path(__file__).parents[2] / "local")
HALF = """
import sys
from pathlib import Path
from firsttoken_local.cluster import up
up(directory=Path(sys.argv[1]), nodes=1, prometheus=False, real_node=True)
"""
OWNER = """
import time
from firsttoken_local.cluster import ephemeral_cluster
with ephemeral_cluster(nodes=1, prometheus=False, real_node=True) as started:
    print(started.directory, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def clean() -> Iterator[Traces]:
    """What the machine looked like before; afterwards it must look the same."""
    before = traces()
    assert not before.processes, "another real node runs on this machine"
    yield before
    wait_for("the machine to look as before", lambda: not traces().added(before) or None, timeout_s=5.0)


def run_pod(cluster: LocalCluster) -> None:
    """Have a pod with a volume of its own run on the node."""
    mounts = {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    volumes = [{"name": "scratch", "emptyDir": {"medium": "Memory"}}]
    obj = pod("left", "sleep", "infinity", container=mounts, volumes=volumes)
    cluster.client.apply({**obj, "metadata": {**obj["metadata"], "namespace": "default"}})
    cluster.client.wait("v1", "Pod", "left", ready, timeout_s=60.0)


def timed_down(directory: Path) -> None:
    started = time.monotonic()
    assert down(directory=directory)
    took = time.monotonic() - started
    print(f"down took {took:.1f} s")
    assert took < DOWN_S
    assert not down(directory=directory)  # a second time there is nothing to do
    assert not directory.exists()


def test_down_leaves_nothing(clean: Traces, tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    try:
        cluster = up(directory=directory, nodes=1, prometheus=False, real_node=True, progress=Printed())
        run_pod(cluster)
        changed = traces().added(clean)
        assert {"links", "routes", "rules", "cgroups", "processes"} <= set(changed)
        assert "mounts" not in changed  # they are in the node's own namespace
    finally:
        timed_down(directory)
    assert traces().added(clean) == {}


def test_down_after_everything_was_killed(clean: Traces, tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    try:
        run_pod(up(directory=directory, nodes=1, prometheus=False, real_node=True))
        assert kill_everything(directory) > 4
    finally:
        timed_down(directory)
    assert traces().added(clean) == {}


def test_node_of_a_deleted_state_directory_is_removed(clean: Traces, tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    try:
        up(directory=directory, nodes=1, prometheus=False, real_node=True)
        kill_everything(directory)
        ended = ProcessTable(directory).marked
        wait_for("what was killed to be gone", lambda: not ended(), timeout_s=30.0)
        directory.rename(tmp_path / "elsewhere")
    finally:
        assert not down(directory=directory)
    assert traces().added(clean) == {}


@pytest.mark.parametrize("moment", ["registered", "connected"])
def test_down_after_half_a_start(clean: Traces, tmp_path: Path, moment: str) -> None:
    directory = tmp_path / "cluster"
    environment = {**os.environ, "PYTHONPATH": ROOT}
    reached = {"registered": lambda: registered() is not None, "connected": connected}[moment]
    with subprocess.Popen([sys.executable, "-c", HALF, str(directory)], env=environment) as starter:
        try:
            wait_for(moment, reached, timeout_s=60.0, interval_s=0.001)
        finally:
            starter.kill()
    timed_down(directory)
    assert traces().added(clean) == {}


def test_guard_cleans_up_after_a_killed_owner(clean: Traces) -> None:
    environment = {**os.environ, "PYTHONPATH": ROOT}
    argv = [sys.executable, "-c", OWNER]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        directory = Path(owner.stdout.readline().strip())
        assert directory.is_dir()
        owner.kill()
    wait_for("the guard's work", lambda: not directory.parent.exists(), timeout_s=30.0)
    assert traces().added(clean) == {}


def test_block_of_an_ephemeral_cluster_leaves_nothing(clean: Traces) -> None:
    def fail(cluster: LocalCluster) -> None:
        run_pod(cluster)
        raise RuntimeError("a test that fails")

    with pytest.raises(RuntimeError), ephemeral_cluster(nodes=1, prometheus=False, real_node=True) as cluster:
        fail(cluster)
    assert traces().added(clean) == {}
