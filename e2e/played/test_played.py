"""Played pods: real clients, Envoy, vllm-router and Prometheus around simulated engines. The last test ends it all."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from e2e.played.conftest import SERVICE

from firsttoken.measurement.contract import SERIES
from firsttoken_local.client import Watchers, at_a_rate, question, timed
from firsttoken_local.cluster import LocalCluster
from firsttoken_local.ending import down
from firsttoken_local.operator import NAME as OPERATOR
from firsttoken_local.operator import start_operator
from firsttoken_local.played_demo import await_exported
from firsttoken_local.player import PROCESS
from firsttoken_local.player.start import service_url
from firsttoken_local.processes import ProcessTable
from firsttoken_local.prometheus import PrometheusServer
from firsttoken_local.waiting import wait_for

MODEL = "Qwen2.5-7B-Instruct"
MINE = f'{{firsttoken_service="{SERVICE}",role="serve"}}'
# Of the whole file, with the start of the cluster and what has to be compiled on a loaded machine.
pytestmark = pytest.mark.timeout(600)


def prometheus(cluster: LocalCluster) -> PrometheusServer:
    assert cluster.prometheus is not None
    return cluster.prometheus


def base(cluster: LocalCluster) -> str:
    return service_url(cluster.layout, SERVICE)


def engines(cluster: LocalCluster) -> dict[str, dict[str, Any]]:
    found = cluster.client.list("v1", "Pod", "default", f"firsttoken.dev/service={SERVICE},firsttoken.dev/role=serve")
    return {pod["metadata"]["name"]: pod for pod in found}


def ready(pod: dict[str, Any]) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def total(cluster: LocalCluster, expression: str) -> float:
    found = prometheus(cluster).query(expression)
    return found[0].value if found else 0.0


def health(cluster: LocalCluster, address: str) -> int:
    """Of one engine, on its own address, by the cluster's proxy."""
    connection = http.client.HTTPConnection("127.0.0.1", cluster.ports["player"], timeout=10.0)
    try:
        connection.request("GET", f"http://{address}:8000/health")
        return connection.getresponse().status
    finally:
        connection.close()


