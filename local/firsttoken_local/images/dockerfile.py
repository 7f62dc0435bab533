"""Reading a Dockerfile of this repository, so that an image made by script has the same content.

Only what our Dockerfiles use is understood, command by command and to its end; anything else is refused. What a stage
makes is in the image only as far as the last stage copies it.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from firsttoken_local.errors import LocalError
from firsttoken_local.images.recipe import BASE, Compiled, Copied, Installed, Item, Made, Recipe

_PATH = r"[A-Za-z0-9_./+][A-Za-z0-9_./+-]*"
_PACKAGE = r"[a-z0-9][a-z0-9.+-]*"
_PORT = re.compile(r"\d+(/(tcp|udp))?")
_FROM = re.compile(r"(?P<base>[^\s@]+)(@\$\{\w+_DIGEST\})?( AS (?P<name>\w+))?")
_COPY = re.compile(rf"(--from=(?P<stage>[a-z]\w*) )?(?P<source>{_PATH}) (?P<target>{_PATH})")
_PIP = re.compile(
    r"pip install --no-cache-dir --disable-pip-version-check --no-compile --require-hashes --only-binary=:all:"
    rf"( --no-deps)? --target=(?P<target>{_PATH}) --requirement=(?P<lock>{_PATH})"
)
_MAKE = re.compile(rf"python (?P<script>{_PATH}) --packages=(?P<packages>{_PATH}) --into=(?P<target>{_PATH})")
_COMPILE = re.compile(
    rf"python -m compileall -q -j 0( -x (?P<not>[a-z0-9_]+))? --invalidation-mode unchecked-hash (?P<folder>{_PATH})"
)
_APT = re.compile(
    rf"apt-get update && apt-get install --yes --no-install-recommends (?P<packages>{_PACKAGE}( {_PACKAGE})*)"
    r" && rm -rf /var/lib/apt/lists/\*"
)
_WITHOUT_PIP = "python -m pip uninstall --yes --quiet --root-user-action=ignore setuptools wheel pip"
_FOLDERS = ("/", "/tmp")  # noqa: S108 - of the image; a WORKDIR that the base does not have would have to be made


@dataclass
class _Stage:
    items: list[Item] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    folder: str = "/"
    has_pip: bool = True

    def add(self, item: Item) -> None:
        """Something new; it must not replace, or be mixed with, what is there."""
        if any(_within(one.target, item.target) for one in self.items):
            raise _UnclearError(f"there is something at {item.target} already")
        self.items.append(item)

    def place(self, path: str) -> str:
        """A path of the image, which may be relative to the working directory."""
        return posixpath.normpath(posixpath.join(self.folder, path))

    def from_repository(self, path: str) -> str:
        """Where a file of this stage was copied from."""
        place = self.place(path)
        found = [one.source for one in self.items if isinstance(one, Copied) and one.target == place]
        if not found:
            raise _UnclearError(f"{path} is not copied into the stage before")
        return found[0]


class _UnclearError(ValueError):
    """An instruction that can't be followed; says why."""


def read_dockerfile(path: Path) -> Recipe:
    """Return what a Dockerfile makes.

    Raises:
        LocalError: it has an instruction that the script can't follow.
    """
    reader = _Reader()
    try:
        text = path.read_text()
    except OSError as error:
        raise LocalError(f"{path} can't be read ({error.strerror})") from error
    for line in _lines(text):
        try:
            reader.follow(line)
        except ValueError as error:  # JSON's and shlex's as well
            raise LocalError(f"{path}: the script that makes images can't follow `{line}`: {error}") from error
    try:
        return reader.recipe()
    except _UnclearError as error:
        raise LocalError(f"{path}: {error}") from error


