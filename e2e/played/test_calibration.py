"""What the real Prometheus has of played engines becomes a calibration on the revision, and part of the next plan."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from e2e.played.conftest import SERVICE
from e2e.support import GROUP

from firsttoken.measurement.questions import QUESTIONS
from firsttoken_local.client import at_a_rate, question
from firsttoken_local.cluster import LocalCluster
from firsttoken_local.demo import EXAMPLE
from firsttoken_local.operator import NAME as OPERATOR
from firsttoken_local.operator import start_operator
from firsttoken_local.player.start import service_url
from firsttoken_local.prometheus import PrometheusServer
from firsttoken_local.waiting import wait_for

MODEL = "Qwen2.5-7B-Instruct"
SECONDS, RATE, TOKENS = 110, 4, 30
WINDOW = 90  # seconds; a sixth of it holds scrapes on a busy machine, too
pytestmark = pytest.mark.timeout(600)


def prometheus(cluster: LocalCluster) -> PrometheusServer:
    assert cluster.prometheus is not None
    return cluster.prometheus


def firsttoken(*arguments: str) -> str:
    command = [sys.executable, "-m", "firsttoken_operator.cli", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def service(cluster: LocalCluster) -> dict[str, Any]:
    found = cluster.client.get(GROUP, "InferenceService", SERVICE, "default")
    assert found is not None
    return found


def condition(cluster: LocalCluster) -> tuple[str, str] | None:
    found = {c["type"]: (c["status"], c["reason"]) for c in service(cluster)["status"]["conditions"]}
    return found.get("MetricsAvailable")


def revision(cluster: LocalCluster) -> dict[str, Any]:
    name = service(cluster)["status"]["revision"]["stable"]
    found = cluster.client.get(GROUP, "InferenceRevision", name, "default")
    assert found is not None
    return found


def entries(cluster: LocalCluster) -> dict[str, dict[str, Any]]:
    return {e["stage"]: e for e in (revision(cluster).get("status") or {}).get("calibration", [])}


@pytest.fixture(scope="module")
def measured(played: LocalCluster) -> LocalCluster:
    """With an operator that asks the real Prometheus, and a minute and a half of traffic behind it."""
    url = prometheus(played).url
    start_operator(
        played, OPERATOR, f"--prometheus-url={url}", "--prometheus-interval=3", f"--prometheus-window={WINDOW}"
    )
    prompts = [question(900 + 5 * (n % 100), shared=400, seed=n) for n in range(SECONDS * RATE)]
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(at_a_rate, service_url(played.layout, SERVICE), MODEL, prompts, TOKENS, float(RATE), seed=1)
        wait_for("an entry of each stage", lambda: set(entries(played)) == {"prefill", "decode"}, timeout_s=150.0)
        assert len(sent.result()) == len(prompts)
    return played


def test_measured_over_predicted_is_on_the_revision(measured: LocalCluster) -> None:
    """Played engines keep the model's own time, so the ratio is 1 within its band and what a busy machine adds."""
    for entry in entries(measured).values():
        assert entry["low"] <= entry["ratio"] <= entry["high"]
        assert 0.8 < entry["ratio"] < 1.25
        assert entry["requests"] >= 100
        assert (entry["model"], entry["accelerator"]) == ("qwen2.5-7b", "nvidia-a100-40gb")
    wait_for("what serves to be measured", lambda: condition(measured) == ("True", "Measured"), timeout_s=60.0)


def test_nothing_was_rolled_out_for_it(measured: LocalCluster) -> None:
    names = [r["metadata"]["name"] for r in measured.client.list(GROUP, "InferenceRevision", "default")]
    assert names == [service(measured)["status"]["revision"]["stable"]]
    managers = {m["manager"]: m for m in revision(measured)["metadata"]["managedFields"] if m.get("subresource")}
    assert "f:calibration" in json.dumps(managers)


def test_the_command_line_plans_with_it_and_says_so(measured: LocalCluster, tmp_path: Path) -> None:
    kept = tmp_path / "revisions.json"
    kept.write_text(measured.kubectl("get", "infrev", "-o", "json"))
    plan = json.loads(firsttoken("plan", "-f", str(EXAMPLE), "--calibration", str(kept), "-o", "json"))
    assert {c["stage"] for c in plan["predicted"]["calibrated"]} == {"prefill", "decode"}
    said = next(r["message"] for r in plan["reasons"] if r["code"] == "Predicted")
    assert "calibrated" in said


def test_every_question_has_an_answer(measured: LocalCluster) -> None:
    for one in QUESTIONS:
        assert prometheus(measured).query(one.over(WINDOW, 1)), one.name


def test_an_outage_is_a_condition_until_it_ends(measured: LocalCluster) -> None:
    ready = [c for c in service(measured)["status"]["conditions"] if c["type"] == "Ready"]
    measured.processes.stop(["prometheus"])
    wait_for("the outage to be told", lambda: condition(measured) == ("False", "PrometheusError"), timeout_s=60.0)
    kept = entries(measured)
    assert set(kept) == {"prefill", "decode"}
    assert [c for c in service(measured)["status"]["conditions"] if c["type"] == "Ready"] == ready
    prometheus(measured).start()
    prometheus(measured).await_ready()
    wait_for("its end", lambda: (condition(measured) or ("False", ""))[0] == "True", timeout_s=120.0)


def test_an_operator_that_starts_while_it_is_down_says_so_and_works(measured: LocalCluster) -> None:
    start_operator(measured, OPERATOR, "--prometheus-url=http://127.0.0.1:1", "--prometheus-interval=3")
    wait_for("the outage to be told", lambda: condition(measured) == ("False", "PrometheusError"), timeout_s=60.0)
    start_operator(measured)
    wait_for("nobody to be asked", lambda: condition(measured) is None, timeout_s=60.0)
