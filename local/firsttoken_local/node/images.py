"""Images without a registry or a builder: OCI archives written in one pass, and their import into containerd.

The bytes depend on the content alone: names are sorted, owners are root, times are those that are asked for. A layer
is streamed from where its files lie, so its size is bounded by the disk, not by memory.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any

from firsttoken_local.errors import LocalError

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_BLOCK = 512  # bytes; the unit of tar files
_CHUNK = 1 << 20  # bytes read and written at once


@dataclass(frozen=True)
class Directory:
    """A directory; ``name`` is relative to the root of the image."""

    name: str
    mode: int = 0o755


@dataclass(frozen=True)
class File:
    """A file with given content, or with that of a file of this machine."""

    name: str
    content: bytes | Path
    mode: int = 0o644


@dataclass(frozen=True)
class Link:
    """A symbolic link; ``target`` is kept as it is."""

    name: str
    target: str


@dataclass(frozen=True)
class Tree:
    """Everything below a directory of this machine, placed at ``name`` (``""`` is the image's root).

    ``exclude`` holds patterns for single names, such as ``*.pyc``. Sockets, pipes and devices are left out.
    ``times`` keeps the files' times, which Python compares with those in its compiled files; then the bytes of the
    image depend on them too.
    """

    source: Path
    name: str = ""
    exclude: Sequence[str] = ()
    times: bool = False


Entry = Directory | File | Link | Tree
Layer = Sequence[Entry]


def build_image(
    reference: str, layers: Iterable[Layer], config: Mapping[str, Any] | None = None, *, target: Path
) -> Path:
    """Write an image as an OCI archive to ``target`` and return that; it appears complete or not at all.

    ``reference`` is its full name with a tag (``localhost/tool:1``). ``config`` holds OCI's settings: Entrypoint,
    Cmd, Env, User, WorkingDir and so on.

    Raises:
        LocalError: the reference has no tag, or a source is missing.
        OSError: a file changed while it was read, or the disk is full.
    """
    if ":" not in reference.rpartition("/")[2]:
        raise LocalError(f"the image reference {reference} has no tag")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            _write_archive(file, reference, layers, config or {})
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _write_archive(file: IO[bytes], reference: str, layers: Iterable[Layer], config: Mapping[str, Any]) -> None:
    _blob(file, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    written = [_write_layer(file, layer) for layer in layers]
    document = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [one["digest"] for one in written]},
        "history": [{"created_by": "firsttoken"} for _ in written],
    }
    described = _json_blob(file, CONFIG, document)
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": written}
    entry = _json_blob(file, MANIFEST, manifest)
    entry["annotations"] = {
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
    }
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
    _blob(file, "index.json", _json(index))
    file.write(bytes(2 * _BLOCK))


def digest_of(layer: Layer) -> str:
    """Return a hash of what a layer will hold: names, modes, links and content, but not times.

    Raises:
        LocalError: a source is missing.
        OSError: one can't be read.
    """
    digest = hashlib.sha256()
    for info, source in _members(layer):
        content = source.read_bytes() if isinstance(source, Path) else source or b""
        facts = [info.name, info.type.decode(), info.mode, info.linkname, hashlib.sha256(content).hexdigest()]
        digest.update(_json(facts))
    return digest.hexdigest()


class _Hashed(io.RawIOBase):
    """Passes bytes on and keeps their digest and number."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self._file.write(data)


def _write_layer(file: IO[bytes], layer: Layer) -> dict[str, Any]:
    """Stream one layer; its header, which names its digest, is filled in afterwards."""
    start = file.tell()
    file.write(bytes(_BLOCK))
    hashed = _Hashed(file)
    with tarfile.open(fileobj=hashed, mode="w|", format=tarfile.GNU_FORMAT, bufsize=_CHUNK) as tar:
        tar.copybufsize = _CHUNK  # type: ignore[attr-defined]
        for info, source in _members(layer):
            _add(tar, info, source)
    digest = hashed.digest.hexdigest()
    end = file.tell()
    file.seek(start)
    file.write(_header(f"blobs/sha256/{digest}", hashed.size))
    file.seek(end)
    file.write(bytes(-hashed.size % _BLOCK))
    return {"mediaType": LAYER, "digest": f"sha256:{digest}", "size": hashed.size}


def _add(tar: tarfile.TarFile, info: tarfile.TarInfo, source: bytes | Path | None) -> None:
    if isinstance(source, Path):
        with source.open("rb") as content:
            info.size = os.fstat(content.fileno()).st_size
            tar.addfile(info, content)
    else:
        info.size = len(source or b"")
        tar.addfile(info, io.BytesIO(source or b""))


def _members(layer: Layer) -> Iterator[tuple[tarfile.TarInfo, bytes | Path | None]]:
    """Yield what a layer holds, in the order of its entries."""
    for entry in layer:
        match entry:
            case Directory():
                yield _info(entry.name, entry.mode, tarfile.DIRTYPE), None
            case File():
                yield _info(entry.name, entry.mode), entry.content
            case Link():
                info = _info(entry.name, 0o777, tarfile.SYMTYPE)
                info.linkname = entry.target
                yield info, None
            case Tree():
                yield from _tree(entry)


def _tree(tree: Tree) -> Iterator[tuple[tarfile.TarInfo, bytes | Path | None]]:
    if not tree.source.is_dir():
        raise LocalError(f"{tree.source} is no directory that could be put into an image")
    pending = [(tree.source, tree.name.strip("/"))]
    if tree.name.strip("/"):
        yield _info(tree.name.strip("/"), stat.S_IMODE(tree.source.stat().st_mode), tarfile.DIRTYPE), None
    while pending:
        folder, place = pending.pop()
        with os.scandir(folder) as listing:
            found = sorted(listing, key=lambda one: one.name)
        for one in found:
            if any(fnmatch(one.name, pattern) for pattern in tree.exclude):
                continue
            facts = one.stat(follow_symlinks=False)
            name = f"{place}/{one.name}".lstrip("/")
            info = _info(name, stat.S_IMODE(facts.st_mode), mtime=int(facts.st_mtime) if tree.times else 0)
            if one.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(one.path)  # noqa: PTH115 - as it is
                yield info, None
            elif one.is_dir():
                info.type = tarfile.DIRTYPE
                yield info, None
                pending.append((Path(one.path), name))
            elif one.is_file():
                yield info, Path(one.path)


def _info(name: str, mode: int, kind: bytes = tarfile.REGTYPE, mtime: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name.strip("/"))
    info.mode, info.type, info.mtime = mode, kind, mtime
    return info


def _header(name: str, size: int) -> bytes:
    info = _info(name, 0o644)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


def _blob(file: IO[bytes], name: str, data: bytes) -> None:
    file.write(_header(name, len(data)) + data + bytes(-len(data) % _BLOCK))


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _json_blob(file: IO[bytes], kind: str, document: object) -> dict[str, Any]:
    data = _json(document)
    digest = hashlib.sha256(data).hexdigest()
    _blob(file, f"blobs/sha256/{digest}", data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def described(archive: Path) -> dict[str, str]:
    """Return the names in an OCI archive and the digests of their manifests; its layers are skipped, not read.

    Raises:
        LocalError: it is not an OCI archive.
    """
    try:
        with tarfile.open(archive, "r:") as tar:
            content = tar.extractfile("index.json")
            index = json.load(content) if content else {}
        return {one["annotations"]["io.containerd.image.name"]: one["digest"] for one in index["manifests"]}
    except (OSError, tarfile.TarError, ValueError, KeyError) as error:
        raise LocalError(f"{archive} is no image archive: {error!r}") from error
