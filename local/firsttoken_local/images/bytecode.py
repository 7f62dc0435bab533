"""Byte code for images, as the Dockerfiles make it: the root is read-only where they run, so it has to come along."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from firsttoken_local.commands import output
from firsttoken_local.errors import LocalError
from firsttoken_local.images.recipe import PYTHON, Compiled
from firsttoken_local.node.images import File, Tree


def compile_folder(debian: Path, folder: Path, place: str, how: Compiled) -> None:
    """Write byte code beside all Python of a folder that lies at ``place`` in an image.

    It is the base's own Python that does it, whichever the machine has. Unchecked, since files' times are not kept.

    Raises:
        LocalError: something could not be compiled, as it would end a build from the Dockerfile.
    """
    python, environment = python_of(debian)
    options = ["-S", "-m", "compileall", "-q", "-f", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    options += ["-x", how.left_out] if how.left_out else []
    argv = [*python, *options, "-s", folder, "-p", place, folder]
    output(f"there is Python in {place} that can't be compiled", argv, env=environment, timeout_s=900.0)


def compiled(debian: Path, entry: File | Tree, how: Compiled) -> list[File]:
    """Return the byte code of what is copied into an image; the original stays as it is.

    Raises:
        LocalError: see :func:`compile_folder`.
    """
    with tempfile.TemporaryDirectory(prefix="firsttoken-") as scratch:
        if isinstance(entry, Tree):
            copy, place = Path(scratch, "tree"), entry.name
            shutil.copytree(entry.source, copy, ignore=shutil.ignore_patterns(*entry.exclude))
        else:
            copy, place = Path(scratch), str(Path(entry.name).parent)
            shutil.copyfile(Path(str(entry.content)), copy / Path(entry.name).name)
        compile_folder(debian, copy, f"/{place}", how)
        found = sorted(copy.rglob("__pycache__/*.pyc"))
        return [File(f"{place}/{path.relative_to(copy)}", path.read_bytes()) for path in found]


def python_of(debian: Path) -> tuple[list[str | Path], dict[str, str]]:
    """Return command and environment that run a base's Python on this machine.

    Its loader is named, so that its own libraries are used; nothing is mounted, and no root is changed.

    Raises:
        LocalError: the base has no Python.
    """
    loaders = list(debian.glob("usr/lib/*-linux-gnu*/ld-linux-*.so.*"))
    python = debian / "usr" / "bin" / f"python{PYTHON}"
    if not loaders or not python.is_file():
        raise LocalError(f"{debian} has no Python {PYTHON}, which makes the images' byte code: remove it and run again")
    # What it imports itself is not written: that would be byte code by time, into a base that may be in use.
    environment = {**os.environ, "PYTHONHOME": str(debian / "usr"), "PYTHONDONTWRITEBYTECODE": "1"}
    return [loaders[0], "--library-path", loaders[0].parent, python], environment