def _lines(text: str) -> Iterator[str]:
    """The instructions, one a line: comments left out, continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(r"\\[ \t]*\n\s*", " ", "\n".join(lines)).splitlines():
        yield line.strip()


class _Reader:
    """Follows a Dockerfile line by line."""

    def __init__(self) -> None:
        self._global: dict[str, str | None] = {}
        self._arguments: dict[str, str | None] = self._global
        self._stages: dict[str, _Stage] = {}
        self._stage: _Stage | None = None

    def follow(self, line: str) -> None:
        """Take in one instruction.

        Raises:
            ValueError: it can't be followed.
        """
        name, _, rest = line.partition(" ")
        rest = " ".join(rest.split()) if name.upper() in ("FROM", "COPY", "RUN") else rest.strip()
        match name.upper():
            case "ARG":
                key, given, default = rest.partition("=")
                self._arguments[key] = self._expand(default) if given else self._global.get(key)
            case "FROM":
                self._from(rest)
            case other:
                if self._stage is None:
                    raise _UnclearError("it comes before FROM")
                _follow(self._stage, other, self._expand(rest), self._stages)

    def recipe(self) -> Recipe:
        """What came of it."""
        last = self._stage
        if last is None:
            raise _UnclearError("it has no FROM")
        if last.folder not in _FOLDERS:
            raise _UnclearError(f"the working directory {last.folder} is neither {' nor '.join(_FOLDERS)}")
        if last.has_pip:
            raise _UnclearError(f"the script's base has no pip, so the last stage needs: RUN {_WITHOUT_PIP}")
        environment = [f"{name}={value}" for name, value in last.environment.items()]
        config = {**last.config, **({"Env": environment} if environment else {})}
        return Recipe(tuple(last.items), tuple(last.packages), config)

    def _from(self, rest: str) -> None:
        self._arguments = self._global  # those of the stage before end here
        found = _FROM.fullmatch(rest)
        base = self._expand(found["base"]) if found else ""
        if not found or base != BASE:
            raise _UnclearError(f"the script's images are those on {BASE}")
        self._stage, self._arguments = _Stage(), {}
        if found["name"]:
            self._stages[found["name"]] = self._stage

    def _expand(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            given = self._arguments.get(found[1])
            if given is None:
                raise _UnclearError(f"{found[0]} has no default")
            return given

        expanded = re.sub(r"\$\{(\w+)\}", value, text)
        if "$" in expanded:
            raise _UnclearError("only ${NAME} is understood")
        return expanded


def _follow(stage: _Stage, name: str, rest: str, stages: Mapping[str, _Stage]) -> None:
    match name:
        case "ENV":
            stage.environment.update(_pairs(rest))
        case "LABEL":
            stage.config.setdefault("Labels", {}).update(_pairs(rest))
        case "EXPOSE":
            ports = [one for one in rest.split() if _PORT.fullmatch(one)]
            _only(ports == rest.split())
            exposed: dict[str, dict[str, str]] = {one if "/" in one else f"{one}/tcp": {} for one in ports}
            stage.config.setdefault("ExposedPorts", {}).update(exposed)
        case "USER":
            _only(re.fullmatch(r"\d+(:\d+)?", rest))
            stage.config["User"] = rest
        case "WORKDIR":
            _only(re.fullmatch(_PATH, rest))
            stage.folder = stage.config["WorkingDir"] = stage.place(rest)
        case "ENTRYPOINT" | "CMD":
            argv = json.loads(rest)
            _only(isinstance(argv, list) and all(isinstance(one, str) for one in argv))
            stage.config[name.title()] = argv
        case "COPY":
            _copy(stage, rest, stages)
        case "RUN":
            _run(stage, rest)
        case _:
            raise _UnclearError(f"{name} is not known to it")


def _only(understood: object) -> None:
    if not understood:
        raise _UnclearError("not in this form")


def _pairs(rest: str) -> dict[str, str]:
    words = [word.partition("=") for word in shlex.split(rest)]
    _only(words and all(name and equals for name, equals, _ in words))
    return {name: value for name, _, value in words}


def _copy(stage: _Stage, rest: str, stages: Mapping[str, _Stage]) -> None:
    found = _COPY.fullmatch(rest)
    if found is None or rest.endswith("/"):
        raise _UnclearError("not in this form")
    source, target = found["source"], stage.place(found["target"])
    if found["stage"] is None:
        _only(posixpath.normpath(source) == source and not source.startswith(("/", "..")) and source != ".")
        stage.add(Copied(source, target))
        return
    if source != target:
        raise _UnclearError("another stage's files must keep their place")
    other = stages.get(found["stage"])
    if other is None or other is stage or source not in [one.target for one in other.items]:
        raise _UnclearError(f"no earlier stage {found['stage']} puts something there")
    for item in other.items:
        if _within(item.target, source):
            stage.add(item)


def _run(stage: _Stage, rest: str) -> None:
    if found := _PIP.fullmatch(rest):
        stage.add(Installed(stage.from_repository(found["lock"]), stage.place(found["target"])))
    elif found := _MAKE.fullmatch(rest):
        packages = stage.place(found["packages"])
        if packages not in [one.target for one in stage.items if isinstance(one, Installed)]:
            raise _UnclearError(f"no packages are installed at {packages}")
        stage.add(Made(stage.from_repository(found["script"]), packages, stage.place(found["target"])))
    elif found := _COMPILE.fullmatch(rest):
        folder = stage.place(found["folder"])
        if folder not in [one.target for one in stage.items]:
            raise _UnclearError(f"nothing is put at {folder} before")
        how = Compiled(found["not"] or "")
        stage.items = [replace(one, compiled=how) if _within(one.target, folder) else one for one in stage.items]
    elif found := _APT.fullmatch(rest):
        stage.packages += found["packages"].split()
    elif rest == _WITHOUT_PIP:
        stage.has_pip = False
    else:
        raise _UnclearError("not a command that it knows to the end")


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
