"""Reading what -f names: files, folders, standard input. Every trouble is one sentence that says what to do."""

import errno
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

STDIN = "-"
STDIN_NAME = "<stdin>"
SUFFIXES = (".yaml", ".yml", ".json")

# Read no further: an object in etcd has at most 1.5 MiB, and /dev/zero has no end.
MAX_BYTES = 2 * 2**20
_PART_BYTES = 2**20

_REMEDIES = {
    errno.ENOENT: "no such file or folder",
    errno.EACCES: "not readable: permission denied",
    errno.ENAMETOOLONG: "the name is too long for a file: -f takes a path, not YAML",
}


@dataclass(frozen=True)
class Source:
    """One text to look at. `name` is how the caller named it."""

    name: str
    text: str


@dataclass(frozen=True)
class Unreadable:
    """Something that -f names and that can't be used."""

    name: str
    why: str


def read(paths: Iterable[str], *, recursive: bool = False) -> Iterator[Source | Unreadable]:
    """The texts of all `paths` in order; a folder stands for its YAML and JSON files, sorted by name."""
    seen_stdin = False
    for path in paths:
        if path == STDIN:
            if seen_stdin:
                yield Unreadable(STDIN_NAME, "standard input can be read only once: give -f - once")
                continue
            seen_stdin = True
            yield _stdin()
        else:
            yield from _path(path, recursive)


def large(path: str, most: int) -> Source | Unreadable:
    """The text of one file or standard input that may be larger than manifests are, but not than `most` bytes.

    It is read no further than it can be used: /dev/zero is no text from its first byte on.
    """
    name, parts, size = STDIN_NAME if path == STDIN else path, list[bytes](), 0
    try:
        if path != STDIN and Path(path).is_dir():
            return Unreadable(name, "is a folder: name a file")
        if path == STDIN and sys.stdin is None:
            return Unreadable(name, "standard input is closed: pipe the file into it")
        with nullcontext(sys.stdin.buffer) if path == STDIN else Path(path).open("rb") as stream:
            while part := stream.read(_PART_BYTES):
                parts.append(part)
                size += len(part)
                if b"\0" in part:
                    return Unreadable(name, "holds NUL bytes, so it is not UTF-8 text: save it as UTF-8")
                if size > most:
                    return Unreadable(name, f"larger than {most // 2**20} MiB: split the file")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        return Unreadable(name, why(error))
    return _text(name, b"".join(parts))


def _path(path: str, recursive: bool) -> Iterator[Source | Unreadable]:
    try:
        if Path(path).is_dir():
            yield from _folder(Path(path), path, recursive)
        else:
            yield _file(path)
    except (OSError, ValueError) as error:
        yield Unreadable(path, why(error))


def _folder(folder: Path, name: str, recursive: bool) -> Iterator[Source | Unreadable]:
    pattern = "**/*" if recursive else "*"
    found = sorted(p for p in folder.glob(pattern) if p.suffix in SUFFIXES and not _hidden(p, folder) and p.is_file())
    if not found:
        deeper = "" if recursive else "; -R looks into its folders, too"
        yield Unreadable(name, f"the folder has no {', '.join(SUFFIXES)} file{deeper}")
    for path in found:
        yield _file(str(path))


def _hidden(path: Path, folder: Path) -> bool:
    """Inside a folder such as .git or .venv, of which nobody thinks when they say -R."""
    return any(part.startswith(".") for part in path.relative_to(folder).parts[:-1])


def _file(path: str) -> Source | Unreadable:
    try:
        with Path(path).open("rb") as stream:
            return _decoded(path, stream.read(MAX_BYTES + 1))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        return Unreadable(path, why(error))


def _stdin() -> Source | Unreadable:
    try:
        if sys.stdin is None:  # closed by the caller: `firsttoken validate -f - <&-`
            return Unreadable(STDIN_NAME, "standard input is closed: pipe YAML into it")
        return _decoded(STDIN_NAME, sys.stdin.buffer.read(MAX_BYTES + 1))
    except (OSError, ValueError) as error:
        return Unreadable(STDIN_NAME, why(error))


def _decoded(name: str, data: bytes) -> Source | Unreadable:
    if len(data) > MAX_BYTES:
        return Unreadable(name, f"larger than {MAX_BYTES // 2**20} MiB: not a manifest of Firsttoken; split the file")
    found = _text(name, data)
    if isinstance(found, Source) and "\0" in found.text:
        return Unreadable(name, "holds NUL bytes: this is not a text file")
    return found


def _text(name: str, data: bytes) -> Source | Unreadable:
    try:
        return Source(name, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return Unreadable(name, f"not UTF-8 text (byte {data[error.start]:#04x} in line {line}): save it as UTF-8")


def why(error: OSError | ValueError) -> str:
    """What is wrong with a path, and what to do."""
    number = error.errno if isinstance(error, OSError) else None
    if number in _REMEDIES:
        return _REMEDIES[number]
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"can't be read: {text}"
