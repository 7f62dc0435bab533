"""The real node of a running cluster: its start, its images, its processes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from firsttoken_local.builds import locked
from firsttoken_local.commands import finished
from firsttoken_local.controlplane import POD_CIDR, SERVICE_CIDR
from firsttoken_local.errors import LocalError, log_tails
from firsttoken_local.fakenodes import await_nodes
from firsttoken_local.kube import KubeClient, Object
from firsttoken_local.layout import Layout
from firsttoken_local.node import NAME, PROCESS, cgroups, config, host
from firsttoken_local.node.helpers import helper_images
from firsttoken_local.node.images import described
from firsttoken_local.node.network import NodeNetwork, choose_network, machine_networks
from firsttoken_local.node.paths import NodePaths
from firsttoken_local.node.registration import LOCK, Registration, claim, note
from firsttoken_local.node.requirements import command, search_path
from firsttoken_local.node.teardown import in_use, release
from firsttoken_local.processes import ProcessTable
from firsttoken_local.waiting import wait_for

DAEMONS = ("containerd", "kubelet", "kube-proxy", "coredns")
IMAGES_NAMESPACE = "k8s.io"  # containerd's, where the kubelet looks
READY_S = 90.0


def with_network(layout: Layout) -> Layout:
    """Choose the addresses of a real node; a cluster that runs already keeps its ranges of pods and Services.

    Raises:
        LocalError: no range is free, or those of the running cluster are in use.
    """
    if layout.network:
        return layout
    network = choose_network(machine_networks())
    if layout.kubeconfig.exists() and (network.services, network.pods) != (SERVICE_CIDR, POD_CIDR):
        raise LocalError("the cluster's addresses are in use on this machine: run `down`, then `up` with a real node")
    return replace(layout, network=network)


def start_node(layout: Layout, processes: ProcessTable, binaries: dict[str, Path]) -> RealNode | None:
    """Start the real node of a cluster that has one; see :meth:`RealNode.start`."""
    if layout.network is None:
        return None
    node = RealNode(layout, processes, binaries)
    node.start()
    return node


class RealNode:
    """A node that runs pods: :meth:`start`, then :meth:`join`, then :meth:`await_ready`."""

    def __init__(self, layout: Layout, processes: ProcessTable, binaries: dict[str, Path]) -> None:
        if layout.network is None:
            raise LocalError("this cluster was started without a real node")
        self.name = NAME
        self.network: NodeNetwork = layout.network
        self.paths = NodePaths(layout.directory / "node")
        self._layout = layout
        self._processes = processes
        self._binaries = binaries
        self._helpers: Future[None] | None = None

    @property
    def logs(self) -> list[Path]:
        """The logs of the node's processes."""
        return [self._processes.log(name) for name in (PROCESS, *DAEMONS)]

    def start(self) -> None:
        """Start the node, or leave a running one as it is, and begin to import the helper images.

        Raises:
            LocalError: another cluster has the machine's real node, or a command failed.
        """
        self.paths.check_length()
        with locked(LOCK):
            mine = claim(self._layout.directory, in_use, release)
            self._prepare_machine(mine)
        config.write_config(self._layout, self.paths)
        specification = self.paths.config / "node.json"
        text = json.dumps(config.specification(self._layout, self.paths, self._binaries))
        specification.write_text(text)
        isolated = ["--mount", "--pid", "--net", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
        program = [sys.executable, "-I", "-S", str(Path(__file__).with_name("init.py")), str(specification)]
        program.append(hashlib.sha256(text.encode()).hexdigest()[:12])  # another specification restarts the node
        argv = [command("unshare"), *isolated, "--propagation", "slave", *program]
        path = os.pathsep.join([str(self._binaries["containerd"]), search_path()])
        if not host.connected():
            self._processes.stop([PROCESS])  # its link was removed: it would reach nothing
        if self._processes.start(PROCESS, argv, {"PATH": path}):
            host.connect(self.network, self._await_namespace())
        host.redirect(self.network, self._layout.ports["apiserver"])
        executor = ThreadPoolExecutor(1, thread_name_prefix="node-images")
        self._helpers = executor.submit(self._import_helpers)
        executor.shutdown(wait=False)

    def _prepare_machine(self, mine: Registration) -> None:
        """Make what is needed outside the state directory; what is made is written down first."""
        folders = [str(one) for path in config.BUILT_IN for one in reversed([Path(path), *Path(path).parents])]
        absent = [one for one in folders if not Path(one).exists()]
        note(mine, forwarding=host.FORWARDING.read_text().strip(), folders=absent)
        for folder in absent:
            Path(folder).mkdir(exist_ok=True)
        cgroups.make_cgroup()

    def _await_namespace(self) -> int:
        """Return the process id of ``unshare`` as soon as it has a network namespace of its own."""
        own = Path("/proc/self/ns/net").readlink()
        record = self._processes.record(PROCESS)
        pid = record.pid if record else 0

        def separate() -> bool:
            self._processes.check(PROCESS)
            return Path(f"/proc/{pid}/ns/net").readlink() != own

        wait_for("the node's namespaces", separate, timeout_s=30.0, logs=self.logs, interval_s=0.01)
        return pid

    def _import_helpers(self) -> None:
        archives = helper_images(self.paths.images, self._binaries["coredns"] / "pause")
        wait_for("containerd", self._containerd_answers, timeout_s=READY_S, logs=self.logs, interval_s=0.1)
        for archive in archives.values():
            self.import_image(archive)

    def _containerd_answers(self) -> bool:
        self._processes.check(PROCESS)
        return self.paths.socket.exists() and self._ctr("version", check=False).returncode == 0

    def join(self, client: KubeClient) -> None:
        """Let the node's daemons work with a ready API server.

        Raises:
            LocalError: an image could not be imported, or the API server refused an object.
        """
        for obj in (*_roles(), _node(self.network)):
            client.apply(obj)
        if self._helpers:
            self._helpers.result(timeout=2 * READY_S)
        self.paths.joined.touch()

    def await_ready(self, client: KubeClient) -> None:
        """Wait until pods can be scheduled on the node, and Services and names work in them.

        Raises:
            LocalError: they do not after 90 s; holds the ends of the logs.
        """
        try:
            await_nodes(client, [NAME], READY_S)
        except LocalError as error:
            raise LocalError(error.message, log_tails(self.logs)) from error
        for what, port in (
            ("DNS", f"{config.DNS_READY_PORT}/ready"),
            ("kube-proxy", f"{config.PROXY_HEALTH_PORT}/healthz"),
        ):
            url = f"http://{self.network.node}:{port}"
            wait_for(f"{what} of the real node", lambda url=url: _answers(url), timeout_s=READY_S, logs=self.logs)  # type: ignore[misc]

    def import_image(self, archive: Path) -> str:
        """Import an OCI archive and return the image's reference; one that is there already is not read again.

        The archive is streamed to containerd, which unpacks it; pods use it with ``imagePullPolicy: Never`` or
        ``IfNotPresent``.

        Raises:
            LocalError: it is no image archive, or containerd refused it.
        """
        wanted = described(archive)
        if not wanted:
            raise LocalError(f"{archive} holds no image")
        there = self.images()
        if any(there.get(reference) != digest for reference, digest in wanted.items()):
            self._ctr("images", "import", "--digests=false", str(archive), timeout_s=1800.0)
        return next(iter(wanted))

    def images(self) -> dict[str, str]:
        """Return the images that containerd has: reference and digest of the manifest."""
        lines = self._ctr("images", "list").stdout.splitlines()[1:]
        rows = [fields for line in lines if len(fields := line.split()) > 2]
        return {name: digest for name, _, digest, *_ in rows if not name.startswith("sha256:")}

    def pid(self, daemon: str) -> int | None:
        """Return the machine's process id of one of the daemons, or None while it does not run."""
        return daemon_pids(self._processes).get(daemon)

    def _ctr(self, *arguments: str, check: bool = True, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        argv = [str(self._binaries["containerd"] / "ctr"), "--address", str(self.paths.socket)]
        argv += ["--namespace", IMAGES_NAMESPACE, *arguments]
        done = finished(argv, timeout_s=timeout_s)
        if done.returncode and check:
            raise LocalError(f"ctr {' '.join(arguments[:2])} failed", (done.stderr or done.stdout).strip()[-2000:])
        return done


def daemon_pids(processes: ProcessTable) -> dict[str, int]:
    """Return the machine's process ids of the node's daemons that run, by name; none without a real node."""
    record = processes.record(PROCESS)
    if record is None or not processes.alive(PROCESS):
        return {}
    found = {}
    for pid in [daemon for first in _children(record.pid) for daemon in _children(first)]:
        with contextlib.suppress(OSError):
            program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
            found[Path(program).name] = pid
    return {name: found[name] for name in DAEMONS if name in found}


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5.0) as answer:  # noqa: S310 - a URL of our own
            return bool(answer.status == 200)
    except urllib.error.HTTPError:
        return False


def _roles() -> list[Object]:
    """Return what DNS, kube-proxy and the API server's own kubelet client may do."""
    group = "rbac.authorization.k8s.io"

    def binding(name: str, role: str, user: str) -> Object:
        return {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }

    reads: list[dict[str, Any]] = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    dns = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "firsttoken-dns"}, "rules": reads}
    watched = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    scraper = {**dns, "metadata": {"name": "firsttoken-scraper"}, "rules": [watched]}
    return [
        dns,
        scraper,
        binding("firsttoken-scraper", "firsttoken-scraper", "prometheus"),
        binding("firsttoken-dns", "firsttoken-dns", "coredns"),
        binding("firsttoken-proxy", "system:node-proxier", "system:kube-proxy"),
        binding("firsttoken-kubelet-client", "system:kubelet-api-admin", "kubelet-client"),
    ]


def _node(network: NodeNetwork) -> Object:
    """Return the Node before its kubelet registers it, so that it has its own part of the pods' range."""
    labels = {"node.kubernetes.io/instance-type": "real", "topology.kubernetes.io/region": "local"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NAME, "labels": {**labels, "topology.kubernetes.io/zone": "zone-a"}},
        "spec": {"podCIDR": network.node_pods, "podCIDRs": [network.node_pods]},
    }
