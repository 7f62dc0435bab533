"""The base of the images made here: a small Debian with Python, in the place of the Dockerfiles' base."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from firsttoken_local.commands import finished, output
from firsttoken_local.errors import LocalError
from firsttoken_local.images import bytecode
from firsttoken_local.images.cache import kept, key, source
from firsttoken_local.images.recipe import PYTHON, RELEASE, Compiled
from firsttoken_local.node.requirements import install_packages, search_path
from firsttoken_local.progress import Progress

# What ours need of the Dockerfiles' base; what a Dockerfile installs by apt comes on top, in its own image.
PACKAGES = ("ca-certificates", "libstdc++6", "python-is-python3", "python3", "tzdata")
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
# Nothing in an image uses apt, and which mirror the machine has is not the image's business.
_REMOVED = ("etc/apt/sources.list", "etc/apt/sources.list.d", "var/cache/apt", "var/lib/apt/lists", "var/log")
_PYTHON = (f"usr/lib/python{PYTHON}", "usr/lib/python3/dist-packages", "usr/share/python3")


def debian_key(added: Sequence[str] = ()) -> str:
    """Return what the base with more packages is kept under. Debian's updates don't change it."""
    return key(source(sys.modules[__name__]), source(bytecode), RELEASE, *sorted(added))


def ensure_debian(told: Progress, added: Sequence[str] = ()) -> Path:
    """Return the folder of the base with more packages of Debian, made by mmdebstrap when it isn't there yet.

    Raises:
        LocalError: not root, no apt, or mmdebstrap failed; holds the end of what it wrote.
    """
    name = "-".join(["debian", RELEASE, *sorted(added)])
    return kept(name, debian_key(added), lambda folder: _make(folder, [*PACKAGES, *sorted(added)], told))


def _make(folder: Path, packages: Sequence[str], told: Progress) -> None:
    if os.geteuid() != 0:
        raise LocalError("images are made by root (their files belong to root): run it with sudo")
    if shutil.which("mmdebstrap", path=search_path()) is None:
        if shutil.which("apt-get", path=search_path()) is None:
            raise LocalError("the base of the images needs mmdebstrap, a package of Debian: install it")
        install_packages(["mmdebstrap"], told, "images")
    told.transient(f"images: a small Debian {RELEASE} with Python")
    options = ["--quiet", "--mode=root", "--variant=essential", "--format=directory", f"--include={','.join(packages)}"]
    options += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    argv: list[str | Path] = [*_alone(), "mmdebstrap", *options, RELEASE, folder, *own_sources()]
    output("mmdebstrap failed", argv, env={**os.environ, "PATH": search_path()}, timeout_s=900.0)
    for unneeded in _REMOVED:
        path = folder / unneeded
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for place in _PYTHON:  # its own byte code names the times of files, which images don't keep
        bytecode.compile_folder(folder, folder / place, f"/{place}", Compiled())
    told.line(f"images: Debian {RELEASE} with {', '.join(packages)}")


def _alone() -> list[str]:
    """How to start what mounts the machine's /proc, /sys and /dev: in namespaces that end with it, however it ends.

    Otherwise those mounts would outlive a time-out or an interrupt, in a folder that is then deleted by root.
    """
    found = shutil.which("unshare", path=search_path())
    alone = [found or "", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    # Where namespaces can't be made, nothing can be mounted either; mmdebstrap does without.
    return alone if found and finished([*alone, "true"], timeout_s=60.0).returncode == 0 else []


def own_sources(apt: Path = Path("/etc/apt")) -> list[Path]:
    """The machine's own lists of where this release of Debian comes from: its mirror may be the only one it reaches.

    Without any, mmdebstrap takes deb.debian.org. Lists of others' packages are left out.
    """
    found = {path: _entries(path) for path in sorted([apt / "sources.list", *apt.glob("sources.list.d/*")])}
    ours = [path for path, entries in found.items() if entries and all(map(_of_debian, entries))]
    return ours if any(RELEASE in suites for path in ours for _, suites, _ in found[path]) else []


_Entry = tuple[list[str], list[str], list[str]]  # addresses, suites, components


def _entries(path: Path) -> list[_Entry]:
    if path.suffix not in (".list", ".sources") or not path.is_file():
        return []
    text = "\n".join(line for line in path.read_text(errors="replace").splitlines() if not line.startswith("#"))
    if path.suffix == ".sources":
        return [_stanza(one) for one in re.split(r"\n\s*\n", text) if one.strip()]
    lines = (re.fullmatch(r"deb(?:-src)?\s+(?:\[.*?\]\s+)?(\S+)\s+(\S+)(.*)", one.strip()) for one in text.splitlines())
    return [([line[1]], [line[2]], line[3].split()) for line in lines if line]


def _stanza(text: str) -> _Entry:
    fields = dict(re.findall(r"^(\S+):[ \t]*(.*(?:\n[ \t].*)*)", text, re.MULTILINE))
    lower = {name.lower(): value.split() for name, value in fields.items()}
    return lower.get("uris", []), lower.get("suites", []), lower.get("components", [])


def _of_debian(entry: _Entry) -> bool:
    addresses, suites, components = entry
    known = {RELEASE, *(f"{RELEASE}-{part}" for part in ("updates", "security"))}
    return all("debian" in one for one in addresses) and known.issuperset(suites) and "main" in components
