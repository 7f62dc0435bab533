"""What is rendered is valid: for kubeconform with the API server's own schemas, and for the API server itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from e2e.support import EXAMPLES, Space

from firsttoken_local.cluster import LocalCluster

REPOSITORY = Path(__file__).parent.parent
FILES = sorted(EXAMPLES.glob("*.yaml"))


def rendered(path: Path) -> str:
    """What `firsttoken render` prints."""
    command = [sys.executable, "-m", "firsttoken_operator.cli", "render", "-f", str(path), "--serving"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_rendered_objects_pass_kubeconform_and_the_api_server(space: Space, path: Path) -> None:
    text = rendered(path)
    conformance = space.cluster.kubeconform(text)
    assert conformance.problems == ()
    assert conformance.valid >= 10
    documents = [d for d in yaml.safe_load_all(text) if d]
    for document in documents:
        document["metadata"]["namespace"] = space.name
    space.cluster.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
        stdin=yaml.safe_dump_all(documents),
    )


def test_kubeconform_finds_a_typing_error(cluster: LocalCluster) -> None:
    """The check above can fail."""
    text = rendered(EXAMPLES / "chat.yaml").replace("terminationGracePeriodSeconds:", "terminationGracePeriod:")
    assert cluster.kubeconform(text).problems


@pytest.mark.parametrize("path", [REPOSITORY / "crds", EXAMPLES], ids=lambda p: p.name)
def test_crds_and_examples_pass_kubeconform(cluster: LocalCluster, path: Path) -> None:
    """Files of the folder itself, as `kubectl apply -f` takes them: worlds of rehearsals lie below it."""
    files = sorted(path.glob("*.yaml"))
    conformance = cluster.kubeconform(files)
    assert conformance.problems == ()
    assert conformance.valid == len(files)
