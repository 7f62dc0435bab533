"""A release of the chart in a cluster without real nodes: helm, and what its pods would run, run beside the cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml
from e2e.chart.rendering import Object, helm
from e2e.support import GROUP, condition, inference_service

from firsttoken_local.cluster import LocalCluster
from firsttoken_local.controlplane import await_http
from firsttoken_local.ports import choose_ports


@dataclass(frozen=True)
class Release:
    """A release, its cluster, and the operator as it would run in its pod."""

    cluster: LocalCluster
    name: str
    namespace: str
    notes: str = ""

    @property
    def operator(self) -> str:
        """Name of the operator's Deployment and ServiceAccount."""
        return f"{self.name}-operator"

    def deployment(self) -> Object:
        """The operator's Deployment."""
        found = self.cluster.client.get("apps/v1", "Deployment", self.operator, self.namespace)
        assert found is not None
        return found

    def credentials(self) -> Path:
        """A kubeconfig with the token of the operator's ServiceAccount, as its pod has it."""
        token = self.cluster.kubectl("-n", self.namespace, "create", "token", self.operator, "--duration=2h").strip()
        document = yaml.safe_load(self.cluster.kubeconfig.read_text())
        document["users"][0]["user"] = {"token": token}
        path = self.cluster.directory / f"{self.namespace}-{self.operator}.kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    def apply_catalogue(self) -> str:
        """What the init container does; its log."""
        config = self.cluster.client.get("v1", "ConfigMap", f"{self.name}-accelerators", self.namespace)
        assert config is not None
        folder = self.cluster.directory / f"{self.namespace}-catalogue"
        folder.mkdir(exist_ok=True)
        for name, text in config["data"].items():
            (folder / name).write_text(text)
        environment = {**os.environ, "KUBECONFIG": str(self.credentials())}
        command = [sys.executable, str(folder / "apply.py")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def start_operator(self) -> Path:
        """Run the operator with the Deployment's own arguments, but on ports of this machine; its log."""
        (container,) = self.deployment()["spec"]["template"]["spec"]["containers"]
        ports = choose_ports(["metrics", "liveness"])
        mine = [a for a in container["args"] if "-port=" not in a]
        mine += ["--no-ask-envoys", "--bind=127.0.0.1", f"--kubeconfig={self.credentials()}"]
        mine += [f"--{name}-port={port}" for name, port in ports.items()]
        offline = {"HF_HUB_OFFLINE": "1"}
        self.cluster.processes.start(self.process, [sys.executable, "-m", "firsttoken_operator", *mine], offline)
        await_http(self.cluster.processes, self.process, ports["liveness"], "/healthz")
        return self.cluster.processes.log(self.process)

    @property
    def process(self) -> str:
        """Name of the operator among the cluster's processes."""
        return f"operator-{self.namespace}"

    def stop_operator(self) -> None:
        """As a deleted pod ends."""
        self.cluster.processes.stop([self.process])


def run_helm(cluster: LocalCluster, *arguments: str | Path, values: Object | None = None) -> str:
    done = helm(*arguments, "--values", "-", kubeconfig=cluster.kubeconfig, stdin=json.dumps(values or {}))
    assert done.returncode == 0, done.stderr
    return done.stdout


def profile(cluster: LocalCluster, name: str) -> Object:
    found = cluster.client.get(GROUP, "AcceleratorProfile", name)
    assert found is not None
    return found


def ready(cluster: LocalCluster, name: str, namespace: str) -> Object | None:
    service = cluster.client.get(GROUP, "InferenceService", name, namespace)
    found = condition(service or {}, "Ready")
    return service if found is not None and found["status"] == "True" else None


def apply_service(cluster: LocalCluster, name: str, namespace: str) -> None:
    service = inference_service(name)
    service["metadata"]["namespace"] = namespace
    cluster.client.apply(service, field_manager="test")