def test_requests_through_envoy_are_answered_timed_and_counted(played: LocalCluster) -> None:
    """Prometheus counts each first token in its bucket, and what it says of TTFT is what the clients saw."""
    sizes = [100, 300, 700, 1200] * 4
    prompts = [question(n, shared=n // 2, seed=k) for k, n in enumerate(sizes)]
    seen = at_a_rate(base(played), MODEL, prompts, tokens=8, rate=8.0)
    assert [one.prompt for one in seen] == sizes
    buckets = {"64-256": 4, "256-512": 4, "512-1024": 4, "1024-4096": 4}
    mean = await_exported(prometheus(played), SERVICE, buckets)
    exported, client = sum(4 * one for one in mean.values()), sum(one.ttft for one in seen)
    # From the gateway's stamp (whole milliseconds) to the engine's first chunk is inside of what the client waits.
    assert exported <= client + 0.002 * len(seen)
    by_stage = prometheus(played).query(f"sum by (stage) (firsttoken_ttft_stage_seconds_sum{MINE})")
    stages = {one.labels["stage"]: one.value for one in by_stage}
    assert set(stages) == {"gateway", "input", "queue", "prefill", "delivery"}
    assert sum(stages.values()) == pytest.approx(exported)
    assert min(stages["input"], stages["prefill"], stages["gateway"], stages["delivery"]) > 0
    assert stages["input"] + stages["queue"] + stages["prefill"] < exported
    # A first token is counted before its request ends, so perhaps one scrape earlier.
    whole = f'sum(firsttoken_requests_total{MINE[:-1]},outcome="ok"}})'
    wait_for("the last request to end", lambda: total(played, whole) == len(seen), timeout_s=20.0)
    answered = prometheus(played).query(f"sum by (outcome) (firsttoken_requests_total{MINE})")
    outcomes = {one.labels["outcome"]: one.value for one in answered}
    assert outcomes == {"ok": len(seen), "client_gone": 0, "error": 0, "timeout": 0}
    assert sum(one.cached for one in seen) > 0  # the router sends equal prefixes to one engine
    cached = f"sum(firsttoken_cached_prompt_tokens_total{MINE})"
    wait_for("cached tokens", lambda: total(played, cached) == sum(one.cached for one in seen), timeout_s=20.0)


def test_every_series_of_the_contract_is_there_with_the_scrape_s_labels(played: LocalCluster) -> None:
    absent = {"firsttoken_prefix_instability_total"}  # no prompt's beginning changed before a shared part
    for series in SERIES.values():
        name = f"{series.name}_count" if series.kind == "histogram" else series.name
        found = prometheus(played).query(name + MINE)
        assert found or series.name in absent, name
        for one in found:
            scraped = {"namespace", "pod", "firsttoken_service", "firsttoken_revision", "role"}
            assert set(one.labels) - {"__name__", "job", "instance"} == {*series.labels, *scraped}, name
    per_pod = prometheus(played).query('max(count by (pod) ({__name__=~"firsttoken_.*",role="serve"}))')
    assert per_pod[0].value <= 1400  # four buckets; three are below 1000 (tests/measurement)


def test_errors_are_the_engine_s_own(played: LocalCluster) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", played.ports["player"], timeout=30.0)
    body = {"model": MODEL, "prompt": list(range(5000)), "max_tokens": 1}
    connection.request(
        "POST", f"/default/{SERVICE}/v1/completions", json.dumps(body), {"content-type": "application/json"}
    )
    answer = connection.getresponse()
    assert answer.status == 400
    assert "maximum context length is 4096 tokens" in json.loads(answer.read())["error"]["message"]
    assert answer.getheader("x-firsttoken-engine") == "simulated"
    connection.close()


def test_a_deleted_pod_finishes_its_streams_and_its_server_ends(played: LocalCluster) -> None:
    before = engines(played)
    address = {name: pod["status"]["podIP"] for name, pod in before.items()}
    assert {health(played, one) for one in address.values()} == {200}
    leaving = sorted(before)[0]
    with Watchers(base(played), MODEL, clients=4, tokens=150) as watched:
        wait_for("streams", lambda: watched.whole > 0, timeout_s=60.0)
        played.kubectl("delete", "pod", leaving, "--wait=false")
        wait_for("the pod's end", lambda: leaving not in engines(played), timeout_s=120.0)
    assert watched.faults == []
    wait_for("its successor", lambda: sum(map(ready, engines(played).values())) == 2, timeout_s=60.0)
    now = engines(played)
    gone = set(address.values()) - {pod["status"]["podIP"] for pod in now.values()}
    assert gone == {address[leaving]}
    assert health(played, gone.pop()) == 503  # nobody listens there any more
    assert timed(base(played), MODEL, question(100), 4).prompt == 100


def test_live_settings_reach_the_engines_and_are_acknowledged(played: LocalCluster) -> None:
    """The operator, which would write its own back, is stopped meanwhile."""
    service = played.client.get("firsttoken.dev/v1alpha1", "InferenceService", SERVICE)
    assert service is not None
    revision = service["status"]["revision"]["stable"]
    played.processes.stop([OPERATOR])
    values = {"tokenBudget": 128, "decodeCap": 64, "longPrefillThreshold": 0}
    content = {"generation": 42, "default": values, "trial": None}
    patch = {"data": {"settings.json": json.dumps(content)}}
    played.kubectl("patch", "configmap", f"{revision}-live", "--type=merge", "-p", json.dumps(patch))
    told = f"count(firsttoken_settings_generation{MINE} == 42)"
    wait_for("both engines to acknowledge", lambda: total(played, told) == 2, timeout_s=30.0)
    assert total(played, f"max(firsttoken_token_budget{MINE})") == 128
    large = f'sum(firsttoken_step_tokens_count{MINE[:-1]},phase="prefill"}})'
    small = f'sum(firsttoken_step_tokens_bucket{MINE[:-1]},phase="prefill",le="128.0"}})'
    before, small_before = total(played, large), total(played, small)
    at_a_rate(base(played), MODEL, [question(1000, seed=77)], tokens=1, rate=1.0)
    wait_for("the steps of one prompt", lambda: total(played, large) - before == 8, timeout_s=20.0)  # 1000 / 128
    assert total(played, small) - small_before == 8
    start_operator(played)


def test_nothing_is_left_when_the_player_is_killed_and_when_the_cluster_ends(played: LocalCluster) -> None:
    table = ProcessTable(played.directory)
    record = table.record(PROCESS)
    assert record is not None
    (first,) = Path(f"/proc/{record.pid}/task/{record.pid}/children").read_text().split()
    namespace = Path(f"/proc/{first}/ns/pid").readlink()
    # The player, DNS, two Envoys and two routers.
    assert len(inside(namespace)) >= 6
    os.kill(record.pid, signal.SIGKILL)
    wait_for("all of it to end", lambda: not inside(namespace), timeout_s=30.0)
    down(directory=played.directory)
    assert table.marked() == []
    assert not played.directory.exists()


def inside(namespace: Path) -> list[str]:
    """Processes of that namespace of processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found += [path.name] if (path / "ns" / "pid").readlink() == namespace else []
    return found
