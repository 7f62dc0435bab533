"""The demo's own logic, and how it and temporary clusters end; e2e plays the whole story."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firsttoken_local import demo
from firsttoken_local.guard import release, start_guard
from firsttoken_local.signals import ending_signals_raise


def test_a_table_is_cut_after_the_last_column_that_fits() -> None:
    table = "NAME   READY   LAYOUT       AGE\nabc    True    Colocated    3s\n"
    assert demo.fitting(table, 80) is None
    assert table.splitlines()[1][: demo.fitting(table, 24)].split() == ["abc", "True"]


def test_a_name_in_use_is_refused_and_its_cluster_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "cluster_folder", lambda name: tmp_path / name)
    (tmp_path / "mine").mkdir()
    assert demo.main(["--name", "mine"]) == 1
    assert "there is a cluster mine already" in " ".join(capsys.readouterr().out.split())
    assert (tmp_path / "mine").exists()


def test_the_new_revision_is_alone_when_only_the_old_record_is_left() -> None:
    revision = {"desired": "new", "stable": "new"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "observedGeneration": 2, "revision": revision}
    service = {"metadata": {"generation": 2}, "status": ready}
    story = demo.Story.__new__(demo.Story)
    story._objects = {("InferenceRevision", "old"): "old", ("Deployment", "old"): "old", ("Service", "kb"): None}
    assert not demo.alone(service, story)
    del story._objects[("Deployment", "old")]
    assert demo.alone(service, story)


def test_a_guard_that_is_told_to_keep_leaves_everything(tmp_path: Path) -> None:
    for keep in (True, False):
        scratch = tmp_path / str(keep)
        scratch.mkdir()
        release(start_guard(scratch, scratch), keep=keep)
        assert scratch.exists() is keep


def unwound(number: int) -> None:
    with ending_signals_raise():
        os.kill(os.getpid(), number)
        time.sleep(5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ending_signals_unwind_the_stack(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as end:
            unwound(number)
        assert end.value.code == 128 + number
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_hang_up_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with ending_signals_raise(once=True):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


IMPATIENT = """
import time
from firsttoken_local.signals import ending_signals_raise
try:
    with ending_signals_raise(once=True):
        try:
            print("up", flush=True)
            time.sleep(60)
        finally:
            print("cleaning", flush=True)
            time.sleep(1)
            print("clean", flush=True)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_second_interrupt_does_not_break_off_the_clean_up() -> None:
    with subprocess.Popen([sys.executable, "-c", IMPATIENT], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        assert child.stdout.readline() == "up\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "cleaning\n"
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGTERM)
        assert child.stdout.read() == "clean\ninterrupted\n"
    assert child.returncode == 0
