"""The binary cache: what its key covers, how progress reads, and what is said when Go is missing."""

from __future__ import annotations

import dataclasses
import io
import re
import shutil
import stat
import threading
from pathlib import Path

import pytest

from firsttoken_local import builds, catalogue
from firsttoken_local.builds import binary_name, cache_folder, cache_key, progress_text
from firsttoken_local.catalogue import SETS, BuildSet
from firsttoken_local.errors import LocalError
from firsttoken_local.progress import Printed, Silent
from firsttoken_local.toolchain import Toolchain, find_toolchain, parse_version

LINUX = Toolchain("/usr/bin/go", "go1.26.8", "linux", "amd64")


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildSet:
    monkeypatch.setattr(catalogue, "GO_FOLDER", tmp_path)
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "go.mod").write_text("module one\n\ngo 1.26.0\n")
    (folder / "go.sum").write_text("example.com/a v1.0.0 h1:x=\n")
    return BuildSet(name="one", module="example.com/one", version="v1.0.0", binaries={"one": "example.com/one/cmd/one"})


def fake_go(folder: Path, monkeypatch: pytest.MonkeyPatch, build_command: str) -> None:
    """Put a ``go`` on PATH that answers ``go env`` and runs a shell command for ``go build``."""
    go = folder / "bin" / "go"
    go.parent.mkdir()
    go.write_text(
        '#!/bin/sh\nif [ "$1" = env ]; then\n'
        '  echo \'{"GOVERSION":"go1.26.8","GOOS":"linux","GOARCH":"amd64"}\'\n'
        f"else\n{build_command}\nfi\n"
    )
    go.chmod(go.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


def output_argument(body: str) -> str:
    return f'while [ "$1" != -o ]; do shift; done; out="$2"\n{body}'


@pytest.mark.parametrize(
    "change",
    [
        {"ldflags": "-s"},
        {"tags": "x"},
        {"binaries": {"two": "example.com/one/cmd/one"}},
        {"files": {"crds": "config"}},
    ],
)
def test_key_changes_with_the_build(build: BuildSet, change: dict[str, object]) -> None:
    assert cache_key(dataclasses.replace(build, **change), LINUX) != cache_key(build, LINUX)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"version": "go1.26.9"}, {"goos": "darwin"}, {"goarch": "arm64"}])
def test_key_changes_with_the_toolchain(build: BuildSet, change: dict[str, str]) -> None:
    assert cache_key(build, dataclasses.replace(LINUX, **change)) != cache_key(build, LINUX)


@pytest.mark.parametrize("file", ["go.mod", "go.sum"])
def test_key_changes_with_the_locked_modules(build: BuildSet, file: str) -> None:
    before = cache_key(build, LINUX)
    assert cache_key(build, LINUX) == before
    path = build.folder / file
    path.write_text(path.read_text() + "\n// more\n")
    assert cache_key(build, LINUX) != before


def test_key_does_not_depend_on_where_go_lies(build: BuildSet) -> None:
    assert cache_key(build, dataclasses.replace(LINUX, go="/opt/go/bin/go")) == cache_key(build, LINUX)


def test_cache_folder_is_where_the_setting_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "firsttoken"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "firsttoken"


def test_catalogue_names_the_locked_versions() -> None:
    for one in SETS.values():
        lines = (one.folder / "go.mod").read_text().splitlines()
        assert any(re.match(rf"\s*(require )?{re.escape(one.module)} {re.escape(one.version)}\b", x) for x in lines)
        for package in one.binaries.values():
            assert any(x.strip().removeprefix("tool ") == package for x in lines), package
        assert f"{one.module} {one.version} h1:" in (one.folder / "go.sum").read_text()


