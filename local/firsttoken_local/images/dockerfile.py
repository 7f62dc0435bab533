"""Reading a Dockerfile of this repository, so that an image made by script has the same content.

Only what our Dockerfiles use is understood; anything else is refused rather than left out of the image.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firsttoken_local.errors import LocalError

# Done by the script for every image (byte code), or about what its base does not have (pip).
_WITHOUT_EFFECT = ("python -m compileall ", "python -m pip uninstall ")


@dataclass(frozen=True)
class Installed:
    """Packages of a lock file, put into a directory of the image; ``lock`` is relative to the repository."""

    lock: str
    target: str


@dataclass(frozen=True)
class Copied:
    """A file or directory of the repository, and where it lies in the image."""

    source: str
    target: str


@dataclass(frozen=True)
class Made:
    """What a script of the repository makes from the packages at ``packages`` of the image, at ``target``."""

    script: str
    packages: str
    target: str


@dataclass(frozen=True)
class Recipe:
    """What a Dockerfile makes on top of a Debian with Python. ``config`` holds OCI's settings of the last stage."""

    installed: tuple[Installed, ...]
    made: tuple[Made, ...]
    copied: tuple[Copied, ...]
    packages: tuple[str, ...]  # of Debian, beyond the base's own
    config: Mapping[str, Any]


@dataclass
class _Stage:
    installed: list[Installed] = field(default_factory=list)
    made: list[Made] = field(default_factory=list)
    copied: list[Copied] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)


def read_dockerfile(path: Path) -> Recipe:
    """Return what a Dockerfile makes.

    Raises:
        LocalError: it has an instruction that the script can't follow.
    """
    arguments: dict[str, str] = {}
    stages: list[_Stage] = []
    for name, rest in _instructions(path.read_text()):
        if name == "ARG":
            key, _, default = rest.partition("=")
            arguments[key] = default
        elif name == "FROM":
            stages.append(_Stage())
        else:
            _follow(stages[-1], name, _expand(rest, arguments), path)
    if not stages:
        raise LocalError(f"{path} has no FROM")
    # What a stage gets from an earlier one, it gets whole and at the same place: `_follow` sees to that.
    copied = [one for stage in stages for one in stage.copied if one.target.startswith("/")]
    return Recipe(
        tuple(one for stage in stages for one in stage.installed),
        tuple(one for stage in stages for one in stage.made),
        tuple(copied),
        tuple(stages[-1].packages),
        stages[-1].config,
    )


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions and their arguments, comments left out and lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    for line in joined.splitlines():
        name, _, rest = line.strip().partition(" ")
        yield name.upper(), rest.strip()


def _expand(text: str, arguments: Mapping[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda found: arguments.get(found[1], found[0]), text)


def _follow(stage: _Stage, name: str, rest: str, path: Path) -> None:
    config = stage.config
    match name:
        case "ENV":
            config.setdefault("Env", []).extend(shlex.split(rest))
        case "LABEL":
            config.setdefault("Labels", {}).update(one.split("=", 1) for one in shlex.split(rest))
        case "EXPOSE":
            config["ExposedPorts"] = {f"{port}/tcp": {} for port in rest.split()}
        case "USER" | "WORKDIR":
            config[{"USER": "User", "WORKDIR": "WorkingDir"}[name]] = rest
        case "ENTRYPOINT" | "CMD":
            config[name.title()] = json.loads(rest)
        case "COPY":
            _copy(stage, rest, path)
        case "RUN":
            _run(stage, rest, path)
        case _:
            raise LocalError(f"{path}: the script that makes images can't follow {name}")


def _copy(stage: _Stage, rest: str, path: Path) -> None:
    flags = [word for word in rest.split() if word.startswith("--")]
    source, target = (word for word in rest.split() if not word.startswith("--"))
    if not flags:
        stage.copied.append(Copied(source, target))
    elif source != target or not flags[0].startswith("--from="):
        raise LocalError(f"{path}: COPY {rest}: another stage's files must keep their place")


def _run(stage: _Stage, rest: str, path: Path) -> None:
    if rest.startswith(_WITHOUT_EFFECT):
        return
    words = shlex.split(rest)
    options = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
    if words[:2] == ["pip", "install"] and {"--target", "--requirement"} <= options.keys():
        stage.installed.append(Installed(options["--requirement"], options["--target"]))
    elif words[0] == "python" and {"--packages", "--into"} <= options.keys():
        stage.made.append(Made(words[1], options["--packages"], options["--into"]))
    elif rest.startswith("apt-get update && apt-get install "):
        wanted = rest.split("&&")[1].split()[2:]
        stage.packages.extend(word for word in wanted if not word.startswith("-"))
    else:
        raise LocalError(f"{path}: the script that makes images can't follow RUN {rest}")
