"""The guard of a temporary cluster: ends its processes when the Python process that owns it is gone.

It waits for the end of its standard input, a pipe whose other end only the owner holds. The kernel closes that end
however the owner dies, SIGKILL included. A parent-death signal would not do: it is bound to the thread that started
the child, and the cluster starts its processes from several threads.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from firsttoken_local.node.teardown import remove_traces
from firsttoken_local.processes import MARK, ProcessTable

_KEEP = b"keep"


def start_guard(directory: Path, scratch: Path) -> subprocess.Popen[bytes]:
    """Start the guard of a cluster; it acts as soon as the returned object's ``stdin`` is closed.

    ``directory`` is the cluster's state directory, ``scratch`` the folder to remove in the end.
    """
    root = Path(__file__).parents[1]
    paths = [str(root), os.environ.get("PYTHONPATH", "")]
    environment = {key: value for key, value in os.environ.items() if key != MARK}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return subprocess.Popen(
        [sys.executable, "-m", "firsttoken_local.guard", str(directory), str(scratch)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )


def release(guard: subprocess.Popen[bytes], *, keep: bool = False) -> None:
    """Let the guard end, and see to what is left unless ``keep`` tells it to leave everything as it is."""
    if guard.stdin:
        with contextlib.suppress(OSError):  # it was killed
            guard.stdin.write(_KEEP if keep else b"")
            guard.stdin.close()
    guard.wait()


def main(directory: Path, scratch: Path) -> None:
    """Wait for the owner's end, then end what is left and remove the folder."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the owner's end counts
    said = sys.stdin.buffer.read()
    if said != _KEEP and scratch.exists():
        ProcessTable(directory).stop_all(grace_s=1.0)
        remove_traces(directory)  # nothing is deleted when that fails: something may be mounted below
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
