"""What the tests on a real installation share: the example, questions to it, its pods, the operator's leader."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from e2e.support import EXAMPLES, GROUP, Object

from firsttoken_local import chat
from firsttoken_local.cluster import LocalCluster
from firsttoken_local.errors import LocalError
from firsttoken_local.installation import NAMESPACE
from firsttoken_local.story import settled
from firsttoken_local.waiting import wait_for

EXAMPLE = EXAMPLES / "cpu-tiny.yaml"
SERVICE = "cpu-tiny"
MODEL = "tiny"
LEASE = "firsttoken-operator"
# Engines load torch and vLLM; several at once, on few cores that tests and other processes share.
READY_S = 600.0


@dataclass(frozen=True)
class Installed:
    """A cluster with the chart installed, and the chart's notes."""

    cluster: LocalCluster
    notes: str

    def apply_example(self, change: Object | None = None) -> None:
        """kubectl apply of the example, with a change of its spec."""
        document = yaml.safe_load(EXAMPLE.read_text())
        for path, value in (change or {}).items():
            *parents, last = path.split(".")
            node = document["spec"]
            for key in parents:
                node = node.setdefault(key, {})
            node[last] = value
        self.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document))

    def service(self) -> Object:
        """The InferenceService as it is now."""
        return self.cluster.client.get(GROUP, "InferenceService", SERVICE, "default") or {}

    def wait(self, what: str, condition: Any, timeout_s: float = READY_S) -> Any:
        """Wait for a condition."""
        return wait_for(what, condition, timeout_s=timeout_s, interval_s=0.3)

    def wait_ready(self) -> Object:
        """Wait until the example is Ready on its current spec, with all replicas and nothing left to drain."""

        def done() -> Object | None:
            service = self.service()
            return service if settled(service) else None

        found: Object = self.wait(f"{SERVICE} to be Ready", done)
        return found

    def pods(self, role: str) -> list[Object]:
        """The example's pods of one role that are not on their way out."""
        selected = f"firsttoken.dev/service={SERVICE},firsttoken.dev/role={role}"
        found = json.loads(self.cluster.kubectl("get", "pods", "-l", selected, "-o", "json"))["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    @property
    def url(self) -> str:
        """Where the example answers."""
        return chat.service_url(self.cluster, SERVICE)

    def stream(self, question: str, tokens: int) -> Iterator[str]:
        """A streamed chat answer, piece by piece."""
        return chat.stream(self.url, MODEL, question, tokens=tokens)

    def complete(self, prompt: str, tokens: int = 4) -> Object:
        """An answer in one piece."""
        body = {"model": MODEL, "prompt": prompt, "max_tokens": tokens}
        with chat.ask(self.url, "/v1/completions", body) as answer:
            found: Object = json.load(answer)
        return found

    def engine_metrics(self, name: str) -> dict[str, float]:
        """A metric of vLLM on each engine, summed over its labels, by pod."""
        return {pod["metadata"]["name"]: total(_metrics(pod["status"]["podIP"]), name) for pod in self.pods("serve")}

    def leader(self) -> str:
        """The pod that holds the Lease; empty while nobody does."""
        lease = self.cluster.client.get("coordination.k8s.io/v1", "Lease", LEASE, NAMESPACE) or {}
        holder: str = (lease.get("spec") or {}).get("holderIdentity") or ""
        return holder.rpartition("_")[0]

    def report(self) -> str:
        """The pods, what happened to them, and the ends of their logs."""
        kubectl = self.cluster.kubectl
        parts = [kubectl("get", "pods", "--all-namespaces", "-o", "wide")]
        parts.append(kubectl("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp")[-4000:])
        for line in kubectl("get", "pods", "--all-namespaces", "--no-headers").splitlines():
            namespace, pod = line.split()[:2]
            try:
                log = kubectl("-n", namespace, "logs", pod, "--all-containers", "--tail=15")
            except LocalError as error:
                log = str(error)
            parts.append(f"--- {namespace}/{pod}\n{log[-2500:]}")
        return "\n".join(parts)


@dataclass
class Clients:
    """Users who ask again and again; `answers` counts whole answers, `faults` says what went wrong."""

    answers: int = 0
    faults: list[str] = field(default_factory=list)


@contextmanager
def asking(installed: Installed, users: int = 2) -> Iterator[Clients]:
    """Clients that stream answers until the end of the block."""
    clients, over, lock = Clients(), threading.Event(), threading.Lock()

    def ask(user: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            try:
                pieces = "".join(installed.stream(f"user {user}, question {number}", 20))
                fault = "" if len(pieces) == 20 else f"{len(pieces)} of 20 tokens: {pieces!r}"
            except (LocalError, OSError) as error:
                fault = f"{error!r}"
            with lock:
                clients.answers += not fault
                clients.faults += [fault] if fault else []

    threads = [threading.Thread(target=ask, args=(user,)) for user in range(users)]
    for thread in threads:
        thread.start()
    try:
        yield clients
    finally:
        over.set()
        for thread in threads:
            thread.join(timeout=chat.TIMEOUT_S)


def _metrics(address: str, port: int = 8000) -> str:
    with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=30.0) as answer:
        text: str = answer.read().decode()
    return text


def total(text: str, name: str) -> float:
    """The sum of a metric's series in the text format."""
    lines = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
    assert lines, f"{name} is not among the metrics"
    return sum(map(float, lines))


def process_of(pod: str) -> int:
    """The machine's process id of the operator in a pod: containers are processes of this machine."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment = (path / "environ").read_bytes().split(b"\0")
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if f"HOSTNAME={pod}".encode() in environment and b"firsttoken_operator" in command:
            return int(path.name)
    raise AssertionError(f"no process of {pod}")
