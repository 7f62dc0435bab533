"""Python packages of a lock file, installed once into a folder of the cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from firsttoken_local.builds import cache_folder, locked, make_cache
from firsttoken_local.errors import LocalError
from firsttoken_local.images.debian import PYTHON
from firsttoken_local.node.requirements import install_packages
from firsttoken_local.progress import Progress

_INTERPRETER = b"#!/usr/bin/env python3\n"


def packages_key(lock: Path) -> str:
    """Return what the packages of a lock file are kept under."""
    return hashlib.sha256(PYTHON.encode() + lock.read_bytes()).hexdigest()[:12]


def ensure_packages(lock: Path, told: Progress) -> Path:
    """Return a folder with the packages of ``lock`` for the images' Python, byte-compiled; a PYTHONPATH for it.

    Raises:
        LocalError: pip could not install them; holds the end of what it wrote.
    """
    folder = cache_folder() / "images" / f"packages-{lock.stem}-{packages_key(lock)}"
    with locked(folder.with_suffix(".lock")):
        if not folder.is_dir():
            make_cache(folder.parent)
            _install(lock, folder, told)
    return folder


def _install(lock: Path, folder: Path, told: Progress) -> None:
    told.transient(f"images: installing the packages of {lock.name}")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    # The lock is complete, so pip need not resolve; that also lets it take less than what packages ask for.
    chosen = ["--require-hashes", "--no-deps", "--only-binary=:all:", f"--python-version={PYTHON}"]
    argv = [*pip, *chosen, "--root-user-action=ignore", f"--target={partial}", f"--requirement={lock}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=1800.0)
    if done.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        raise LocalError(f"pip could not install {lock.name}", (done.stdout + done.stderr).strip()[-2000:])
    _portable_scripts(partial / "bin")
    _compile(partial)
    partial.replace(folder)
    told.line(f"images: packages of {lock.name}")


def ensure_made(script: Path, packages: Path) -> Path:
    """Return the folder that a script has made from ``packages`` (its ``--packages`` and ``--into``).

    Raises:
        LocalError: it failed; holds what it wrote.
    """
    key = hashlib.sha256(packages.name.encode() + script.read_bytes()).hexdigest()[:12]
    folder = packages.with_name(f"{script.stem}-{key}")
    with locked(folder.with_suffix(".lock")):
        if not folder.is_dir():
            if missing := [tool for tool in ("gcc", "nm") if shutil.which(tool) is None]:
                install_packages(["gcc", "binutils"]) if shutil.which("apt-get") else _refuse(script, missing)
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            argv = [sys.executable, str(script), f"--packages={packages}", f"--into={partial}"]
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300.0)
            if done.returncode:
                raise LocalError(f"{script.name} failed", (done.stdout + done.stderr).strip()[-2000:])
            partial.replace(folder)
    return folder


def _refuse(script: Path, missing: list[str]) -> None:
    raise LocalError(f"{script.name} needs {' and '.join(missing)}: install gcc and binutils")


def _portable_scripts(folder: Path) -> None:
    """pip names its own interpreter in the commands it writes; the image has another one."""
    for script in folder.glob("*"):
        first, newline, rest = script.read_bytes().partition(b"\n")
        if newline and first.startswith(b"#!") and b"python" in first:
            script.write_bytes(_INTERPRETER + rest)


def _compile(folder: Path) -> None:
    """The root is read-only where images run, so byte code comes along, made by a Python of the same version."""
    same = f"{sys.version_info.major}.{sys.version_info.minor}" == PYTHON
    python = sys.executable if same else shutil.which(f"python{PYTHON}")
    if python is not None:  # without it the image works as well, and starts more slowly
        options = ["-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
        # Some packages carry templates that are no Python; what can't be compiled is left as it is.
        subprocess.run([python, "-m", "compileall", *options, str(folder)], capture_output=True, check=False)
