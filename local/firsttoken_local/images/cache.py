"""What is made once and kept: folders and archives called NAME-KEY, the newest of each name."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from firsttoken_local.builds import cache_folder, make_cache
from firsttoken_local.errors import LocalError
from firsttoken_local.node.teardown import mounts_below

_KEY = "[0-9a-f]" * 12


def images_folder() -> Path:
    """Where images, and what they are made of, are kept."""
    return cache_folder() / "images"


def key(*inputs: str | bytes) -> str:
    """Twelve hexadecimal digits that change with any of the inputs."""
    digest = hashlib.sha256()
    for one in inputs:
        data = one.encode() if isinstance(one, str) else one
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:12]


def source(module: ModuleType) -> bytes:
    """The source of a script, which decides what comes out of it."""
    return Path(module.__file__ or "").read_bytes()


def kept(name: str, inputs: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of a name and a key; ``make`` fills it when it isn't there yet, and then older ones go.

    Who calls it holds the lock of :func:`firsttoken_local.images.archive.ensure_images`, and uses it under that lock.

    Raises:
        LocalError: what ``make`` raises; nothing is left of a half-made folder.
    """
    folder = images_folder() / f"{name}-{inputs}"
    if not folder.is_dir():
        make_cache(folder.parent)
        partial = folder.with_name(f"{folder.name}.partial")
        _remove(partial)
        try:
            make(partial)
            partial.replace(folder)
        finally:
            _remove(partial)
        remove_older(name, folder)
    return folder


def remove_older(name: str, newest: Path) -> None:
    """Remove what else there is of a name: folders, archives, and what older versions of this script left."""
    for path in newest.parent.glob(f"{name}-{_KEY}*"):
        if path != newest:
            _remove(path)


def _remove(path: Path) -> None:
    """Remove a folder or a file, but never what is mounted in it: /proc or /dev, when something was killed half-way."""
    if found := mounts_below(path):
        raise LocalError(f"{found[0]} is a mount, left by something that was killed: unmount it and run this again")
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
