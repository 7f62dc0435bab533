"""Processes: who may be signalled, who is found again, and who dies with whom."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firsttoken_local.errors import LocalError, tail
from firsttoken_local.processes import MARK, ProcessTable, start_time
from firsttoken_local.waiting import wait_for

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture
def table(tmp_path: Path) -> object:
    table = ProcessTable(tmp_path)
    yield table
    table.stop_all(grace_s=0.2)


def pid_of(table: ProcessTable, name: str) -> int:
    record = table.record(name)
    assert record is not None
    return record.pid


def await_up(table: ProcessTable, name: str) -> None:
    wait_for("output", lambda: "up" in tail(table.log(name)), timeout_s=10)


def test_a_second_start_reuses_and_other_arguments_restart(table: ProcessTable) -> None:
    assert table.start("one", SLEEP)
    pid = pid_of(table, "one")
    assert not ProcessTable(table.directory).start("one", SLEEP)
    assert pid_of(table, "one") == pid
    assert table.start("one", [*SLEEP, "other"])
    assert pid_of(table, "one") != pid
    assert start_time(pid) is None


def test_what_died_is_started_again(table: ProcessTable) -> None:
    table.start("one", SLEEP)
    os.kill(pid_of(table, "one"), signal.SIGKILL)
    wait_for("death", lambda: not table.alive("one"), timeout_s=10)
    assert table.start("one", SLEEP)
    assert table.alive("one")


def test_children_lead_their_own_session_and_log_to_a_file(table: ProcessTable) -> None:
    table.start("one", SLEEP)
    await_up(table, "one")
    assert os.getsid(pid_of(table, "one")) == pid_of(table, "one")
    assert table.log("one").read_text() == "up\n"


def test_a_recycled_process_id_is_never_signalled(table: ProcessTable) -> None:
    bystander = subprocess.Popen(SLEEP, stdout=subprocess.DEVNULL, start_new_session=True)
    time.sleep(0.05)  # start times are counted in ticks of 10 ms: these two must differ
    try:
        table.start("one", SLEEP)
        record = table.record("one")
        assert record is not None
        table.stop(["one"], grace_s=0.2)
        forged = dataclasses.replace(record, pid=bystander.pid)
        (table.directory / "run" / "one.json").write_text(json.dumps(dataclasses.asdict(forged)))
        assert not table.alive("one")
        table.stop(["one"], grace_s=0.2)
        table.stop_all(grace_s=0.2)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_stop_kills_what_ignores_sigterm(table: ProcessTable) -> None:
    table.start("stubborn", STUBBORN)
    await_up(table, "stubborn")
    pid = pid_of(table, "stubborn")
    started = time.monotonic()
    table.stop(["stubborn"], grace_s=0.3)
    assert 0.3 <= time.monotonic() - started < 5
    assert start_time(pid) is None
    assert table.record("stubborn") is None


def test_stop_all_finds_processes_without_a_record(table: ProcessTable, tmp_path: Path) -> None:
    table.start("one", SLEEP)
    pid = pid_of(table, "one")
    (table.directory / "run" / "one.json").unlink()
    other = ProcessTable(tmp_path.with_name(tmp_path.name + "0"))  # a longer path with the same beginning
    other.stop_all(grace_s=0.2)
    assert start_time(pid) is not None
    table.stop_all(grace_s=0.2)
    assert start_time(pid) is None


def test_check_shows_status_and_log_of_an_early_end(table: ProcessTable) -> None:
    table.start("bad", [sys.executable, "-c", "print('no such option', flush=True); raise SystemExit(3)"])
    with pytest.raises(LocalError, match="exit status 3") as fault:
        wait_for("never", lambda: table.check("bad"), timeout_s=10)
    assert fault.value.details == "no such option"


BAD = [sys.executable, "-c", "import sys; print(sys.argv[1], flush=True); sys.exit(3)"]


def test_what_had_ended_before_is_no_fault_until_it_is_started_again(table: ProcessTable) -> None:
    table.start("alive", SLEEP)
    table.start("bad", [*BAD, "of old"])
    wait_for("its end", lambda: not table.alive("bad"), timeout_s=10)
    before = ProcessTable(table.directory).ended()  # as a later command sees it
    assert [record.name for record in before] == ["bad"]
    table.check_all(apart_from=before)
    with pytest.raises(LocalError, match="bad ended early"):
        table.check_all()
    table.start("bad", [*BAD, "of this start"])
    wait_for("its end", lambda: not table.alive("bad"), timeout_s=10)
    with pytest.raises(LocalError, match="bad ended early with exit status 3") as fault:
        table.check_all(apart_from=before)
    assert fault.value.details == "of this start"


def test_what_ends_during_a_start_is_a_fault(table: ProcessTable) -> None:
    table.start("one", SLEEP)
    before = table.ended()
    os.kill(pid_of(table, "one"), signal.SIGKILL)
    wait_for("death", lambda: not table.alive("one"), timeout_s=10)
    with pytest.raises(LocalError, match="one ended early"):
        table.check_all(apart_from=before)


def test_a_record_of_an_earlier_version_is_read(table: ProcessTable) -> None:
    table.start("one", SLEEP)
    path = table.directory / "run" / "one.json"
    data = json.loads(path.read_text())
    del data["log_start"]
    path.write_text(json.dumps(data))
    assert table.alive("one")


def test_a_missing_program_is_a_clear_fault(table: ProcessTable) -> None:
    with pytest.raises(LocalError, match="ghost cannot be started"):
        table.start("ghost", [str(table.directory / "nothing")])


def test_deadline_names_what_was_awaited_and_shows_logs(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("\n".join(f"line {number}" for number in range(100)))

    def refused() -> bool:
        raise ConnectionRefusedError("refused")

    with pytest.raises(LocalError, match=r"gave up after 0\.05 s waiting for rain \(last fault: refused\)") as fault:
        wait_for("rain", refused, timeout_s=0.05, logs=[log, tmp_path / "none.log"])
    assert fault.value.details.endswith("line 99")
    assert "line 84\n" not in fault.value.details


OWNER = """
import sys, time
from pathlib import Path
from firsttoken_local.guard import start_guard
from firsttoken_local.processes import ProcessTable
scratch = Path(sys.argv[1])
guard = start_guard(scratch / "cluster", scratch)
table = ProcessTable(scratch / "cluster")
table.start("one", [sys.executable, "-c", "import time; time.sleep(60)"])
print(table.record("one").pid, flush=True)
time.sleep(60)
"""


def test_the_guard_ends_children_of_a_killed_owner(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {key: value for key, value in os.environ.items() if key != MARK}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(scratch)], stdout=subprocess.PIPE, text=True, env=environment
    ) as owner:
        assert owner.stdout
        pid = int(owner.stdout.readline())
        assert start_time(pid) is not None
        owner.kill()
    wait_for("the child's end", lambda: start_time(pid) is None, timeout_s=10)
    wait_for("the folder's end", lambda: not scratch.exists(), timeout_s=10)
