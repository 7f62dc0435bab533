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


def start_operator(cluster: LocalCluster, name: str = NAME, *flags: str) -> Operator:
    """Start the operator as user ``firsttoken-operator`` and wait until it is live; Prometheus scrapes it.

    ``flags`` are further ones of its command line. One that runs under ``name`` is left as it is.

    Raises:
        LocalError: it ended, or was not live within 60 s; holds the end of its log.
    """
    record = cluster.processes.record(name)
    if record is not None and cluster.processes.alive(name):
        ports = {flag: int(value) for flag, value in zip(record.argv, record.argv[1:], strict=False) if "port" in flag}
        return Operator(ports["--metrics-port"], ports["--liveness-port"])
    ports = choose_ports(["metrics", "liveness"])
    arguments = [
        *("--kubeconfig", str(cluster.operator_kubeconfig)),
        *("--bind", "127.0.0.1"),
        *("--metrics-port", str(ports["metrics"])),
        *("--liveness-port", str(ports["liveness"])),
        *(["--no-ask-envoys"] if cluster.node is None else []),  # pods of fake nodes answer nobody
        *flags,
    ]
    # Nothing outside this machine is asked; a model that the catalogue lacks is described in the spec.
    environment = {"HF_HUB_OFFLINE": "1"}
    cluster.processes.start(name, [sys.executable, "-m", "firsttoken_operator", *arguments], environment)
    await_http(cluster.processes, name, ports["liveness"], "/healthz")
    if cluster.prometheus is not None:
        cluster.prometheus.add_target(name, f"127.0.0.1:{ports['metrics']}")
    return Operator(ports["metrics"], ports["liveness"])
