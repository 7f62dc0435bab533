"""The end of a local cluster, also of one that crashed."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from firsttoken_local.builds import locked
from firsttoken_local.controlplane import NAMES
from firsttoken_local.layout import cluster_folder
from firsttoken_local.node import PROCESS as NODE_PROCESS
from firsttoken_local.node.teardown import remove_traces
from firsttoken_local.player import BRIDGE
from firsttoken_local.player import PROCESS as PLAYER
from firsttoken_local.processes import ProcessTable
from firsttoken_local.progress import Progress, Silent, told_when_slow

# Ended from the outside in: whoever writes goes before what it writes to.
DOWN_ORDER = (("kwok", "prometheus", PLAYER, BRIDGE, *NAMES[2:]), NAMES[1:2], NAMES[:1])


def down(name: str = "default", *, directory: Path | None = None, progress: Progress | None = None) -> bool:
    """End a cluster and remove its state, also after a crash; return whether there was one.

    A stage that takes more than a few seconds is told to ``progress`` in one line.

    Raises:
        LocalError: a process could not be ended, or something of a real node is left.
    """
    told = progress or Silent()
    folder = directory or cluster_folder(name)
    stage = partial(told_when_slow, told)
    with locked(state_lock(folder), lambda: told.line("down: waiting for another command on this cluster to end")):
        processes = ProcessTable(folder)
        existed = folder.exists() or bool(processes.marked())
        with stage("down: ending the real node with its containers and mounts"):
            processes.stop([NODE_PROCESS], grace_s=1.0)
        known = {one for group in DOWN_ORDER for one in group}
        guests = [one.name for one in processes.records() if one.name not in known]
        with stage(f"down: ending {', '.join(guests)} (up to 10 s)"):
            processes.stop(guests, grace_s=10.0)
        for group in DOWN_ORDER:
            # The state is thrown away: nobody has to wait for an orderly end.
            with stage(f"down: ending {', '.join(group)}"):
                processes.stop(group, grace_s=1.0)
        with stage("down: ending processes without a record"):  # such as after the folder was removed by hand
            processes.stop_all(grace_s=1.0)
        with stage("down: removing the real node's cgroup, link and rules"):
            remove_traces(folder)
        with stage(f"down: deleting {folder}"):
            shutil.rmtree(folder, ignore_errors=True)
        state_lock(folder).unlink(missing_ok=True)
    return existed


def state_lock(folder: Path) -> Path:
    """Return the lock of a state directory: beside it, because it must outlive it."""
    return folder.parent / f".{folder.name}.lock"
