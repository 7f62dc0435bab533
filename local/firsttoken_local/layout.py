"""Where the files of one cluster lie, and what is remembered of it between commands."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from firsttoken_local.errors import LocalError
from firsttoken_local.node.network import NodeNetwork

REPOSITORY = Path(__file__).parents[2]
CLUSTERS = REPOSITORY / ".cluster"
PORT_NAMES = ("apiserver", "etcd", "etcd-peer", "controller-manager", "scheduler", "kwok", "prometheus", "player")


def cluster_folder(name: str) -> Path:
    """Return the state directory of a named cluster.

    Raises:
        LocalError: the name would leave the folder of clusters.
    """
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?", name):
        raise LocalError(f"{name!r} is no cluster name: use lower-case letters, digits and hyphens")
    return CLUSTERS / name


@dataclass(frozen=True)
class Layout:
    """The paths below one state directory, and the ports and (with a real node) the addresses chosen for it.

    Without ``definitions`` the cluster is left to a ``helm install``, which brings definitions and operator. With
    ``played`` the pods of services on its fake nodes answer (:mod:`firsttoken_local.player`).
    """

    directory: Path
    ports: dict[str, int]
    network: NodeNetwork | None = None
    definitions: bool = True
    played: bool = False

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.directory / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig: user ``admin``, group ``system:masters``."""
        return self.directory / "admin.kubeconfig"

    def user_kubeconfig(self, user: str) -> Path:
        """The kubeconfig of another user."""
        return self.directory / "users" / f"{user.replace(':', '-')}.kubeconfig"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log: one JSON object a line, writes only."""
        return self.directory / "audit.log"

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://127.0.0.1:{self.ports['apiserver']}"

    @property
    def values(self) -> Path:
        """The chart's values that name the images which were imported into the real node."""
        return self.directory / "values.yaml"

    @property
    def schemas(self) -> Path:
        """JSON schemas of all kinds that the API server serves."""
        return self.directory / "schemas"

    @property
    def prometheus(self) -> Path:
        """Prometheus' configuration, targets, rules and data."""
        return self.directory / "prometheus"

    def save(self) -> None:
        """Write down what was chosen."""
        self.directory.mkdir(parents=True, exist_ok=True)
        network = asdict(self.network) if self.network else None
        chosen = {"ports": self.ports, "network": network, "definitions": self.definitions}
        chosen["played"] = self.played
        (self.directory / "state.json").write_text(json.dumps(chosen, indent=1) + "\n")


def cluster_names() -> list[str]:
    """Return the names of the clusters that were started and not yet taken down."""
    return sorted(path.name for path in CLUSTERS.glob("*") if path.is_dir())


def load_layout(directory: Path) -> Layout | None:
    """Return the layout of a cluster that was started before, or None."""
    try:
        chosen = json.loads((directory / "state.json").read_text())
        ports, network = chosen["ports"], chosen.get("network")
        numbers = {name: int(ports[name]) for name in PORT_NAMES}
        known = NodeNetwork(**network) if network else None
        return Layout(directory, numbers, known, bool(chosen.get("definitions", True)), bool(chosen.get("played")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
