"""Child processes that belong to a state directory.

Each runs in a session of its own, writes to its own log and leaves a record of its process id and start time.
The start time is compared before any signal is sent: a process id that the system gave to somebody else in the
meantime is never signalled. Records outlive the command that started the process, so a later command finds it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from firsttoken_local.errors import LocalError, tail
from firsttoken_local.waiting import wait_for

MARK = "FIRSTTOKEN_CLUSTER"  # environment variable naming the state directory: finds processes without a record
_children: dict[int, subprocess.Popen[bytes]] = {}  # started by this interpreter: must be reaped by it


@dataclass(frozen=True)
class Record:
    """What is remembered of a started process; ``started`` tells it from a later one with the same id.

    ``log_start`` is the size of its log, in bytes, when it was started: what came before are others' words.
    """

    name: str
    pid: int
    started: str
    argv: tuple[str, ...]
    log_start: int = 0


def start_time(pid: int) -> str | None:
    """Return a text that identifies this life of process ``pid``, or None when it is dead (or a zombie)."""
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        return None
    try:
        # The command name in parentheses may hold blanks and parentheses: fields count from the last one.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return _start_time_from_ps(pid) if sys.platform != "linux" else None
    return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"


def _start_time_from_ps(pid: int) -> str | None:
    """Do the same without a /proc file system."""
    done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB, or 0 when it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    sizes = [int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS:")]
    return sizes[0] / 1024 if sizes else 0.0


class ProcessTable:
    """The processes of one state directory: records below ``run/``, logs below ``logs/``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._run = directory / "run"
        self._logs = directory / "logs"

    def log(self, name: str) -> Path:
        """Return the log file of the process called ``name``."""
        return self._logs / f"{name}.log"

    def records(self) -> list[Record]:
        """Return what is recorded, alive or not, by name."""
        found = (self.record(path.stem) for path in sorted(self._run.glob("*.json")))
        return [record for record in found if record]

    def record(self, name: str) -> Record | None:
        """Return the record of one process, or None when there is none that can be read."""
        try:
            data = json.loads((self._run / f"{name}.json").read_text())
            return Record(
                data["name"], int(data["pid"]), data["started"], tuple(data["argv"]), int(data.get("log_start", 0))
            )
        except (OSError, ValueError, KeyError):
            return None

    def alive(self, name: str) -> bool:
        """Tell whether the recorded process still lives, and is that very process."""
        record = self.record(name)
        return record is not None and start_time(record.pid) == record.started

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> bool:
        """Start a process unless it runs already with the same arguments; return whether it was started.

        Raises:
            LocalError: the program cannot be executed.
        """
        record = self.record(name)
        if record and self.alive(name):
            if record.argv == tuple(argv):
                return False
            self.stop([name])
        self._run.mkdir(parents=True, exist_ok=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as log:
            log_start = log.tell()
            try:
                child = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.directory,
                    env={**os.environ, **(env or {}), MARK: str(self.directory)},
                    start_new_session=True,
                )
            except OSError as error:
                raise LocalError(f"{name} cannot be started: {error}") from error
        _children[child.pid] = child
        # A process that ended at once has no start time; the empty one matches nothing, so it counts as dead.
        self._remember(Record(name, child.pid, start_time(child.pid) or "", tuple(argv), log_start))
        return True

    def check(self, name: str) -> None:
        """Raise with the end of the log when the process is not alive any more.

        Raises:
            LocalError: the process ended.
        """
        if self.alive(name):
            return
        record = self.record(name)
        child = _children.get(record.pid) if record else None
        code = f" with exit status {child.returncode}" if child and child.returncode is not None else ""
        said = tail(self.log(name), start=record.log_start if record else 0)
        raise LocalError(f"{name} ended early{code}; log: {self.log(name)}", said)

    def ended(self) -> list[Record]:
        """Return the records of the processes that are not alive any more."""
        return [record for record in self.records() if not self.alive(record.name)]

    def check_all(self, apart_from: Collection[Record] = ()) -> None:
        """The same for every recorded process; what had :meth:`ended` before, and was not started again, is no news."""
        for record in self.records():
            if record not in apart_from:
                self.check(record.name)

    def stop(self, names: Iterable[str], grace_s: float = 10.0) -> None:
        """End processes: SIGTERM to all, and SIGKILL to those that are left after ``grace_s`` seconds.

        Raises:
            LocalError: a process survived SIGKILL for 10 s.
        """
        records = [record for name in names if (record := self.record(name))]
        self._end(records, grace_s)
        for record in records:
            (self._run / f"{record.name}.json").unlink(missing_ok=True)

    def stop_all(self, grace_s: float = 10.0) -> None:
        """End every process of the state directory, also those whose record was lost.

        Raises:
            LocalError: a process survived SIGKILL for 10 s.
        """
        self.stop([record.name for record in self.records()], grace_s)
        self._end(self.marked(), grace_s)

    def _remember(self, record: Record) -> None:
        path = self._run / f"{record.name}.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(record)))
        partial.replace(path)

    def _end(self, records: Sequence[Record], grace_s: float) -> None:
        """Signal the process groups of those records whose process is still the recorded one."""
        for kind, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
            left = [record for record in records if start_time(record.pid) == record.started]
            if not left:
                return
            for record in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(record.pid, kind)
            last = kind is signal.SIGKILL
            with contextlib.nullcontext() if last else contextlib.suppress(LocalError):
                wait_for(
                    f"the end of {', '.join(record.name for record in left)}",
                    lambda left=left: all(start_time(r.pid) != r.started for r in left),  # type: ignore[misc]
                    timeout_s=patience_s,
                    interval_s=0.02,
                )

    def marked(self) -> list[Record]:
        """Find living processes that carry this directory in their environment (needs /proc)."""
        mark = f"{MARK}={self.directory}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            pid = int(path.parent.name)
            try:
                marked = mark in path.read_bytes().split(b"\0")
                leader = os.getpgid(pid) == pid  # a group is signalled as a whole, through its leader
            except OSError:
                continue
            started = start_time(pid)
            if marked and leader and started and pid != os.getpid():
                found.append(Record(f"process {pid}", pid, started, ()))
        return found
