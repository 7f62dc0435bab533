"""The first process of the real node's namespaces: mounts, network, and daemons that are started again.

Run as a file by ``unshare``, with the path of a specification (JSON, see
:func:`firsttoken_local.node.config.specification`); further arguments are ignored. It imports nothing but the
standard library: it starts in milliseconds and stays small.

Each daemon is started when the file it waits for exists, and again whenever it ends: after 0.5 s, and after up to
8 s when it keeps ending early. A machine that stalls for many seconds makes daemons give up; here they come back.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EARLY_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 8.0
SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}


@dataclass
class Daemon:
    """One daemon, its process when it runs, and when it may be started next."""

    name: str
    argv: list[str]
    log: Path
    after: Path | None
    pid: int = 0
    started: float = 0.0
    due: float = 0.0
    pause: float = FIRST_PAUSE_S

    def start(self) -> None:
        """Start it, with the signals of an ordinary process and its own log."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        output = [(os.POSIX_SPAWN_OPEN, number, str(self.log), flags, 0o644) for number in (1, 2)]
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), *output]
        self.started = time.monotonic()
        self.pid = os.posix_spawn(self.argv[0], self.argv, os.environ, file_actions=actions, setsigmask=[], setsid=True)

    def ended(self, status: int) -> None:
        """Note its end and when it may come back."""
        lived = time.monotonic() - self.started
        self.pause = FIRST_PAUSE_S if lived >= EARLY_S else min(self.pause * 2, LONGEST_PAUSE_S)
        self.pid = 0
        self.due = time.monotonic() + self.pause
        code = os.waitstatus_to_exitcode(status)
        say(f"{self.name} ended with status {code} after {lived:.1f} s; it starts again in {self.pause:g} s")


def say(text: str) -> None:
    """Write one line with the time into the node's log."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def command(*arguments: str) -> None:
    """Run a command; its failure ends the node, with the command's own words in the log."""
    subprocess.run(arguments, check=True)


def mounts(spec: dict[str, Any]) -> None:
    """Lay the state directory's folders over paths that the daemons have built in.

    The kernel settings that the kubelet insists on are shown to it as files: the machine keeps its own.
    """
    command("mount", "--make-rshared", "/")
    for source, target in spec["binds"]:
        Path(source).mkdir(parents=True, exist_ok=True)
        command("mount", "--bind", source, target)
    for setting, value in spec["shown"].items():
        file = Path(spec["run"]) / setting.replace("/", ".")
        file.write_text(f"{value}\n")
        with contextlib.suppress(subprocess.CalledProcessError):
            command("mount", "--bind", str(file), f"/proc/sys/{setting}")


def network(spec: dict[str, Any]) -> None:
    """Wait for the link to the machine and set up the node's end of it."""
    deadline = time.monotonic() + 30.0
    # By the network namespace's own list: /sys still shows the machine's interfaces.
    while "eth0:" not in Path("/proc/net/dev").read_text():
        if time.monotonic() > deadline:
            raise SystemExit("no link to the machine after 30 s")
        time.sleep(0.02)
    command("ip", "link", "set", "lo", "up")
    command("ip", "address", "add", f"{spec['node']}/30", "dev", "eth0")
    command("ip", "link", "set", "eth0", "up")
    command("ip", "route", "add", "default", "via", spec["host"])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def look_after(daemons: list[Daemon]) -> None:
    """Start what is due and reap what ended, until a signal asks for the end."""
    while True:
        now = time.monotonic()
        for daemon in daemons:
            if not daemon.pid and now >= daemon.due and (daemon.after is None or daemon.after.exists()):
                daemon.start()
        received = signal.sigtimedwait(SIGNALS, 0.1)
        if received and received.si_signo != signal.SIGCHLD:
            return
        reap(daemons)


def reap(daemons: list[Daemon]) -> None:
    """Reap every ended child; orphans of the containers are adopted by this process as well."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        for daemon in daemons:
            if daemon.pid == pid:
                daemon.ended(status)


def main(path: Path) -> None:
    """Set the namespaces up and look after the daemons; returning ends every process of the node."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    spec = json.loads(path.read_text())
    run = Path(spec["run"])
    shutil.rmtree(run, ignore_errors=True)  # nothing can be mounted there: these namespaces are new
    run.mkdir(parents=True)
    mounts(spec)
    network(spec)
    logs = Path(spec["logs"])
    look_after(
        [
            Daemon(one["name"], one["argv"], logs / f"{one['name']}.log", Path(one["after"]) if one["after"] else None)
            for one in spec["daemons"]
        ]
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
