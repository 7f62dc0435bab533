"""The operator as a process beside a local cluster, as it would be a pod of a real one."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from firsttoken_local.cluster import LocalCluster
from firsttoken_local.controlplane import await_http
from firsttoken_local.layout import REPOSITORY
from firsttoken_local.ports import choose_ports

NAME = "operator"
ACCELERATORS = REPOSITORY / "controllers" / "firsttoken" / "planning" / "data" / "accelerators.yaml"


@dataclass(frozen=True)
class Operator:
    """A running operator: where its metrics are."""

    metrics_port: int
    liveness_port: int


def start_operator(cluster: LocalCluster, name: str = NAME, *flags: str, offline: bool = True) -> Operator:
    """Start the operator as user ``firsttoken-operator`` and wait until it is live; Prometheus scrapes it.

    ``flags`` are further ones of its command line. One that runs under ``name`` is left as it is, unless its command
    line would be another now (a real node came, the images' names changed).
    ``offline`` forbids it to ask the hub about a model that nothing else describes, so that tests ask nothing outside
    this machine; without it this process's own environment decides (HF_HUB_OFFLINE, HF_TOKEN, HF_ENDPOINT, proxies).

    Raises:
        LocalError: it ended, or was not live within 60 s; holds the end of its log.
    """
    ports = _ports_of_running(cluster, name) or choose_ports(["metrics", "liveness"])
    arguments = [
        *("--kubeconfig", str(cluster.operator_kubeconfig)),
        *("--bind", "127.0.0.1"),
        *("--metrics-port", str(ports["metrics"])),
        *("--liveness-port", str(ports["liveness"])),
        *_way_to_pods(cluster),
        *flags,
    ]
    environment = {"HF_HUB_OFFLINE": "1"} if offline else {}
    cluster.processes.start(name, [sys.executable, "-m", "firsttoken_operator", *arguments], environment)
    await_http(cluster.processes, name, ports["liveness"], "/healthz")
    if cluster.prometheus is not None:
        cluster.prometheus.add_target(name, f"127.0.0.1:{ports['metrics']}")
    return Operator(ports["metrics"], ports["liveness"])


def measuring_flags(cluster: LocalCluster) -> list[str]:
    """By which it asks the cluster's Prometheus, if there is one: often, so that somebody who looks sees it happen."""
    if cluster.prometheus is None:
        return []
    return [f"--prometheus-url={cluster.prometheus.url}", "--prometheus-interval=15", "--prometheus-window=180"]


def _way_to_pods(cluster: LocalCluster) -> list[str]:
    """By which it asks Envoys: the machine's routes to a real node, or the player; there is none to silent pods."""
    if cluster.layout.played:
        return ["--pod-proxy", f"http://127.0.0.1:{cluster.ports['player']}"]
    return ["--no-ask-envoys"] if cluster.node is None else []


def _ports_of_running(cluster: LocalCluster, name: str) -> dict[str, int]:
    record = cluster.processes.record(name)
    if record is None or not cluster.processes.alive(name):
        return {}
    given = dict(zip(record.argv, record.argv[1:], strict=False))
    return {port: int(given[f"--{port}-port"]) for port in ("metrics", "liveness")}
