"""The cluster with a real node. It needs root, so these tests run when they are named: ``pytest e2e/node``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e.node.support import Namespace, Traces, traces
from e2e.support import unique

from firsttoken_local.cluster import LocalCluster, ephemeral_cluster
from firsttoken_local.node.realnode import RealNode
from firsttoken_local.progress import Printed


@pytest.fixture(scope="module")
def before() -> Traces:
    """What the machine looks like without the node."""
    return traces()


@pytest.fixture(scope="module")
def cluster(before: Traces) -> Iterator[LocalCluster]:
    """A control plane, two fake GPU nodes and the real node."""
    assert not before.processes, "another real node runs on this machine"
    with ephemeral_cluster(nodes=2, prometheus=False, real_node=True, progress=Printed()) as started:
        yield started


@pytest.fixture(scope="module")
def node(cluster: LocalCluster) -> RealNode:
    """The real node."""
    assert cluster.node is not None
    return cluster.node


@pytest.fixture
def namespace(cluster: LocalCluster) -> Iterator[Namespace]:
    """A namespace of the test's own."""
    name = unique("n")
    cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    cluster.client.wait("v1", "ServiceAccount", "default", bool, namespace=name)
    yield Namespace(cluster, name)
    cluster.kubectl("delete", "namespace", name, "--wait=false")
