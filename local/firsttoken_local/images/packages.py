"""What Dockerfiles install and make: Python packages of a lock file, and files that a script makes from them."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

from firsttoken_local.commands import output
from firsttoken_local.errors import LocalError
from firsttoken_local.images import bytecode
from firsttoken_local.images.cache import kept, key, source
from firsttoken_local.images.recipe import PYTHON, Installed
from firsttoken_local.layout import REPOSITORY
from firsttoken_local.node.requirements import install_packages
from firsttoken_local.progress import Progress

_INTERPRETER = b"#!/usr/bin/env python3\n"


def packages_key(installed: Installed) -> str:
    """Return what packages are kept under: it changes with the lock, and with how and for what they are installed."""
    lock = (REPOSITORY / installed.lock).read_bytes()
    return key(source(sys.modules[__name__]), source(bytecode), PYTHON, platform.machine(), repr(installed), lock)


def ensure_packages(installed: Installed, debian: Path, told: Progress) -> Path:
    """Return a folder with the packages for the Python of a base.

    Raises:
        LocalError: pip could not install them; holds the end of what it wrote.
    """
    name = f"packages-{Path(installed.lock).stem}"
    return kept(name, packages_key(installed), lambda folder: _install(installed, debian, folder, told))


def _install(installed: Installed, debian: Path, folder: Path, told: Progress) -> None:
    lock = REPOSITORY / installed.lock
    told.transient(f"images: installing the packages of {lock.name}")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    # The lock is complete, so pip need not resolve; that also lets it take less than what packages ask for.
    chosen = ["--require-hashes", "--no-deps", "--only-binary=:all:", f"--python-version={PYTHON}"]
    argv = [*pip, *chosen, "--root-user-action=ignore", f"--target={folder}", f"--requirement={lock}"]
    output(f"pip could not install {lock.name}", argv, timeout_s=1800.0)
    _portable_scripts(folder / "bin")
    if installed.compiled is not None:
        bytecode.compile_folder(debian, folder, installed.target, installed.compiled)
    told.line(f"images: packages of {lock.name}")


def ensure_made(script: Path, packages: Path, told: Progress) -> Path:
    """Return the folder that a script has made from ``packages`` (its ``--packages`` and ``--into``).

    Raises:
        LocalError: it failed; holds what it wrote.
    """
    inputs = key(source(sys.modules[__name__]), packages.name, script.read_bytes())
    return kept(script.stem, inputs, lambda folder: _make(script, packages, folder, told))


def _make(script: Path, packages: Path, folder: Path, told: Progress) -> None:
    if missing := [tool for tool in ("gcc", "nm", "readelf") if shutil.which(tool) is None]:
        if shutil.which("apt-get") is None:
            raise LocalError(f"{script.name} needs {' and '.join(missing)}: install gcc and binutils")
        install_packages(["gcc", "binutils"], told, "images")
    argv: list[str | Path] = [sys.executable, script, f"--packages={packages}", f"--into={folder}"]
    output(f"{script.name} failed", argv, timeout_s=300.0)


def _portable_scripts(folder: Path) -> None:
    """pip names its own interpreter in the commands it writes; the image has another one."""
    for script in folder.glob("*"):
        first, newline, rest = script.read_bytes().partition(b"\n")
        if newline and first.startswith(b"#!") and b"python" in first:
            script.write_bytes(_INTERPRETER + rest)
