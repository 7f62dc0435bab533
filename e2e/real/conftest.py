"""The chart, installed on a real node as users install it. It needs root, so these tests run when they are named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest
from e2e.real.support import Installed

from firsttoken_local.cluster import LocalCluster, ephemeral_cluster, up
from firsttoken_local.installation import import_images, install
from firsttoken_local.progress import Printed


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    """A cluster of one real node without anything of ours, then images and `helm install`.

    With FIRSTTOKEN_CLUSTER=NAME it is the cluster of that name, which is started if need be and left up.
    """
    told = Printed()
    with _cluster(told) as cluster:
        import_images(cluster, told)
        notes = install(cluster, told=told)
        yield Installed(cluster, notes)


def _cluster(told: Printed) -> AbstractContextManager[LocalCluster]:
    if name := os.environ.get("FIRSTTOKEN_CLUSTER"):
        return nullcontext(up(name, nodes=0, real_node=True, definitions=False, progress=told))
    return ephemeral_cluster(nodes=0, real_node=True, definitions=False, progress=told)


@pytest.fixture(autouse=True)
def say_why(installed: Installed, request: pytest.FixtureRequest) -> Iterator[None]:
    """After a failure, print the pods and the ends of their logs."""
    yield
    if getattr(request.node, "failed", False):
        print(installed.report())


@pytest.fixture(scope="module")
def served(installed: Installed) -> Installed:
    """examples/cpu-tiny.yaml, applied by kubectl and Ready."""
    installed.apply_example()
    installed.wait_ready()
    return installed