def test_progress_counts_packages_and_downloads() -> None:
    log = "go: downloading example.com/a v1.0.0\ninternal/abi\nruntime\n# example.com/broken\nx.go:3: undefined: y\n"
    build = BuildSet(name="n", module="m", version="v", about=700)
    assert progress_text(build, 61.4, log) == (
        "n: 61 s, 1 modules downloaded, 2 of at most about 700 packages compiled"
    )
    assert "downloaded" not in progress_text(build, 1.0, "runtime\n")


@pytest.mark.parametrize(
    ("package", "name"),
    [("go.etcd.io/etcd/server/v3", "server"), ("k8s.io/x/cmd/kubectl", "kubectl"), ("example.com/vault", "vault")],
)
def test_binary_name_is_go_s(package: str, name: str) -> None:
    assert binary_name(package) == name


def test_build_renames_into_the_cache_once(build: BuildSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tmp_path / "calls"
    fake_go(tmp_path, monkeypatch, output_argument(f'echo run >> {calls}; sleep 0.3; echo binary > "$out"'))
    monkeypatch.setattr(builds, "SETS", {"one": build})
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(builds.ensure(["one"], Silent())["one"])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 3
    assert (found[0] / "one").read_text() == "binary\n"
    assert calls.read_text() == "run\n"
    assert [path for path in found[0].parent.iterdir() if path.is_dir()] == [found[0]]


def test_what_is_built_needs_no_go_any_more(build: BuildSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_go(tmp_path, monkeypatch, output_argument('echo binary > "$out"'))
    monkeypatch.setattr(builds, "SETS", {"one": build})
    made = builds.ensure(["one"], Silent())["one"]
    monkeypatch.setenv("PATH", "/usr/bin:/bin" if shutil.which("go", path="/usr/bin:/bin") is None else str(tmp_path))
    assert builds.ensure(["one"], Silent())["one"] == made
    assert builds.built("one") == made
    (build.folder / "go.sum").write_text("example.com/a v1.0.1 h1:y=\n")
    with pytest.raises(LocalError, match="Go is not installed"):
        builds.ensure(["one"], Silent())


def test_failed_build_leaves_nothing_and_shows_the_log(
    build: BuildSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go(tmp_path, monkeypatch, "echo 'a.go:1: dial tcp: connection refused' >&2; exit 1")
    monkeypatch.setattr(builds, "SETS", {"one": build})
    with pytest.raises(LocalError, match="module proxy was not reached") as fault:
        builds.ensure(["one"], Silent())
    assert "a.go:1" in fault.value.details
    assert "\n" not in fault.value.message
    assert not [path for path in (tmp_path / "cache/firsttoken/bin").iterdir() if path.is_dir()]
    assert builds.built("one") is None


def test_missing_go_names_the_version_to_install(
    build: BuildSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalError, match=r"Go is not installed: install Go 1\.26\.0 or newer"):
        find_toolchain(build.folder)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('echo \'{"GOVERSION":"go1.19.8","GOOS":"linux","GOARCH":"amd64"}\'', "too old"),
        ("echo 'go.mod requires go >= 1.26.0 (GOTOOLCHAIN=local)' >&2; exit 1", "GOTOOLCHAIN=local"),
    ],
)
def test_old_go_is_refused_in_one_line(
    build: BuildSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, said: str
) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\n{answer}\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(LocalError, match=said) as fault:
        find_toolchain(build.folder)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(("text", "version"), [("go1.26.8", (1, 26)), ("go1.27rc1", (1, 27)), ("devel", (0, 0))])
def test_parse_version(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_rewrites_its_line_on_a_terminal_only() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        told = Printed(stream)
        told.line("start")
        told.transient("one")
        told.transient("two")
        told.line("end")
    assert terminal.getvalue() == "start\n\r\033[Kone\r\033[Ktwo\r\033[Kend\n"
    assert pipe.getvalue() == "start\nend\n"


def test_progress_without_a_terminal_speaks_up_now_and_then() -> None:
    pipe = io.StringIO()
    told = Printed(pipe, every_s=0.0)
    told.transient("one")
    told.transient("two")
    assert pipe.getvalue() == "one\ntwo\n"
