"""What a Dockerfile makes, as far as an image can be made from it by script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RELEASE = "bookworm"
PYTHON = "3.11"  # that of the release
BASE = f"python:{PYTHON}-slim-{RELEASE}"  # what the Dockerfiles have to start from


@dataclass(frozen=True)
class Compiled:
    """Byte code is made of what is there, except of paths that hold ``left_out`` (when it isn't empty)."""

    left_out: str = ""


@dataclass(frozen=True)
class Installed:
    """Packages of a lock file, put into a directory of the image; ``lock`` is relative to the repository."""

    lock: str
    target: str
    compiled: Compiled | None = None


@dataclass(frozen=True)
class Copied:
    """A file or directory of the repository, and where it lies in the image."""

    source: str
    target: str
    compiled: Compiled | None = None


@dataclass(frozen=True)
class Made:
    """What a script of the repository makes from the packages at ``packages`` of the image, at ``target``."""

    script: str
    packages: str
    target: str
    compiled: Compiled | None = None


Item = Installed | Copied | Made


@dataclass(frozen=True)
class Recipe:
    """What a Dockerfile makes on top of the base. ``config`` holds OCI's settings of the last stage."""

    items: tuple[Item, ...]  # a later one may lie below an earlier one
    packages: tuple[str, ...]  # of Debian, beyond the base's own
    config: Mapping[str, Any]

    @property
    def installed(self) -> list[Installed]:
        """The packages of lock files."""
        return [one for one in self.items if isinstance(one, Installed)]

    @property
    def copied(self) -> list[Copied]:
        """What comes from the repository as it is."""
        return [one for one in self.items if isinstance(one, Copied)]

    @property
    def made(self) -> list[Made]:
        """What scripts make."""
        return [one for one in self.items if isinstance(one, Made)]
