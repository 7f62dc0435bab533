"""Image archives: what is in them, that equal content gives equal bytes, that faults leave nothing behind."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from firsttoken_local.errors import LocalError
from firsttoken_local.node.images import Directory, Entry, File, Link, Tree, build_image, described

REFERENCE = "localhost/one:1"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "b" / "__pycache__").mkdir(parents=True)
    (folder / "b" / "module.py").write_text("x = 1\n")
    (folder / "b" / "__pycache__" / "module.pyc").write_bytes(b"compiled")
    (folder / "a").write_bytes(b"\0" * 3000)
    (folder / "a").chmod(0o750)
    (folder / "c").symlink_to("b/module.py")
    (folder / ("n" * 150)).write_text("long")
    os.mkfifo(folder / "pipe")
    return folder


def build(tmp_path: Path, *layers: list[Entry], **config: Any) -> Path:
    return build_image(REFERENCE, layers, config, target=tmp_path / "out" / "one.tar")


def read(archive: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of an archive, and its manifest."""
    with tarfile.open(archive, "r:") as tar:
        files = {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
    [entry] = json.loads(files["index.json"])["manifests"]
    return files, json.loads(files[blob(entry)])


def blob(descriptor: dict[str, Any]) -> str:
    return "blobs/" + str(descriptor["digest"]).replace(":", "/")


def members(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        return {one.name: one for one in tar}


def test_every_digest_and_size_is_that_of_its_content(tmp_path: Path, source: Path) -> None:
    files, manifest = read(build(tmp_path, [Tree(source)], [File("etc/x", b"y")], Cmd=["x"]))
    assert files["oci-layout"] == b'{"imageLayoutVersion":"1.0.0"}'
    for name, data in files.items():
        if name.startswith("blobs/"):
            assert name == "blobs/sha256/" + hashlib.sha256(data).hexdigest()
    for descriptor in (manifest["config"], *manifest["layers"]):
        assert len(files[blob(descriptor)]) == descriptor["size"]
    config = json.loads(files[blob(manifest["config"])])
    assert config["config"] == {"Cmd": ["x"]}
    assert config["rootfs"]["diff_ids"] == [one["digest"] for one in manifest["layers"]]


def test_tree_keeps_modes_links_and_order_and_leaves_out(tmp_path: Path, source: Path) -> None:
    files, manifest = read(build(tmp_path, [Tree(source, "opt/x", exclude=["__pycache__"])]))
    found = members(files[blob(manifest["layers"][0])])
    long = "n" * 150
    assert list(found) == ["opt/x", *(f"opt/x/{name}" for name in ("a", "b", "c", long, "b/module.py"))]
    assert (found["opt/x/a"].mode, found["opt/x/a"].size) == (0o750, 3000)
    assert found["opt/x/c"].linkname == "b/module.py"
    assert {(one.uid, one.gid, one.mtime) for one in found.values()} == {(0, 0, 0)}


def test_equal_content_gives_equal_bytes(tmp_path: Path, source: Path) -> None:
    def digest(*entries: Entry) -> str:
        return hashlib.sha256(build(tmp_path, list(entries)).read_bytes()).hexdigest()

    first = digest(Tree(source), Directory("d"), Link("l", "d"))
    os.utime(source / "a", (1, 1))
    assert digest(Tree(source), Directory("d"), Link("l", "d")) == first
    with_times = digest(Tree(source, times=True))
    os.utime(source / "a", (2, 2))
    assert digest(Tree(source, times=True)) != with_times


def test_archive_tells_its_name_and_the_digest_of_its_manifest(tmp_path: Path) -> None:
    archive = build(tmp_path, [File("x", b"y", 0o600)])
    files, _ = read(archive)
    [(reference, digest)] = described(archive).items()
    assert reference == REFERENCE
    assert "blobs/" + digest.replace(":", "/") in files


def test_faults_name_the_cause_and_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="has no tag"):
        build_image("localhost:5000/one", [], target=tmp_path / "one.tar")
    with pytest.raises(LocalError, match="no directory"):
        build(tmp_path, [Tree(tmp_path / "none")])
    with pytest.raises(FileNotFoundError):
        build(tmp_path, [File("x", tmp_path / "none")])
    assert list((tmp_path / "out").iterdir()) == []
    (tmp_path / "bad.tar").write_bytes(b"nothing")
    with pytest.raises(LocalError, match=r"bad\.tar is no image archive"):
        described(tmp_path / "bad.tar")


def test_large_layer_is_not_held_in_memory(tmp_path: Path) -> None:
    import resource

    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(300 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    build(tmp_path, [File("big", big)])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10  # KiB
