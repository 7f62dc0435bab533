"""A real Prometheus that watches the cluster's own processes and whatever is added as a target."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from firsttoken_local.controlplane import await_http
from firsttoken_local.errors import LocalError
from firsttoken_local.layout import Layout
from firsttoken_local.pki import Authority
from firsttoken_local.processes import ProcessTable
from firsttoken_local.waiting import wait_for

SECURE_JOBS = ("apiserver", "controller-manager", "scheduler")
PLAIN_JOBS = ("etcd", "kwok", "prometheus")


@dataclass(frozen=True)
class Sample:
    """One series of an instant query: its labels, its value, and the time of the value in seconds since 1970."""

    labels: Mapping[str, str]
    value: float
    time_s: float


def render_config(layout: Layout, added_interval_s: float = 1.0) -> dict[str, Any]:
    """Return prometheus.yml: the cluster's processes every 5 s, added targets every ``added_interval_s``.

    The secure ports ask for a client certificate: that of a user who may only read metrics.
    """
    tls = {
        "ca_file": str(layout.pki / "ca.crt"),
        "cert_file": str(layout.pki / "user-prometheus.crt"),
        "key_file": str(layout.pki / "user-prometheus.key"),
    }

    def job(name: str) -> dict[str, Any]:
        address = f"127.0.0.1:{layout.ports[name]}"
        return {"job_name": name, "scrape_interval": "5s", "static_configs": [{"targets": [address]}]}

    secure = [{**job(name), "scheme": "https", "tls_config": tls} for name in SECURE_JOBS]
    interval = f"{int(added_interval_s * 1000)}ms"
    added = {
        "job_name": "added",
        "scrape_interval": interval,
        "scrape_timeout": interval,
        "file_sd_configs": [{"files": [str(layout.prometheus / "targets" / "*.json")], "refresh_interval": "5s"}],
    }
    pods = [_pods_job(layout.server, tls)] if layout.network or layout.played else []  # else no pod answers
    if layout.played:
        pods[0]["proxy_url"] = f"http://127.0.0.1:{layout.ports['player']}"
    return {
        "global": {"scrape_interval": "5s", "evaluation_interval": "1s"},
        "rule_files": [str(layout.prometheus / "rules" / "*.yaml")],
        "scrape_configs": [*secure, *(job(name) for name in PLAIN_JOBS), *pods, added],
    }


def _pods_job(server: str, tls: Mapping[str, str]) -> dict[str, Any]:
    """Every pod with the usual annotations, with the labels of the telemetry contract (docs/install.md)."""

    def relabel(source: str, target: str, **more: str) -> dict[str, Any]:
        return {"source_labels": [f"__meta_kubernetes_{source}"], "target_label": target, **more}

    def annotation(name: str) -> str:
        return f"pod_annotation_prometheus_io_{name}"

    address = {
        "source_labels": ["__meta_kubernetes_pod_ip", f"__meta_kubernetes_{annotation('port')}"],
        "separator": ":",
        "target_label": "__address__",
    }
    return {
        "job_name": "pods",
        "scrape_interval": "2s",
        "kubernetes_sd_configs": [{"role": "pod", "api_server": server, "tls_config": dict(tls)}],
        "relabel_configs": [
            {"source_labels": [f"__meta_kubernetes_{annotation('scrape')}"], "regex": "true", "action": "keep"},
            {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Running", "action": "keep"},
            address,
            relabel(annotation("path"), "__metrics_path__", regex="(.+)"),
            relabel("namespace", "namespace"),
            relabel("pod_name", "pod"),
            *(
                relabel(f"pod_label_firsttoken_dev_{label}", target)
                for label, target in (
                    ("service", "firsttoken_service"),
                    ("revision", "firsttoken_revision"),
                    ("role", "role"),
                )
            ),
        ],
    }


class PrometheusServer:
    """The Prometheus of one cluster."""

    def __init__(self, layout: Layout, processes: ProcessTable, binaries: Path) -> None:
        self._layout = layout
        self._processes = processes
        self._binaries = binaries
        self._folder = layout.prometheus
        self.url = f"http://127.0.0.1:{layout.ports['prometheus']}"

    def start(self) -> None:
        """Start it unless it runs; see :meth:`await_ready`."""
        for name in ("targets", "rules"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        Authority(self._layout.pki).issue("user-prometheus", "prometheus", ["system:monitoring"])
        config = self._folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(render_config(self._layout), sort_keys=False))
        arguments = [
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            "--storage.tsdb.retention.time=2d",
            f"--web.listen-address=127.0.0.1:{self._layout.ports['prometheus']}",
            "--web.enable-lifecycle",  # rules are added while it runs
            "--log.level=warn",
        ]
        self._processes.start("prometheus", [str(self._binaries / "prometheus"), *arguments])

    def await_ready(self) -> None:
        """Wait until it answers queries.

        Raises:
            LocalError: it ended, or was not ready within 60 s.
        """
        await_http(self._processes, "prometheus", self._layout.ports["prometheus"], "/-/ready")

    def add_target(self, job: str, address: str, labels: Mapping[str, str] | None = None) -> None:
        """Scrape ``http://<address>/metrics`` under a job name; replaces the job's earlier target.

        ``labels`` may hold ``__metrics_path__``, ``__scrape_interval__`` and the like.
        """
        target = {"targets": [address], "labels": {"job": job, **(labels or {})}}
        path = self._folder / "targets" / f"{_file_name(job)}.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps([target]))
        partial.replace(path)

    def remove_target(self, job: str) -> None:
        """Stop scraping a job that was added."""
        (self._folder / "targets" / f"{_file_name(job)}.json").unlink(missing_ok=True)

    def add_rules(self, paths: Iterable[Path]) -> None:
        """Check recording and alerting rule files with promtool, and load them.

        Raises:
            LocalError: a file is refused; none of them is loaded then.
        """
        files = list(paths)
        command = [str(self._binaries / "promtool"), "check", "rules", *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LocalError("promtool refuses the rules", (done.stdout + done.stderr).strip())
        for path in files:
            shutil.copyfile(path, self._folder / "rules" / f"{path.stem}.yaml")
        self._send("POST", "/-/reload")

    def query(self, expression: str) -> list[Sample]:
        """Evaluate an instant query; a scalar is one sample without labels.

        Raises:
            LocalError: Prometheus refuses the expression, or its result is neither vector nor scalar.
        """
        answer = json.loads(self._send("GET", f"/api/v1/query?{urlencode({'query': expression})}"))
        return parse_samples(answer)

    def await_sample(self, expression: str, timeout_s: float = 30.0) -> list[Sample]:
        """Wait until a query has a result, and return it.

        Raises:
            LocalError: it had none within ``timeout_s`` seconds.
        """
        return wait_for(
            f"a result of {expression}",
            lambda: self.query(expression),
            timeout_s=timeout_s,
            logs=[self._processes.log("prometheus")],
            interval_s=0.2,
        )

    def _send(self, method: str, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._layout.ports["prometheus"], timeout=30.0)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status not in (200, 400, 422):  # the last two carry Prometheus' own words on the query
            raise LocalError(f"Prometheus answered {answer.status} to {path}", body.decode(errors="replace"))
        return body


def parse_samples(answer: Mapping[str, Any]) -> list[Sample]:
    """Return the samples of an answer of /api/v1/query.

    Raises:
        LocalError: it is an error, or neither vector nor scalar.
    """
    if answer.get("status") != "success":
        raise LocalError(f"Prometheus refuses the query: {answer.get('error')}")
    data = answer["data"]
    if data["resultType"] == "scalar":
        return [Sample({}, float(data["result"][1]), float(data["result"][0]))]
    if data["resultType"] != "vector":
        raise LocalError(f"the query's result is a {data['resultType']}, not a vector")
    return [Sample(one["metric"], float(one["value"][1]), float(one["value"][0])) for one in data["result"]]


def _file_name(job: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", job)
