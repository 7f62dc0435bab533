"""The cgroup of the real node: one folder in every hierarchy, version 1 and 2."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from firsttoken_local.waiting import wait_for

NAME = "firsttoken-node"
_CONTROLLERS = "+cpuset +cpu +memory +pids +io"


def hierarchies(mounts: Path = Path("/proc/mounts")) -> list[tuple[str, Path]]:
    """Return the mounted hierarchies: their type (``cgroup`` or ``cgroup2``) and folder."""
    found: dict[Path, str] = {}
    for line in mounts.read_text().splitlines():
        _, folder, kind, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            found[Path(folder)] = kind
    return [(kind, folder) for folder, kind in found.items()]


def make_cgroup() -> None:
    """Make the node's cgroup, so that the kubelet accepts it as its root."""
    every = hierarchies()
    only_second = all(kind == "cgroup2" for kind, _ in every)
    for kind, folder in every:
        if kind == "cgroup2" and not only_second:
            continue  # beside version 1 the second one has no controllers
        if kind == "cgroup2":
            _enable(folder)
        own = folder / NAME
        own.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # empty in a new cgroup of version 1: nothing could run in it
            source, target = folder / name, own / name
            if kind == "cgroup" and source.exists() and not target.read_text().strip():
                target.write_text(source.read_text().strip())
        if kind == "cgroup2":
            _enable(own)


def _enable(folder: Path) -> None:
    for controller in _CONTROLLERS.split():
        with contextlib.suppress(OSError):  # the kubelet names those that it misses
            (folder / "cgroup.subtree_control").write_text(controller)


def remove_cgroup(timeout_s: float = 10.0) -> None:
    """End every process in the node's cgroup and remove it.

    Raises:
        LocalError: it was still in use after ``timeout_s`` seconds.
    """
    roots = [folder / NAME for _, folder in hierarchies()]

    def gone() -> bool:
        for root in roots:
            for folder in _deepest_first(root):
                for pid in _processes(folder):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(OSError):
                    folder.rmdir()
        return not any(root.exists() for root in roots)

    wait_for(f"the end of the cgroup {NAME}", gone, timeout_s=timeout_s)


def _deepest_first(root: Path) -> Iterator[Path]:
    for parent, _, _ in os.walk(root, topdown=False):
        yield Path(parent)


def _processes(folder: Path) -> list[int]:
    try:
        pids = [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return []
    return [pid for pid in pids if pid > 1]
