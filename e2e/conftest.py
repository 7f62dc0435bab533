"""One real control plane and one operator for all end-to-end tests; a namespace for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.support import GROUP, Space, unique

from firsttoken_local.cluster import LocalCluster, ephemeral_cluster
from firsttoken_local.operator import ACCELERATORS, NAME, start_operator
from firsttoken_local.progress import Printed
from firsttoken_local.waiting import wait_for

# They need root, or packages that only a machine with root makes, so they run when they are named.
BY_NAME = tuple(Path(__file__).parent / name for name in ("node", "real", "engine"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the tests on a real node or engine out of a run that did not name them."""
    named = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    unnamed = [folder for folder in BY_NAME if not any(one.is_relative_to(folder) for one in named)]
    return True if any(collection_path.is_relative_to(folder) for folder in unnamed) else None


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """etcd, kube-apiserver, controllers, scheduler, KWOK with four nodes of 8 A100-40, Prometheus."""
    with ephemeral_cluster(manifests=[ACCELERATORS], progress=Printed()) as started:
        yield started


@pytest.fixture(scope="session")
def operator(cluster: LocalCluster) -> LocalCluster:
    """The cluster with the operator running beside it."""
    start_operator(cluster)
    return cluster


@pytest.fixture
def space(operator: LocalCluster, request: pytest.FixtureRequest) -> Iterator[Space]:
    """A namespace; afterwards its services are deleted and their pods gone, so that GPUs are free again."""
    name = unique("t")
    operator.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, field_manager="test")
    yield Space(operator, name)
    if getattr(request.node, "failed", False):
        print(operator.processes.log(NAME).read_text()[-6000:])
    operator.kubectl("-n", name, "delete", "inferenceservices", "--all", "--wait=false")

    def empty() -> bool:
        left: list[Any] = operator.client.list(GROUP, "InferenceService", namespace=name)
        return not left and not operator.client.list("v1", "Pod", namespace=name)

    wait_for(f"pods of {name} to be gone", empty, timeout_s=60.0)
    operator.kubectl("delete", "namespace", name, "--wait=false")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:  # noqa: ARG001 - pytest's hook
    """Remember on the test whether it failed, also in a fixture, for the fixtures' clean-up."""
    report = yield
    if report.failed:
        item.failed = True  # type: ignore[attr-defined]
    return report
