"""The local cluster as a whole: up, down, and what a test needs of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from firsttoken_local import audit, schemas
from firsttoken_local.apply import apply_objects, read_objects
from firsttoken_local.builds import ensure, locked
from firsttoken_local.catalogue import NODE_SETS
from firsttoken_local.commands import finished
from firsttoken_local.controlplane import (
    NAMES,
    OPERATOR_USER,
    create_user,
    grant_operator,
    prepare,
    start_api,
    start_controllers,
)
from firsttoken_local.ending import down, state_lock
from firsttoken_local.errors import LocalError
from firsttoken_local.fakenodes import STORAGE_CLASS, NodeShape, add_nodes, start_kwok
from firsttoken_local.guard import release, start_guard
from firsttoken_local.kube import KubeClient, Object
from firsttoken_local.layout import PORT_NAMES, REPOSITORY, Layout, cluster_folder, load_layout
from firsttoken_local.node.realnode import RealNode, start_node, with_network
from firsttoken_local.node.registration import refuse_second
from firsttoken_local.node.requirements import check_machine
from firsttoken_local.node.teardown import in_use
from firsttoken_local.player import BRIDGE
from firsttoken_local.player.start import await_player, grant_scraper, start_player
from firsttoken_local.ports import choose_ports, is_free
from firsttoken_local.processes import ProcessTable
from firsttoken_local.progress import Progress, Silent
from firsttoken_local.prometheus import PrometheusServer
from firsttoken_local.signals import ending_signals_raise
from firsttoken_local.waiting import wait_for

GATEWAY_CRDS = ("gatewayclasses", "gateways", "httproutes")


@dataclass(frozen=True)
class LocalCluster:
    """A running cluster.

    ``operator_kubeconfig`` is the user ``firsttoken-operator``'s, so that the audit log tells the operator's writes
    from the tests'. ``prometheus`` and ``node`` (the real one) are None when they were not asked for. Further
    processes, such as the operator, may be started in ``processes``: they end with the cluster.
    """

    layout: Layout
    kubeconfig: Path
    operator_kubeconfig: Path
    audit_log: Path
    client: KubeClient
    processes: ProcessTable
    prometheus: PrometheusServer | None
    binaries: dict[str, Path]
    node: RealNode | None = None

    @property
    def directory(self) -> Path:
        """The state directory."""
        return self.layout.directory

    @property
    def ports(self) -> dict[str, int]:
        """The ports on 127.0.0.1, by process."""
        return self.layout.ports

    @property
    def prometheus_url(self) -> str | None:
        """Where Prometheus answers."""
        return self.prometheus.url if self.prometheus else None

    @property
    def kubectl_path(self) -> Path:
        """The kubectl of the same version as the API server."""
        return self.binaries["kubernetes"] / "kubectl"

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 120.0) -> str:
        """Run kubectl as the administrator and return its output.

        Raises:
            LocalError: it failed; holds what it wrote.
        """
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        command = [str(self.kubectl_path), *arguments]
        done = finished(command, env=environment, stdin=stdin, timeout_s=timeout_s)
        if done.returncode:
            raise LocalError(f"kubectl {' '.join(arguments)} failed", (done.stdout + done.stderr).strip())
        return done.stdout

    def user_kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """Return the kubeconfig of one more user; it may do what roles bound to it or its groups allow."""
        return create_user(self.layout, user, groups)

    def add_nodes(self, count: int, shape: NodeShape | None = None, *, prefix: str = "gpu") -> list[str]:
        """Add fake nodes and wait for them; see :func:`firsttoken_local.fakenodes.add_nodes`."""
        return add_nodes(self.client, count, shape, prefix=prefix, tainted=self.node is not None)

    def apply(self, paths: Iterable[Path]) -> list[Object]:
        """Apply YAML files and folders as the administrator."""
        return apply_objects(self.client, read_objects(paths))

    def writes(self, user: str | None = None, since: int = 0) -> list[audit.Write]:
        """Return who changed what; see :func:`firsttoken_local.audit.read_writes`."""
        return audit.read_writes(self.audit_log, user, since)

    def kubeconform(self, manifests: Iterable[Path] | str) -> schemas.Conformance:
        """Validate manifests against what the API server serves at this moment."""
        binary = ensure(["kubeconform"], Silent())["kubeconform"] / "kubeconform"
        schemas.write_schemas(self.client, self.layout.schemas)
        return schemas.kubeconform(binary, self.layout.schemas, manifests)


def up(
    name: str = "default",
    *,
    nodes: int = 4,
    prometheus: bool = True,
    real_node: bool = False,
    play: bool = False,
    progress: Progress | None = None,
    manifests: Iterable[Path] = (),
    definitions: bool = True,
    directory: Path | None = None,
) -> LocalCluster:
    """Bring a cluster up: build what is missing, start what does not run, and wait until pods can be scheduled.

    What runs already is used as it is. ``manifests`` (for instance accelerator profiles) are applied after the
    definitions of Gateway API, of LeaderWorkerSet and of this repository's ``crds/`` (a cluster made without
    ``definitions`` leaves the latter to ``helm install`` for good). ``directory`` replaces ``.cluster/<name>``.
    ``real_node`` adds a node that runs pods, which needs Linux and root; a cluster that has one keeps it. ``play``
    lets the pods of services on fake nodes answer, for which :func:`firsttoken_local.player.start.obstacle` must find
    nothing; a cluster stays as it was made.

    Raises:
        LocalError: something could not be built, started or applied.
    """
    told = progress or Silent()
    folder = directory or cluster_folder(name)
    before = load_layout(folder)
    real_node = real_node or bool(before and before.network)
    played = before.played if before else play and not real_node
    if played and real_node:
        raise LocalError("the pods of this cluster's fake nodes are played: run `down`, then `up` with a real node")
    if real_node:
        refuse_second(folder, in_use)
        check_machine(told)
    sets = ["kubernetes", "kwok", "gateway-api", "lws"] + (["prometheus"] if prometheus else [])
    sets += ["coredns"] if played else []
    binaries = ensure([*sets, *(NODE_SETS if real_node else ())], told)
    with locked(state_lock(folder)):
        layout = load_layout(folder) or Layout(folder, choose_ports(PORT_NAMES), None, definitions, played)
        layout = with_network(layout) if real_node else layout
        layout.save()
        paths = [*([REPOSITORY / "crds"] if layout.definitions else []), *manifests]
        return _start(layout, binaries, nodes, told, paths)


def _start(
    layout: Layout, binaries: dict[str, Path], nodes: int, told: Progress, manifests: Iterable[Path]
) -> LocalCluster:
    started = time.monotonic()
    processes = ProcessTable(layout.directory)
    ended_before = processes.ended()  # by itself or killed, such as an operator: whoever started it does so again
    _check_ports(layout, processes)
    prepare(layout)
    node = start_node(layout, processes, binaries)  # containerd gets ready while the control plane does
    server = PrometheusServer(layout, processes, binaries["prometheus"]) if "prometheus" in binaries else None
    if server:
        server.start()
    told.transient("control plane: starting")
    client = start_api(layout, processes, binaries["kubernetes"])
    start_controllers(layout, processes, binaries["kubernetes"])
    if layout.played:
        start_player(layout, processes, binaries["coredns"])
        grant_scraper(client)
    if node:
        node.join(client)
    told.line(f"control plane: ready after {time.monotonic() - started:.1f} s")
    start_kwok(layout, processes, binaries["kwok"])
    grant_operator(client)
    _apply_definitions(client, binaries, manifests)
    add_nodes(client, nodes, tainted=node is not None)
    if node:
        node.await_ready(client)
    client.wait("v1", "ServiceAccount", "default", bool)  # without it no pod is admitted
    if server:
        server.await_ready()
    if layout.played:
        await_player(layout, processes)
    processes.check_all(apart_from=ended_before)
    told.line(f"cluster: up after {time.monotonic() - started:.1f} s")
    return LocalCluster(
        layout=layout,
        kubeconfig=layout.kubeconfig,
        operator_kubeconfig=layout.user_kubeconfig(OPERATOR_USER),
        audit_log=layout.audit_log,
        client=client,
        processes=processes,
        prometheus=server,
        binaries=binaries,
        node=node,
    )


def _check_ports(layout: Layout, processes: ProcessTable) -> None:
    owners = {"apiserver": "kube-apiserver", "etcd-peer": "etcd", "player": BRIDGE}
    owners |= {"controller-manager": NAMES[2], "scheduler": NAMES[3]}
    for name, port in layout.ports.items():
        owner = owners.get(name, name)
        if processes.alive(owner):
            continue
        try:  # a process just killed lets go of its port a moment after it counts as dead
            wait_for(f"port {port} to be free", lambda port=port: is_free(port), timeout_s=5.0)  # type: ignore[misc]
        except LocalError:
            message = f"port {port} of {owner} is used by another process now: run `down`, then `up` again"
            raise LocalError(message) from None


def _apply_definitions(client: KubeClient, binaries: dict[str, Path], manifests: Iterable[Path]) -> None:
    gateway = binaries["gateway-api"] / "crds"
    paths = [gateway / f"gateway.networking.k8s.io_{name}.yaml" for name in GATEWAY_CRDS]
    paths.append(binaries["lws"] / "crds" / "leaderworkerset.x-k8s.io_leaderworkersets.yaml")
    paths.append(binaries["kwok"] / "stages" / STORAGE_CLASS)
    apply_objects(client, read_objects([*paths, *manifests]))


@contextlib.contextmanager
def ephemeral_cluster(
    *,
    nodes: int = 4,
    prometheus: bool = True,
    real_node: bool = False,
    play: bool = False,
    progress: Progress | None = None,
    manifests: Iterable[Path] = (),
    definitions: bool = True,
) -> Iterator[LocalCluster]:
    """A cluster for tests in a temporary directory: gone at the end of the block, however that comes.

    Exceptions, SIGINT, SIGTERM and SIGHUP end the block. A guard process sees to the rest when this process is killed.
    """
    scratch = Path(tempfile.mkdtemp(prefix="firsttoken-"))
    folder = scratch / "cluster"
    guard = start_guard(folder, scratch)
    try:
        with ending_signals_raise():
            yield up(
                directory=folder,
                nodes=nodes,
                prometheus=prometheus,
                real_node=real_node,
                play=play,
                progress=progress,
                manifests=manifests,
                definitions=definitions,
            )
    finally:
        try:
            down(directory=folder)
            shutil.rmtree(scratch, ignore_errors=True)
        finally:
            release(guard)
