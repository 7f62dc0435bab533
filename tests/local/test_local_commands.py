"""The commands of the local cluster: what they say when something is missing. No cluster runs here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firsttoken_local import __main__ as commands
from firsttoken_local import builds, check, controlplane, layout
from firsttoken_local.builds import cache_folder, locked, make_cache
from firsttoken_local.ending import down
from firsttoken_local.errors import LocalError
from firsttoken_local.layout import PORT_NAMES, REPOSITORY, Layout

ROOT = getattr(os, "geteuid", lambda: 1)() == 0


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(layout, "CLUSTERS", tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", ["up", "down", "status", "kubeconfig"])
@pytest.mark.parametrize("name", ["", " ", "a b", "A"])
def test_a_bad_name_is_one_line(command: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main([command, "--name", name]) == 1
    assert (
        capsys.readouterr().err == f"error: {name!r} is no cluster name: use lower-case letters, digits and hyphens\n"
    )


def test_misuse_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["down", "--name", "a", "b"], ["down", "--name"], []):
        with pytest.raises(SystemExit) as end:
            commands.main(arguments)
        assert end.value.code == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_kubeconfig_of_a_cluster_that_is_not_up_says_how_to_start_it(
    clusters: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["kubeconfig", "--name", "dev"]) == 1
    assert capsys.readouterr().err == "error: there is no cluster dev: `make cluster NAME=dev` starts it\n"
    stopped = Layout(clusters / "dev", dict.fromkeys(PORT_NAMES, 1))
    stopped.save()
    stopped.kubeconfig.write_text("")
    assert commands.main(["kubeconfig", "--name", "dev"]) == 1
    assert "cluster dev does not run: `make cluster NAME=dev`" in capsys.readouterr().err


def test_down_all_ends_every_cluster_of_the_checkout(clusters: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        (clusters / name / "logs").mkdir(parents=True)
    (clusters / ".old.lock").touch()
    assert commands.main(["down", "--all"]) == 0
    assert capsys.readouterr().out == "cluster one is down\ncluster two is down\n"
    assert [path.name for path in clusters.iterdir()] == [".old.lock"]
    assert commands.main(["down", "--all"]) == 0


def test_a_lock_may_be_removed_by_who_holds_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    waiter = "import sys; from pathlib import Path; from firsttoken_local.builds import locked\n"
    waiter += "with locked(Path(sys.argv[1]), lambda: print('waits', flush=True)): print(Path(sys.argv[1]).exists())"
    with locked(lock):
        child = subprocess.Popen([sys.executable, "-c", waiter, str(lock)], stdout=subprocess.PIPE, text=True)
        assert child.stdout
        assert child.stdout.readline() == "waits\n"
        lock.unlink()
    assert child.communicate(timeout=30)[0] == "True\n"


def test_a_cluster_that_is_down_leaves_no_lock(tmp_path: Path) -> None:
    assert not down(directory=tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_a_relative_cache_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    with pytest.raises(LocalError, match="XDG_CACHE_HOME is a relative path"):
        cache_folder()


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalError, match=r"can't be created .*: set XDG_CACHE_HOME to a writable folder") as fault:
        make_cache(tmp_path / "file" / "firsttoken")
    assert "\n" not in str(fault.value)


def test_a_cache_that_is_read_only_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    # Root may write into any folder but those of the kernel.
    with pytest.raises(LocalError, match="can't be created"):
        make_cache(Path("/proc/self") if ROOT else tmp_path)


def test_the_check_needs_no_package_and_says_that_go_is_missing(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(REPOSITORY / "local"), "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-S", "-m", "firsttoken_local.check"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: Go is not installed: install Go ")
    assert len(done.stderr.splitlines()) == 1


def test_the_check_asks_for_the_name_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(["--name", "a b"]) == 1
    assert "no cluster name" in capsys.readouterr().err


def test_the_check_is_content_with_a_full_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(check, "built", lambda _: tmp_path)
    monkeypatch.setattr(check, "make_cache", lambda _: pytest.fail("nothing is written"))
    assert check.main([]) == 0
    monkeypatch.setattr(check, "built", lambda _: None)
    monkeypatch.setattr(check, "make_cache", builds.make_cache)
    monkeypatch.setattr(check, "cache_folder", lambda: tmp_path / "new")
    assert check.main([]) == 0
    assert (tmp_path / "new").is_dir()


def test_a_real_node_is_possible_with_apt_or_with_everything_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "check_rights", lambda: None)
    monkeypatch.setattr(check, "missing_packages", lambda: ["runc"])
    monkeypatch.setattr(check.shutil, "which", lambda name, **_: name if name == "apt-get" else None)
    assert check.main(["--real-node"]) == 0
    monkeypatch.setattr(check.shutil, "which", lambda *_, **__: None)
    assert check.main(["--real-node"]) == 1
    assert "runc mmdebstrap, and there is no apt" in capsys.readouterr().err


STAND_IN = """#!/bin/sh
case "$*" in
  *--real-node*) [ -z "$REASON" ] || { echo "error: $REASON" >&2; exit 1; } ;;
esac
"""


@pytest.mark.parametrize("reason", ["", "a real node needs root"])
def test_make_test_says_what_it_leaves_out_and_why(tmp_path: Path, reason: str) -> None:
    python = tmp_path / "python"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    # As they are: check and e2e are done, and e2e-real is the stand-in for make.
    argv = ["make", "-s", f"PYTHON={python}", "MAKE=echo ran:", "-o", "check", "-o", "e2e", "test"]
    environment = {**os.environ, "REASON": reason}
    done = subprocess.run(argv, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True, timeout=60)
    said = f"left out: make e2e-real ({reason})\n" if reason else "ran: e2e-real\n"
    assert (done.stdout, done.stderr) == (said, "")


def test_tests_on_a_real_node_run_only_when_they_are_named() -> None:
    from e2e.conftest import pytest_ignore_collect as ignored

    class Config:
        def __init__(self, *args: str) -> None:
            self.args = args

    node, real = REPOSITORY / "e2e/node/test_node.py", REPOSITORY / "e2e/real/test_real.py"
    for everything in (Config("e2e"), Config(str(REPOSITORY / "e2e" / "test_ready.py"))):
        assert [ignored(path, everything) for path in (node, real, node.parent)] == [True] * 3  # type: ignore[arg-type]
        assert ignored(REPOSITORY / "e2e" / "test_ready.py", everything) is None  # type: ignore[arg-type]
    named = Config("e2e/real/test_real.py::test_deletion_leaves_nothing")
    assert [ignored(path, named) for path in (node, real)] == [True, None]  # type: ignore[arg-type]


def test_the_operators_binding_is_not_the_charts() -> None:
    applied: list[dict[str, Any]] = []

    class Client:
        def apply(self, obj: dict[str, Any]) -> None:
            applied.append(obj)

    controlplane.grant_operator(Client())  # type: ignore[arg-type]
    assert [o["metadata"]["name"] for o in applied] == ["firsttoken-local-operator"]
    assert applied[0]["subjects"][0]["name"] == "firsttoken-operator"
