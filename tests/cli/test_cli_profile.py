"""`firsttoken profile`: what is known of a GPU type, and of its MIG slices."""

import json
from pathlib import Path

import pytest
import yaml

from cli.conftest import Run
from firsttoken.planning.accelerators import catalogue, catalogue_manifests


def test_without_a_name_all_are_listed(cli: Run) -> None:
    result = cli("profile")
    assert (result.code, result.err) == (0, "")
    assert [line.split()[0] for line in result.out.splitlines()] == sorted(catalogue())


def test_a_profile_is_printed_as_it_is_applied(cli: Run) -> None:
    (wanted,) = (m for m in catalogue_manifests() if m["metadata"]["name"] == "nvidia-l4")
    assert yaml.safe_load(cli("profile", "nvidia-l4").out) == wanted
    assert json.loads(cli("profile", "nvidia-l4", "-o", "json").out) == wanted


@pytest.mark.parametrize("strategy", ["mixed", "single"])
def test_a_slice_can_be_planned_on_at_once(cli: Run, tmp_path: Path, strategy: str) -> None:
    made = cli("profile", "nvidia-a100-40gb", "--mig", "3g.20gb", "--mig-strategy", strategy)
    assert (made.code, made.err) == (0, "")
    (tmp_path / "profile.yaml").write_text(made.out, encoding="utf-8")
    assert cli("validate", "-f", tmp_path / "profile.yaml").code == 0
    spec = yaml.safe_load(made.out)["spec"]
    assert spec["resourceName"] == {"mixed": "nvidia.com/mig-3g.20gb", "single": "nvidia.com/gpu"}[strategy]
    chat = {
        "apiVersion": "firsttoken.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat"},
        "spec": {
            "model": {"uri": "hf://Qwen/Qwen3-0.6B"},
            "accelerator": {"type": "nvidia-a100-40gb-mig-3g.20gb", "maxCount": 2},
        },
    }
    (tmp_path / "chat.yaml").write_text(yaml.safe_dump(chat), encoding="utf-8")
    plan = cli("plan", "-f", tmp_path / "chat.yaml", "--profiles", tmp_path / "profile.yaml", "-o", "json")
    assert plan.code == 0
    (role,) = json.loads(plan.out)["roles"]
    assert role["accelerator"] == "nvidia-a100-40gb-mig-3g.20gb"


def test_the_memory_that_a_label_says_counts(cli: Run) -> None:
    said = cli("profile", "nvidia-a100-40gb", "--mig", "1g.5gb", "--memory", "4000Mi").out
    assert yaml.safe_load(said)["spec"]["memory"] == "4000Mi"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["h100"], 1, "did you mean nvidia-h100-"),
        (["nvidia-t4", "--mig", "1g.5gb"], 1, "NVIDIA T4 has no MIG"),
        (["nvidia-a100-40gb", "--mig", "5g.5gb"], 1, "has no slice 5g.5gb"),
        (["nvidia-a100-40gb", "--mig", "small"], 1, "write it as nvidia-smi does"),
        (["nvidia-a100-40gb", "--mig", "1g.5gb", "--memory", "-1"], 2, "--memory is '-1'"),
        (["nvidia-a100-40gb", "--memory", "4Gi"], 2, "name it with --mig"),
        (["nvidia-a100-40gb", "--mig-strategy", "single"], 2, "name it with --mig"),
        (["--mig", "1g.5gb"], 2, "needs the NAME"),
        (["nvidia-a100-40gb", "--profiles", "/nowhere.yaml"], 2, "/nowhere.yaml"),
    ],
)
def test_what_can_not_be_is_one_line(cli: Run, arguments: list[str], code: int, words: str) -> None:
    result = cli("profile", *arguments)
    assert (result.code, result.out) == (code, "")
    assert words in result.err
    assert len(result.err.splitlines()) == 1
