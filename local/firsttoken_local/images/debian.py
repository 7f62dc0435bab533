"""The base of every image made here: a small Debian with Python, as the Dockerfiles' base is."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from firsttoken_local.builds import cache_folder, locked, make_cache
from firsttoken_local.errors import LocalError
from firsttoken_local.node.requirements import install_packages, search_path
from firsttoken_local.progress import Progress

RELEASE = "bookworm"  # as in the Dockerfiles' tags; its Python is 3.11
PYTHON = "3.11"
PACKAGES = ("ca-certificates", "libgomp1", "libnuma1", "libstdc++6", "python-is-python3", "python3", "tzdata")
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


def check_packages(wanted: Iterable[str], asked_by: Path) -> None:
    """See that the base has what a Dockerfile adds to its own.

    Raises:
        LocalError: it lacks a package.
    """
    if missing := sorted(set(wanted) - set(PACKAGES)):
        raise LocalError(f"{asked_by} installs {', '.join(missing)}: add it to PACKAGES in {__name__}")


def debian_key() -> str:
    """Return what the base is kept under. Debian's own updates don't change it: a new cache has today's."""
    return hashlib.sha256(repr((RELEASE, PACKAGES, _LEFT_OUT)).encode()).hexdigest()[:12]


def ensure_debian(told: Progress) -> Path:
    """Return the folder of the base, made by mmdebstrap from the machine's Debian mirror when it isn't there yet.

    Raises:
        LocalError: not root, no apt, or mmdebstrap failed; holds the end of what it wrote.
    """
    folder = cache_folder() / "images" / f"debian-{RELEASE}-{debian_key()}"
    with locked(folder.with_suffix(".lock")):
        if not folder.is_dir():
            make_cache(folder.parent)
            _make(folder, told)
    return folder


def _make(folder: Path, told: Progress) -> None:
    if os.geteuid() != 0:
        raise LocalError("images are made by root (their files belong to root): run it with sudo")
    if shutil.which("mmdebstrap", path=search_path()) is None:
        if shutil.which("apt-get") is None:
            raise LocalError("the base of the images needs mmdebstrap, a package of Debian: install it")
        install_packages(["mmdebstrap"])
    told.transient(f"images: a small Debian {RELEASE} with Python")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    options = ["--quiet", "--mode=root", "--variant=essential", "--format=directory", f"--include={','.join(PACKAGES)}"]
    options += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    environment = {**os.environ, "PATH": search_path()}
    argv = ["mmdebstrap", *options, RELEASE, str(partial)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=900.0)
    if done.returncode:
        shutil.rmtree(partial, ignore_errors=True)
        raise LocalError("mmdebstrap failed", (done.stdout + done.stderr).strip()[-2000:])
    for unneeded in ("var/cache/apt", "var/lib/apt/lists", "var/log"):
        shutil.rmtree(partial / unneeded, ignore_errors=True)
    partial.replace(folder)
    told.line(f"images: Debian {RELEASE} with Python {PYTHON}")
