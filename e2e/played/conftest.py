"""A cluster whose pods are played, with the operator and one service; skipped where namespaces are not allowed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from e2e.support import GROUP, observed

from firsttoken_local.cluster import LocalCluster, ephemeral_cluster
from firsttoken_local.demo import EXAMPLE
from firsttoken_local.operator import ACCELERATORS, start_operator
from firsttoken_local.player.start import obstacle
from firsttoken_local.progress import Printed
from firsttoken_local.story import is_ready

SERVICE = "kb-assistant"


@pytest.fixture(scope="module")
def played() -> Iterator[LocalCluster]:
    """The cluster, with ``examples/kb-assistant.yaml`` Ready: two engines behind vllm-router and Envoy."""
    if why := obstacle():
        pytest.skip(f"pods can't be played: {why}")
    with ephemeral_cluster(manifests=[ACCELERATORS], play=True, progress=Printed()) as cluster:
        start_operator(cluster)
        cluster.client.apply(yaml.safe_load(EXAMPLE.read_text()), field_manager="test")
        cluster.client.wait(GROUP, "InferenceService", SERVICE, lambda s: is_ready(s) and observed(s), timeout_s=240.0)
        yield cluster
