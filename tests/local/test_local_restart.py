"""`up` on a cluster of which something has ended, and what `down` tells of slow stages. No cluster runs here."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firsttoken_local import __main__ as commands
from firsttoken_local import cluster, ending, layout, progress
from firsttoken_local.layout import PORT_NAMES, Layout
from firsttoken_local.operator import NAME as OPERATOR
from firsttoken_local.processes import ProcessTable
from firsttoken_local.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


class Told:
    """Remembers the lines; :attr:`some` is set with the first."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.some = threading.Event()

    def line(self, text: str) -> None:
        self.lines.append(text)
        self.some.set()

    def transient(self, text: str) -> None:
        del text


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Layout]:
    """A cluster whose own processes are left out: what is left of `up` is the rest."""
    monkeypatch.setattr(layout, "CLUSTERS", tmp_path)
    monkeypatch.setattr(cluster, "ensure", lambda names, _: dict.fromkeys(names, tmp_path))
    parts = ("prepare", "start_node", "start_controllers", "start_kwok", "grant_operator", "_apply_definitions")
    for part in (*parts, "add_nodes", "_check_ports"):
        monkeypatch.setattr(cluster, part, lambda *_, **__: None)
    client = SimpleNamespace(wait=lambda *_: None)
    monkeypatch.setattr(cluster, "start_api", lambda *_: client)
    chosen = Layout(tmp_path / "dev", dict.fromkeys(PORT_NAMES, 1))
    chosen.save()
    yield chosen
    ProcessTable(chosen.directory).stop_all(grace_s=0.2)


def dead_operator(directory: Path) -> None:
    table = ProcessTable(directory)
    table.start(OPERATOR, [sys.executable, "-c", "print('of old')"])
    wait_for("its end", lambda: not table.alive(OPERATOR), timeout_s=10)


@pytest.mark.parametrize("flags", [["--operator"], []], ids=["asked for", "remembered"])
def test_up_starts_an_operator_that_has_ended(
    stand_in: Layout, flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dead_operator(stand_in.directory)
    started: list[cluster.LocalCluster] = []
    monkeypatch.setattr(commands, "start_operator", lambda one, *_, **__: started.append(one))
    assert commands.main(["up", "--name", "dev", "--no-prometheus", *flags]) == 0, capsys.readouterr().err
    assert [one.directory for one in started] == [stand_in.directory]
    assert "operator:    runs" in capsys.readouterr().out


def test_up_without_an_operator_starts_none(stand_in: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        commands, "start_operator", lambda *_, **__: pytest.fail(f"started beside {stand_in.directory}")
    )
    assert commands.main(["up", "--name", "dev", "--no-prometheus"]) == 0


def test_up_fails_with_what_ends_while_it_starts(
    stand_in: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dead_operator(stand_in.directory)
    table = ProcessTable(stand_in.directory)

    def start_kwok(*_: Any) -> None:
        table.start("kwok", [sys.executable, "-c", "print('no such flag', flush=True); raise SystemExit(2)"])
        wait_for("its end", lambda: not table.alive("kwok"), timeout_s=10)

    monkeypatch.setattr(cluster, "start_kwok", start_kwok)
    assert commands.main(["up", "--name", "dev", "--no-prometheus"]) == 1
    said = capsys.readouterr().err
    assert "error: kwok ended early with exit status 2" in said
    assert said.endswith("no such flag\n")


def test_a_slow_stage_is_told_once_and_a_quick_one_is_not() -> None:
    told = Told()
    with progress.told_when_slow(told, "slow", after_s=0.0):
        assert told.some.wait(10)
    with progress.told_when_slow(told, "quick", after_s=600.0):
        pass
    assert told.lines == ["slow"]


def test_down_tells_each_stage_that_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, line = Told(), "down: removing the real node's cgroup, link and rules"

    def slow(*_: object) -> None:
        wait_for("the line, in the course of the stage", lambda: line in told.lines, timeout_s=10)

    monkeypatch.setattr(ending, "told_when_slow", partial(progress.told_when_slow, after_s=0.0))
    monkeypatch.setattr(ending, "remove_traces", slow)
    (tmp_path / "dev").mkdir()
    assert ending.down(directory=tmp_path / "dev", progress=told)
    assert told.lines.count(line) == 1
