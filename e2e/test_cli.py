"""`firsttoken status` against a real cluster: its exit codes and what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from e2e.support import Space, inference_service


def status(space: Space, *arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "firsttoken_operator.cli", "status", "-n", space.name, *arguments]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig or space.cluster.kubeconfig), "COLUMNS": "120"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)


def test_status_of_a_ready_service(space: Space) -> None:
    space.apply(inference_service("seen"))
    space.wait_ready("seen")
    done = status(space, "seen")
    assert done.returncode == 0, done.stderr
    for told in (
        "Ready",
        f"http://seen.{space.name}.svc/v1",
        "serve",
        "nvidia-a100-40gb",
        "first revision",
        "TokenBudget",
    ):
        assert told in done.stdout
    assert json.loads(status(space, "seen", "-o", "json").stdout)["ready"] is True
    assert "seen" in status(space).stdout


def test_status_says_no_with_1_and_the_reason(space: Space) -> None:
    space.apply(inference_service("short", accelerator={"type": "nvidia-h200"}))
    space.wait_condition("short", "Ready", "False", "MissingGPUs")
    done = status(space, "short")
    assert done.returncode == 1
    assert "MissingGPUs" in done.stdout
    missing = status(space, "nobody")
    assert missing.returncode == 1
    assert "nobody" in missing.stderr


def test_status_without_a_cluster_ends_with_3_in_one_line(space: Space, tmp_path: Path) -> None:
    text = space.cluster.kubeconfig.read_text().replace(str(space.cluster.ports["apiserver"]), "1")
    unreachable = tmp_path / "kubeconfig"
    unreachable.write_text(text)
    done = status(space, "any", kubeconfig=unreachable)
    assert done.returncode == 3
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
