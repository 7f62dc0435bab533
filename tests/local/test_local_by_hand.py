"""What a person does by hand on a local cluster: a shell, images, a helm install of their own, the cache. None runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from firsttoken_local import __main__ as commands
from firsttoken_local import cluster, installation, kept, layout, operator
from firsttoken_local.errors import LocalError
from firsttoken_local.images.catalogue import IMAGES
from firsttoken_local.layout import PORT_NAMES, Layout, load_layout
from firsttoken_local.processes import ProcessTable
from firsttoken_local.progress import Silent


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """The state of a cluster called dev."""
    monkeypatch.setattr(layout, "CLUSTERS", tmp_path)
    chosen = Layout(tmp_path / "dev", dict.fromkeys(PORT_NAMES, 1))
    chosen.save()
    return chosen


class Node:
    """A stand-in for the real node that remembers what it was given."""

    def __init__(self, *there: str) -> None:
        self.given: list[Path] = []
        self.there = there

    def import_image(self, archive: Path) -> str:
        self.given.append(archive)
        return archive.name

    def images(self) -> dict[str, str]:
        return dict.fromkeys(self.there, "sha256:0")


def test_a_cluster_remembers_that_it_is_left_to_helm(tmp_path: Path) -> None:
    for definitions in (True, False):
        Layout(tmp_path, dict.fromkeys(PORT_NAMES, 1), definitions=definitions).save()
        found = load_layout(tmp_path)
        assert found is not None
        assert found.definitions is definitions
    state = json.loads((tmp_path / "state.json").read_text())
    del state["definitions"]  # of a cluster that an older version started
    (tmp_path / "state.json").write_text(json.dumps(state))
    old = load_layout(tmp_path)
    assert old is not None
    assert old.definitions


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--operator", "was left to a `helm install`: go on with OPERATOR=0, or `make cluster-down NAME=dev`"),
        ("--bare", "has definitions already, which helm would refuse: `make cluster-down NAME=dev` first"),
    ],
)
def test_two_operators_in_one_cluster_are_refused_before_anything_starts(
    dev: Layout, flag: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Layout(dev.directory, dev.ports, definitions=flag == "--bare").save()  # the other way round than it is asked for
    monkeypatch.setattr(cluster, "up", lambda *_, **__: pytest.fail("started"))
    assert commands.main(["up", "--name", "dev", flag]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("offline", [True, False])
def test_only_a_test_s_operator_is_kept_from_the_hub(
    tmp_path: Path, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, str]] = []
    monkeypatch.setattr(ProcessTable, "start", lambda *given: bool(started.append(given[3])))
    monkeypatch.setattr(operator, "await_http", lambda *_: None)
    stand_in: Any = SimpleNamespace(
        processes=ProcessTable(tmp_path),
        operator_kubeconfig=tmp_path / "config",
        node=None,
        prometheus=None,
        layout=SimpleNamespace(played=False),
    )
    operator.start_operator(stand_in, offline=offline)
    assert started == [{"HF_HUB_OFFLINE": "1"} if offline else {}]


def test_a_running_operator_keeps_its_ports_and_its_process_until_its_flags_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "sleeps"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(operator, "await_http", lambda *_: None)
    monkeypatch.setattr(operator.sys, "executable", str(program))
    table = ProcessTable(tmp_path)
    stand_in: Any = SimpleNamespace(
        processes=table,
        operator_kubeconfig=tmp_path / "config",
        node=None,
        prometheus=None,
        layout=SimpleNamespace(played=False),
    )
    try:
        first = operator.start_operator(stand_in)
        before = table.record(operator.NAME)
        assert operator.start_operator(stand_in) == first
        assert table.record(operator.NAME) == before
        assert operator.start_operator(stand_in, operator.NAME, "--engine-image", "mine") == first
        after = table.record(operator.NAME)
        assert before is not None
        assert after is not None
        assert after.pid != before.pid
        assert after.argv[-2:] == ("--engine-image", "mine")
    finally:
        table.stop_all(grace_s=0.2)


def test_with_all_images_comes_the_values_file_that_names_them(dev: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    def ensured(names: Any, _: object) -> dict[str, Path]:
        return {name: Path(f"{name}.tar") for name in names}

    monkeypatch.setattr(installation, "ensure_images", ensured)
    node: Any = Node()
    installation.give_images(node, dev, installation.SERVED_BY, Silent())
    assert Path("operator.tar") not in node.given
    assert not dev.values.exists()
    installation.give_images(node, dev, IMAGES, Silent())
    assert Path("operator.tar") in node.given
    assert yaml.safe_load(dev.values.read_text()) == installation.values()


def test_what_the_node_lacks_is_named(dev: Layout) -> None:
    node: Any = Node(installation.reference("envoy"), "localhost/firsttoken/router:of-yesterday")
    del dev
    assert installation.missing_images(node, ("router", "envoy")) == ["router"]


def test_the_operator_s_flags_name_the_images_made_here() -> None:
    flags = installation.image_flags()
    assert flags[::2] == ["--engine-image", "--router-image", "--envoy-image"]
    assert flags[1::2] == [installation.reference(name) for name in ("runtime-cpu", "router", "envoy")]


def test_images_for_a_cluster_without_a_real_node_are_one_line(dev: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    for name, fault in (("dev", "has no real node that runs"), ("none", "there is no cluster none")):
        assert commands.main(["import-images", "--name", name]) == 1
        error = capsys.readouterr().err
        assert fault in error
        assert f"`make cluster NAME={name} REAL_NODE=1`" in error
        assert len(error.splitlines()) == 1
    assert dev.directory.exists()


def test_a_shell_evaluates_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spaced = Layout(tmp_path / "a b", dict.fromkeys(PORT_NAMES, 1))
    monkeypatch.setattr(commands, "_running_layout", lambda _: spaced)
    monkeypatch.setattr(commands, "ensure", lambda *_: {"kubernetes": tmp_path / "k u"})
    monkeypatch.setattr(commands, "built", lambda _: None)
    assert commands.main(["env"]) == 0
    script = f'{capsys.readouterr().out}\necho "$KUBECONFIG"\necho "$PATH"'
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=True, env={"PATH": "/bin"})
    assert done.stdout.splitlines() == [
        str(spaced.kubeconfig),
        f"{tmp_path / 'k u'}:{Path(sys.executable).parent}:/bin",
    ]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "firsttoken"
    (folder / "bin" / "kubernetes-1").mkdir(parents=True)
    (folder / "bin" / "kubernetes-1" / "etcd").write_bytes(bytes(3_000_000))
    os.link(folder / "bin" / "kubernetes-1" / "etcd", folder / "bin" / "again")  # counts once
    (folder / "ports.json").write_text("{}")
    return folder


def test_the_cache_is_measured_and_removed_by_part(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["cache"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"in {cache}:"
    assert lines[1].split()[:3] == ["3", "MB", "bin"]
    assert lines[-1].split() == ["3", "MB", "in", "all"]
    assert commands.main(["cache", "--remove"]) == 0
    assert not (cache / "bin").exists()
    assert (cache / "ports.json").exists(), "what other clusters have chosen"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_cache_in_use_is_left_alone(cache: Path) -> None:
    program = cache / "bin" / "etcd"
    program.write_bytes(Path("/bin/sleep").resolve().read_bytes())
    program.chmod(0o755)
    running = subprocess.Popen([program, "60"])
    try:
        with pytest.raises(LocalError, match=r"in use by etcd: end the clusters first: .*down --all"):
            kept.remove()
        assert program.exists()
    finally:
        running.kill()
        running.wait()
    kept.remove()
    assert not program.exists()


def test_make_leaves_the_operator_out_where_it_is_told_to() -> None:
    def recipe(*variables: str) -> list[str]:
        argv = ["make", "-n", "-o", "possible", "-o", ".venv/.installed", *variables, "cluster"]
        # As a person calls it, also where make runs the tests: its flags would be taken over, and its folders printed.
        env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        done = subprocess.run(
            argv, cwd=layout.REPOSITORY, capture_output=True, text=True, check=True, timeout=60, env=env
        )
        return done.stdout.replace("\\\n", "").split()

    assert "--operator" in recipe()
    assert "--real-node" not in recipe()
    assert recipe("REAL_NODE=1", "OPERATOR=0")[-3:] == ["--bare", "--real-node", "--images"]
