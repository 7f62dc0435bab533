"""What the cache holds, how big it is, and its removal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from firsttoken_local.builds import cache_folder, locked
from firsttoken_local.errors import LocalError
from firsttoken_local.images.cache import images_folder
from firsttoken_local.node.teardown import mounts_below

PARTS: Mapping[str, str] = {
    "bin": "binaries built from Go modules: control plane, node, Prometheus, helm",
    "images": "images made by script, and what they are made of",
    "peers": "other simulators, for `make bench-simulator PEERS=1`",
    "numba": "the compiled simulator",
    "logs": "logs of builds",
}


def sizes() -> dict[str, int]:
    """Return the parts of the cache that are there, and what they take on the disk, in bytes."""
    return {name: _size(cache_folder() / name) for name in PARTS if (cache_folder() / name).exists()}


def _size(folder: Path) -> int:
    seen: dict[tuple[int, int], int] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            facts = os.lstat(os.path.join(parent, name))  # noqa: PTH118 - hundreds of thousands of files
            seen[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
    return sum(seen.values())


def users(folder: Path, processes: Path = Path("/proc")) -> list[str]:
    """Return the programs below a folder that run on this machine, by name; none where there is no /proc."""
    found = set()
    for link in processes.glob("[0-9]*/exe"):
        try:
            program = link.readlink()
        except OSError:
            continue
        if program.is_relative_to(folder):
            found.add(program.name)
    return sorted(found)


def remove() -> dict[str, int]:
    """Remove all parts, which the next command that needs them makes again; return what they took, in bytes.

    Raises:
        LocalError: a cluster, of whatever checkout, runs on them, or something is mounted there.
    """
    cache = cache_folder()
    if running := users(cache):
        remedy = "end the clusters first: `python -m firsttoken_local down --all`, in each checkout that has some"
        raise LocalError(f"the cache is in use by {', '.join(running)}: {remedy}")
    if mounted := mounts_below(cache):
        raise LocalError(f"{mounted[0]} is a mount, left by something that was killed: unmount it and run this again")
    taken = sizes()
    with locked(images_folder() / "images.lock"):  # not while somebody makes images
        for name in PARTS:
            shutil.rmtree(cache / name, ignore_errors=True)
    return taken
