"""Removing what a real node left on the machine, whatever state it was in."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from firsttoken_local.builds import locked
from firsttoken_local.errors import LocalError
from firsttoken_local.node import cgroups, host
from firsttoken_local.node.registration import LOCK, Registration, forget, registered
from firsttoken_local.processes import ProcessTable


def remove_traces(directory: Path) -> None:
    """Remove the traces of the node of a state directory; its processes have been ended before.

    Does nothing when the machine's real node, if there is one, belongs to another cluster. Nothing below
    ``directory`` may be deleted after an error: something is mounted there.

    Raises:
        LocalError: something is left, or this is not root.
    """
    found = registered()
    if found and found.directory == directory:
        if os.geteuid() != 0:
            raise LocalError(f"the cluster in {directory} has a real node: end it as root")
        with locked(LOCK):
            if (found := registered()) and found.directory == directory:
                release(found)
    refuse_mounts(directory)


def release(registration: Registration) -> None:
    """Undo what a registration says, and forget it; the caller holds the lock.

    Raises:
        LocalError: something is left; the registration stays, so that a later attempt goes on.
    """
    cgroups.remove_cgroup()
    host.disconnect()
    if registration.forwarding:
        host.FORWARDING.write_text(registration.forwarding)
    for folder in reversed(registration.folders):
        with contextlib.suppress(OSError):  # not empty: somebody else uses it by now
            Path(folder).rmdir()
    forget()


def in_use(directory: Path) -> bool:
    """Tell whether the cluster of a state directory may still be there."""
    return directory.exists() or bool(ProcessTable(directory).marked())


def mounts_below(directory: Path, mounts: Path = Path("/proc/self/mountinfo")) -> list[str]:
    """Return the mount points at and below a directory, as this process sees them."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return []  # no Linux: nothing of the kind was made
    points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    return [point for point in points if Path(point).is_relative_to(directory)]


def refuse_mounts(directory: Path) -> None:
    """Raise when something is mounted below a directory that is about to be deleted.

    Raises:
        LocalError: names the first mount.
    """
    if found := mounts_below(directory):
        raise LocalError(f"{found[0]} is a mount and was not made by the cluster: unmount it, then run `down` again")
