"""`rehearse`: what it shows, in both forms, how it ends, and what it refuses."""

import json
from pathlib import Path

import pytest
import yaml

from cli import samples
from cli.conftest import Run

pytestmark = pytest.mark.timeout(900)  # the first run compiles

REPOSITORY = Path(__file__).parents[2]
WORLDS = sorted((REPOSITORY / "examples" / "worlds").glob("*.yaml"))
QUICK = "duration: 4m\nstartup: 20s\nrequestsPerSecond: 1\nwindow: 1m\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("SERVICE", "INFEASIBLE"):
        (tmp_path / f"{name.lower()}.yaml").write_text(getattr(samples, name), encoding="utf-8")
    events = "events:\n  - at: 2m\n    losePods: {count: 1}\n"
    (tmp_path / "world.yaml").write_text(QUICK + events, encoding="utf-8")
    return tmp_path


def test_the_table_has_timeline_windows_and_the_end(cli: Run, folder: Path) -> None:
    result = cli("rehearse", "-f", folder / "service.yaml", "--world", folder / "world.yaml")
    assert result.code == 0
    for part in (
        "0:04:00 of virtual time",
        "Timeline",
        "RevisionCreated",
        "0:02:00  world     PodsLost",
        "LOST",
        "At the end",
    ):
        assert part in result.out
    assert "the world took 1 pod" in result.out


def test_json_has_everything_and_equal_seeds_give_equal_bytes(cli: Run, folder: Path) -> None:
    asked = ("rehearse", "-f", folder / "service.yaml", "--world", folder / "world.yaml", "-o", "json", "--seed")
    first, again, other = (cli(*asked, seed) for seed in ("7", "7", "8"))
    assert first.out == again.out != other.out
    found = json.loads(first.out)
    assert (found["passed"], found["ready"], found["podsLost"], found["seed"]) == (True, True, 1, 7)
    assert found["timeline"][0] == {
        "at": 0.0, "who": "world", "reason": "Applied", "message": "InferenceService/kb-assistant",
    }  # fmt: skip
    everything = [w for w in found["windows"] if w["promptTokens"] == "all"]
    assert sum(w["served"] for w in everything) == found["requests"]["served"]


def test_what_is_not_ready_at_the_end_ends_with_1(cli: Run, folder: Path) -> None:
    (folder / "slow.yaml").write_text("duration: 1m\nstartup: 5m\n", encoding="utf-8")
    result = cli("rehearse", "-f", folder / "service.yaml", "--world", folder / "slow.yaml")
    assert result.code == 1
    assert "not Ready (WaitingForPods)" in result.out
    assert cli("rehearse", "-f", folder / "infeasible.yaml").code == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("duration: 1h\nevents:\n  - at: 1m\n    losePods: {count: 0}\n", "w.yaml:4: events[0].losePods.count: Input"),
        ("a: b: c\n", "w.yaml:1: not YAML"),
        ("duration: 1h\n---\nduration: 2h\n", "holds 2 documents"),
        ("events:\n  - at: 5s\n    deleteObject: {kind: Secret, name: x}\n", "no Secret is named x; there are: none"),
    ],
)
def test_bad_worlds_are_one_line_and_code_2(cli: Run, folder: Path, text: str, says: str) -> None:
    (folder / "w.yaml").write_text(text, encoding="utf-8")
    result = cli("rehearse", "-f", folder / "service.yaml", "--world", folder / "w.yaml")
    assert (result.code, result.out) == (2, "")
    assert says in result.err
    assert len([line for line in result.err.splitlines() if "compiling" not in line]) == 1


def test_bad_options_are_said_too(cli: Run, folder: Path) -> None:
    service = folder / "service.yaml"
    assert "--duration: not a duration" in cli("rehearse", "-f", service, "--duration", "x").err
    assert "--seed: Input should be greater" in cli("rehearse", "-f", service, "--seed", "-1").err
    assert "no such file" in cli("rehearse", "-f", service, "--world", folder / "none.yaml").err


@pytest.mark.parametrize("world", WORLDS, ids=lambda p: p.stem)
def test_the_examples_run_and_end_as_they_say(cli: Run, tmp_path: Path, world: Path) -> None:
    """At a tenth of the rate, so that this takes seconds."""
    given = yaml.safe_load(world.read_text(encoding="utf-8"))
    (tmp_path / "w.yaml").write_text(yaml.safe_dump({**given, "requestsPerSecond": 0.8}), encoding="utf-8")
    service = REPOSITORY / "examples" / "kb-assistant.yaml"
    result = cli("rehearse", "-f", service, "--world", tmp_path / "w.yaml", "-o", "json")
    found = json.loads(result.out)
    assert result.code == (1 if world.stem == "bad-version" else 0)
    assert found["ready"]
    told = {entry["reason"] for entry in found["timeline"]}
    shows = {
        "pod-loss": "NodeLost", "traffic": "Burst", "edit": "OperatorKilled", "bad-version": "BadVersion",
        "few-gpus": "MissingGPUs",
    }  # fmt: skip
    assert shows[world.stem] in told
