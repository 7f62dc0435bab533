"""What the real node's tests share: pods, commands in them, and what the machine looks like."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from firsttoken_local.cluster import LocalCluster
from firsttoken_local.errors import LocalError
from firsttoken_local.node.cgroups import hierarchies
from firsttoken_local.node.config import BUILT_IN, SHOWN
from firsttoken_local.node.helpers import BUSYBOX, HOST
from firsttoken_local.node.registration import FILE
from firsttoken_local.node.requirements import command
from firsttoken_local.processes import MARK

Object = dict[str, Any]
PROGRAMS = frozenset({"containerd", "containerd-shim-runc-v2", "coredns", "kube-proxy", "kubelet", "pause", "unshare"})


@dataclass(frozen=True)
class Namespace:
    """One namespace of one test."""

    cluster: LocalCluster
    name: str

    def kubectl(self, *arguments: str, timeout_s: float = 120.0) -> str:
        """kubectl in this namespace."""
        return self.cluster.kubectl("-n", self.name, *arguments, timeout_s=timeout_s)

    def apply(self, obj: Object) -> Object:
        """Server-side apply into this namespace."""
        return self.cluster.client.apply({**obj, "metadata": {**obj["metadata"], "namespace": self.name}})

    def wait_pod(self, name: str, condition: Callable[[Object], object], timeout_s: float = 60.0) -> Object:
        """Wait until a condition holds for a pod."""
        return self.cluster.client.wait("v1", "Pod", name, condition, namespace=self.name, timeout_s=timeout_s)

    def client_pod(self) -> str:
        """Start a pod with the machine's own programs and return its name when it is ready."""
        self.apply(host_pod("client"))
        self.wait_pod("client", ready)
        return "client"

    def shell(self, pod: str, script: str, *, bash: bool = False) -> str:
        """Run a script by the shell of a pod; only a :func:`host_pod` has ``bash``."""
        return self.kubectl("exec", pod, "--", "/bin/bash" if bash else "/bin/sh", "-c", script)

    def tried(self, pod: str, script: str, *, bash: bool = False) -> str:
        """Run a script as :meth:`shell` does; what it writes is empty while it, or the node, is not ready."""
        try:
            return self.shell(pod, script, bash=bash)
        except LocalError:
            return ""


def pod(name: str, *argv: str, image: str = BUSYBOX, container: Object | None = None, **spec: Any) -> Object:
    """A pod of one container; ``container`` adds to that, ``spec`` to the pod's specification."""
    main = {"name": "main", "image": image, "imagePullPolicy": "Never", "command": list(argv), **(container or {})}
    body = {"terminationGracePeriodSeconds": 1, "enableServiceLinks": False, "containers": [main], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": body}


def host_pod(name: str, *argv: str) -> Object:
    """A pod with the machine's own programs; it sleeps unless told otherwise."""
    shared = {"usr": "/usr", "cache": "/etc/ld.so.cache"}
    mounts = [{"name": key, "mountPath": path, "readOnly": True} for key, path in shared.items()]
    volumes = [{"name": key, "hostPath": {"path": path}} for key, path in shared.items()]
    return pod(name, *(argv or ("sleep", "infinity")), image=HOST, container={"volumeMounts": mounts}, volumes=volumes)


def ready(found: Object) -> bool:
    """Whether a pod is Ready."""
    conditions = found["status"].get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def container_status(found: Object) -> Object:
    """The status of a pod's only container, or an empty one."""
    statuses = found["status"].get("containerStatuses") or [{}]
    return dict(statuses[0])


@dataclass(frozen=True)
class Traces:
    """What a real node changes on a machine."""

    mounts: frozenset[str]
    links: frozenset[str]
    routes: frozenset[str]
    rules: frozenset[str]
    namespaces: frozenset[str]
    cgroups: frozenset[str]
    settings: frozenset[str]
    files: frozenset[str]
    processes: frozenset[str]

    def added(self, before: Traces) -> dict[str, list[str]]:
        """What is here and was not there before, or the other way round."""
        found = {}
        for field in fields(self):
            if different := getattr(self, field.name) ^ getattr(before, field.name):
                found[field.name] = sorted(different)
        return found


def traces() -> Traces:
    """Look at the machine."""
    settings = [Path("/proc/sys") / name for name in (*SHOWN, "net/ipv4/ip_forward")]
    outside = [*BUILT_IN, "/run/netns", "/var/lib/containerd", "/opt/containerd", "/etc/cni", "/run/nri", str(FILE)]
    return Traces(
        mounts=frozenset(Path("/proc/mounts").read_text().splitlines()),
        links=frozenset(path.name for path in Path("/sys/class/net").iterdir()),
        routes=frozenset(output("ip", "route", "show", "table", "all")),
        rules=frozenset(output("nft", "list", "ruleset")),
        namespaces=frozenset(_namespaces()),
        cgroups=frozenset(str(p) for _, folder in hierarchies() for p in folder.rglob("*firsttoken*") if p.is_dir()),
        settings=frozenset(f"{path} {path.read_text().strip()}" for path in settings),
        files=frozenset(path for path in outside if Path(path).exists()),
        processes=frozenset(_processes()),
    )


def output(*argv: str) -> list[str]:
    """The lines that one of the machine's commands writes."""
    return subprocess.run([command(argv[0]), *argv[1:]], capture_output=True, text=True, check=True).stdout.splitlines()


def _namespaces() -> list[str]:
    """The network namespaces of processes."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(str(path.readlink()))
        except OSError:
            continue
    return list(found)


def _processes() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            program = Path(path.read_bytes().split(b"\0")[0].decode(errors="replace")).name
        except OSError:
            continue
        if program in PROGRAMS:
            found.append(f"{program} {path.parent.name}")
    return found


def kill_everything(directory: Path) -> int:
    """Kill all processes of a cluster at once, as a crash would; return how many there were."""
    mark = f"{MARK}={directory}".encode()
    killed = 0
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
                killed += 1
        except OSError:
            continue
    return killed
