"""A repository to commit to, and nodes that can be closed to new pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from e2e.support import Object

from firsttoken_local.cluster import LocalCluster


@dataclass(frozen=True)
class Repository:
    """The folder that the controller reads; each file changes at once, as in a checkout."""

    folder: Path

    def commit(self, name: str, *objects: Object) -> None:
        """Write a file of one or more documents."""
        draft = self.folder.parent / f"{name}.draft"
        draft.write_text(yaml.safe_dump_all(objects))
        draft.replace(self.folder / f"{name}.yaml")

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self.folder / f"{name}.yaml").unlink()


@dataclass(frozen=True)
class Nodes:
    """All nodes: while they are closed new pods wait, as for GPUs that a cloud still has to bring."""

    cluster: LocalCluster

    def close(self) -> None:
        """Let nothing be scheduled."""
        self.cluster.kubectl("cordon", *self._names())

    def open(self) -> None:
        """Let pods be scheduled again."""
        self.cluster.kubectl("uncordon", *self._names())

    def _names(self) -> list[str]:
        return [n["metadata"]["name"] for n in self.cluster.client.list("v1", "Node")]


@pytest.fixture
def git(tmp_path: Path) -> Repository:
    """An empty repository."""
    (tmp_path / "models").mkdir()
    return Repository(tmp_path / "models")


@pytest.fixture
def nodes(operator: LocalCluster) -> Iterator[Nodes]:
    """The nodes; open again afterwards."""
    nodes = Nodes(operator)
    yield nodes
    nodes.open()
