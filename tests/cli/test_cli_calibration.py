"""`plan --calibration`: measurements of a live fleet from the revisions that kubectl printed."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli import samples
from cli.conftest import Run
from firsttoken.api.base import API_VERSION


def entry(stage: str, **changes: Any) -> dict[str, Any]:
    good = {"stage": stage, "accelerator": "nvidia-a100-40gb", "model": "mistral-7b-v0.3", "tensorParallel": 1,
            "ratio": 1.2, "low": 1.14, "high": 1.26, "requests": 500}  # fmt: skip
    return {**good, **changes}


def revision(*entries: Any, **changes: Any) -> dict[str, Any]:
    meta = {"name": "kb-assistant-1", "creationTimestamp": "2026-05-01T00:00:00Z"}
    status = {"calibration": list(entries)}
    return {"apiVersion": API_VERSION, "kind": "InferenceRevision", "metadata": meta, "status": status, **changes}


@pytest.fixture
def service(tmp_path: Path) -> Path:
    path = tmp_path / "service.yaml"
    path.write_text(samples.SERVICE, encoding="utf-8")
    return path


def kept(folder: Path, value: Any) -> Path:
    path = folder / "revisions.yaml"
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value), encoding="utf-8")
    return path


@pytest.mark.parametrize("listed", [True, False])
def test_the_plan_uses_it_and_says_which_numbers_are_calibrated(
    cli: Run, service: Path, tmp_path: Path, listed: bool
) -> None:
    one = revision(entry("prefill"), entry("decode"))
    path = kept(tmp_path, {"apiVersion": "v1", "kind": "List", "items": [one]} if listed else one)
    plan = json.loads(cli("plan", "-f", service, "--calibration", path, "-o", "json").out)
    assert [(c["stage"], c["ratio"]) for c in plan["predicted"]["calibrated"]] == [("prefill", 1.2), ("decode", 1.2)]
    told = " ".join(cli("plan", "-f", service, "--calibration", path).out.split())
    assert "calibrated" in told
    assert "calibrated" not in " ".join(cli("plan", "-f", service).out.split())


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "no InferenceRevision in"),
        (samples.SERVICE, "no InferenceRevision in"),
        (revision(), "has a usable status.calibration"),
        (revision(entry("prefill", requests=3)), "has a usable status.calibration"),
        (revision(status="text"), "no InferenceRevision in"),
        (revision(status={"calibration": "text"}), "has a usable status.calibration"),
        ("a: [", "revisions.yaml:"),
    ],
)
def test_a_file_without_measurements_is_bad_input_in_one_line(
    cli: Run, service: Path, tmp_path: Path, value: Any, says: str
) -> None:
    result = cli("plan", "-f", service, "--calibration", kept(tmp_path, value))
    assert result.code == 2
    assert says in result.err
    assert result.err.count("\n") == 1


def test_a_file_that_is_not_there_and_a_simulation_are_refused(cli: Run, service: Path, tmp_path: Path) -> None:
    assert cli("plan", "-f", service, "--calibration", tmp_path / "none.yaml").code == 2
    path = kept(tmp_path, revision(entry("prefill")))
    result = cli("plan", "-f", service, "--calibration", path, "--simulate")
    assert (result.code, "leave out --calibration" in result.err) == (2, True)
