"""Whose the machine's real node is, and what to put back when it goes.

One file outside every state directory, so that the traces of a node can be removed even when its state directory
was deleted by hand. It lies in /run: a reboot removes it together with what it describes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from firsttoken_local.errors import LocalError
from firsttoken_local.layout import CLUSTERS

FILE = Path("/run/firsttoken-node.json")
LOCK = Path("/run/lock/firsttoken-node.lock")


@dataclass(frozen=True)
class Registration:
    """``folders`` were made outside the state directory, outermost first; ``forwarding`` is the value of ip_forward
    before the node came."""

    directory: Path
    forwarding: str = ""
    folders: list[str] = field(default_factory=list)

    def save(self) -> None:
        """Write it down, complete or not at all."""
        partial = FILE.with_suffix(".partial")
        partial.write_text(json.dumps({**asdict(self), "directory": str(self.directory)}))
        partial.replace(FILE)


def registered() -> Registration | None:
    """Return the registration, or None when there is no real node (or the file cannot be read)."""
    try:
        data = json.loads(FILE.read_text())
        return Registration(Path(data["directory"]), str(data["forwarding"]), [str(one) for one in data["folders"]])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget() -> None:
    """Remove the registration: nothing is left of the node."""
    FILE.unlink(missing_ok=True)


def refuse_second(directory: Path, in_use: Callable[[Path], bool]) -> None:
    """Raise when another cluster, which is still there by ``in_use``, has the machine's real node.

    Raises:
        LocalError: says what to do about it.
    """
    found = registered()
    if found and found.directory != directory and in_use(found.directory):
        raise LocalError(_refusal(found.directory))


def claim(directory: Path, in_use: Callable[[Path], bool], release: Callable[[Registration], None]) -> Registration:
    """Make the machine's real node that of ``directory``; the caller holds :data:`LOCK`.

    A node whose cluster is gone, by ``in_use``, is released first.

    Raises:
        LocalError: another cluster has it.
    """
    refuse_second(directory, in_use)
    found = registered()
    if found and found.directory != directory:
        release(found)
        found = None
    mine = found or Registration(directory)
    mine.save()
    return mine


def note(registration: Registration, *, forwarding: str = "", folders: list[str] | None = None) -> Registration:
    """Add to the registration what is about to be changed; values noted first stay."""
    known = registration.folders
    added = replace(
        registration,
        forwarding=registration.forwarding or forwarding,
        folders=[*known, *(one for one in folders or [] if one not in known)],
    )
    added.save()
    return added


def _refusal(owner: Path) -> str:
    remedy = "wait for its end"
    if owner.parent == CLUSTERS:
        remedy = f"run `python -m firsttoken_local down --name {owner.name}` first"
    return f"another cluster has this machine's only real node: {remedy} ({owner})"
