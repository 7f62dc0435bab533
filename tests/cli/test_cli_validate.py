"""`validate`, and what -f accepts."""

import json
from pathlib import Path

import pytest

from cli import samples
from cli.conftest import Run
from firsttoken_operator.cli import files

# Each list holds eight of the one before: a few lines that stand for 300,000 values.
BOMB = b"a0: &a0 [x, x, x, x, x, x, x, x]\n" + b"".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]\n".encode() for n in range(1, 6)
)


def written(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


def test_a_good_file_says_ok_in_one_stable_line(cli: Run, tmp_path: Path) -> None:
    path = written(tmp_path, good=samples.SERVICE) / "good.yaml"
    result = cli("validate", "-f", path)
    assert (result.code, result.out, result.err) == (0, f"{path}:2: InferenceService/kb-assistant: ok\n", "")


def test_each_fault_is_one_line_with_file_line_object_path_and_message(cli: Run, tmp_path: Path) -> None:
    path = written(tmp_path, bad=samples.BAD) / "bad.yaml"
    result = cli("validate", "-f", path)
    assert result.code == 2
    first, second = result.out.splitlines()
    assert first.startswith(f"{path}:15: InferenceService/kb-assistant: spec.workload.promptTokens.p95: ")
    assert "p95 is below p50" in first
    assert second.startswith(f"{path}:19: InferenceService/kb-assistant: spec.slos[0].percentile: ")


def test_several_files_folders_and_other_kinds(cli: Run, tmp_path: Path) -> None:
    folder = written(tmp_path, a=samples.SERVICE, b=samples.FOREIGN, c=samples.PROFILE + "---\n" + samples.FOREIGN)
    (folder / "notes.txt").write_text("not looked at")
    result = cli("validate", "-f", folder)
    assert result.code == 0
    lines = result.out.splitlines()
    assert [line for line in lines if line.endswith(": ok")] == [
        f"{folder}/a.yaml:2: InferenceService/kb-assistant: ok",
        f"{folder}/c.yaml:1: AcceleratorProfile/our-gpu: ok",
    ]
    assert len([line for line in lines if "was not checked" in line]) == 2


def test_folders_of_folders_only_with_recursive(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    written(tmp_path / "below", a=samples.SERVICE)
    assert cli("validate", "-f", tmp_path).code == 2
    assert cli("validate", "-f", tmp_path, "-R").code == 0


def test_recursion_leaves_hidden_folders_out_unless_they_are_named(cli: Run, tmp_path: Path) -> None:
    hidden = tmp_path / ".git" / "deep"
    hidden.mkdir(parents=True)
    written(hidden, bad=samples.BAD)
    written(tmp_path, good=samples.SERVICE)
    result = cli("validate", "-f", tmp_path, "-R")
    assert (result.code, len(result.out.splitlines())) == (0, 1)
    assert cli("validate", "-f", hidden, "-R").code == 2


def test_a_file_that_was_named_must_hold_something_of_ours(cli: Run, tmp_path: Path) -> None:
    path = written(tmp_path, foreign=samples.FOREIGN) / "foreign.yaml"
    assert cli("validate", "-f", path).code == 2
    result = cli("validate", "-f", tmp_path)
    assert (result.code, len(result.out.splitlines())) == (2, 2)  # skipped, and nothing else there


def test_json_says_the_same_as_the_lines(cli: Run, tmp_path: Path) -> None:
    folder = written(tmp_path, a=samples.SERVICE, b=samples.BAD, c=samples.FOREIGN)
    result = cli("validate", "-f", folder, "-o", "json")
    said = json.loads(result.out)
    assert result.code == 2
    assert said["valid"] is False
    assert said["ok"] == [{"file": f"{folder}/a.yaml", "line": 2, "kind": "InferenceService", "name": "kb-assistant"}]
    assert [(f["line"], f["path"]) for f in said["faults"]] == [
        (15, "spec.workload.promptTokens.p95"),
        (19, "spec.slos[0].percentile"),
    ]
    assert len(said["skipped"]) == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xfe\x00a", "not UTF-8 text (byte 0xff in line 1)"),
        (b"a: 1\nb: \xe4\n", "not UTF-8 text (byte 0xe4 in line 2)"),
        (b"a: \0\n", "NUL"),
        (b"a: [1\n", "not YAML"),
        (b"a:\n\t- 1\n", "tab"),
        (b"", "holds no object"),
        (b"# only a comment\n", "holds no object"),
        (b"just text", "not an object"),
        (b"- 1\n- 2\n", "not an object"),
        (b"[" * 5000, "nested too deeply"),
        (b"x" * (files.MAX_BYTES + 1), "larger than 2 MiB"),
        (BOMB, "too large"),
    ],
)
def test_files_that_are_no_manifest_are_one_line(cli: Run, tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(data)
    result = cli("validate", "-f", path)
    assert result.code == 2
    assert why in result.out
    assert len(result.out.splitlines()) == 1


def test_paths_that_cannot_be_read_are_one_line(cli: Run, tmp_path: Path) -> None:
    locked = tmp_path / "locked.yaml"
    locked.symlink_to(locked)  # a loop: unreadable for every user, root too
    for path, why in (
        (tmp_path / "none.yaml", "no such file or folder"),
        (tmp_path, "the folder has no .yaml"),
        (locked, "can't be read"),
        ("x" * 5000, "too long"),
        ("a\0b", "can't be read"),
    ):
        result = cli("validate", "-f", path)
        assert result.code == 2
        assert why in result.out
        assert len(result.out.splitlines()) == 1


def test_one_bad_path_does_not_hide_the_others(cli: Run, tmp_path: Path) -> None:
    path = written(tmp_path, good=samples.SERVICE) / "good.yaml"
    result = cli("validate", "-f", tmp_path / "none.yaml", "-f", path)
    assert result.code == 2
    assert "ok" in result.out
    assert "no such file" in result.out


def test_what_a_file_holds_cannot_steer_the_terminal(cli: Run, tmp_path: Path) -> None:
    text = samples.SERVICE.replace("kb-assistant", '"kb\\e[2J"')
    result = cli("validate", "-f", written(tmp_path, odd=text) / "odd.yaml")
    assert result.code == 2
    assert "\x1b" not in result.out


@pytest.mark.parametrize(
    ("patch", "place", "hint"),
    [
        ("  worklaod: {profile: Chat}", "spec.worklaod", "did you mean spec.workload?"),
        ("  maxModelLength: 4096", "spec.maxModelLength", "did you mean spec.model.maxModelLength?"),
        ("  scaling: {minReplica: 2}", "spec.scaling.minReplica", "did you mean spec.scaling.minReplicas?"),
        (
            "  slos: [{metric: TTFT, target: 1s}, {metrc: TTFT, target: 2s}]",
            "spec.slos[1].metrc",
            "did you mean spec.slos[1].metric?",
        ),
        ("  accelerator: {type: A100}", "spec.accelerator.type", "did you mean nvidia-a100-40gb or nvidia-a100-80gb"),
        (
            "  slos: [{metric: TTFT, target: 1s}, {metric: TTFT, promptTokens: 512-1000, target: 2s}]",
            "spec.slos",
            "spec.slos[1].promptTokens is 512-1000; measured are 0-64, 64-256, 256-512, 512-1024, 1024-4096",
        ),
        (
            "  measurement: {promptTokenBuckets: [100]}\n  slos: [{metric: TTFT, promptTokens: 0-64, target: 2s}]",
            "spec.slos",
            "spec.slos[0].promptTokens is 0-64; measured are 0-100, 100+",
        ),
    ],
)
def test_a_fault_says_what_was_meant(cli: Run, tmp_path: Path, patch: str, place: str, hint: str) -> None:
    least = "apiVersion: firsttoken.dev/v1alpha1\nkind: InferenceService\nmetadata: {name: a}\nspec:\n"
    own = "" if "accelerator" in patch else "  accelerator: {type: nvidia-a100-40gb}\n"
    text = f"{least}  model: {{uri: hf://Qwen/Qwen2.5-7B-Instruct}}\n{own}{patch}\n"
    result = cli("validate", "-f", written(tmp_path, bad=text) / "bad.yaml")
    (line,) = [line for line in result.out.splitlines() if f": {place}: " in line]
    assert hint in line


def test_a_field_like_no_other_gets_no_hint(cli: Run, tmp_path: Path) -> None:
    text = samples.SERVICE.rstrip() + "\n  xyzzy: 1\n"
    line = cli("validate", "-f", written(tmp_path, odd=text) / "odd.yaml").out.strip()
    assert line.endswith('unknown field "spec.xyzzy"')
