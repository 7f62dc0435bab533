"""Building the binaries once into a cache, from locked Go modules.

The cache is ``${XDG_CACHE_HOME:-~/.cache}/firsttoken/bin/<name>-<version>-<key>/``. The key covers all that decides
the bytes: go.mod, go.sum, Go files beside them, flags, platform and Go version. A folder appears by one rename, when
it is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from firsttoken_local.catalogue import SETS, BuildSet
from firsttoken_local.errors import LocalError, tail
from firsttoken_local.progress import Progress
from firsttoken_local.toolchain import Toolchain, find_toolchain


def cache_folder() -> Path:
    """Return the folder that holds everything built; it may be deleted at any time.

    Raises:
        LocalError: XDG_CACHE_HOME is a relative path, which would mean another folder in each working directory.
    """
    base = os.environ.get("XDG_CACHE_HOME") or ""
    if base and not Path(base).is_absolute():
        raise LocalError(f"XDG_CACHE_HOME is a relative path ({base}): set it to an absolute one")
    return (Path(base) if base else Path.home() / ".cache") / "firsttoken"


def make_cache(folder: Path) -> None:
    """Create a folder of the cache and see that files can be created there.

    Raises:
        LocalError: that is not possible.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        fault = f"cache folder {folder} can't be created ({error.strerror})"
        raise LocalError(f"{fault}: set XDG_CACHE_HOME to a writable folder") from error


def cache_key(build: BuildSet, toolchain: Toolchain) -> str:
    """Return 12 hexadecimal digits that change with whatever changes the result of the build."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((build.folder / name).read_bytes() + b"\0")
    for path in sorted(build.folder.rglob("*.go")):
        digest.update(f"{path.relative_to(build.folder)}\0".encode() + path.read_bytes() + b"\0")
    inputs = [build.flags(), sorted(build.binaries.items()), sorted(build.files.items())]
    digest.update(json.dumps([*inputs, toolchain.version, toolchain.goos, toolchain.goarch]).encode())
    return digest.hexdigest()[:12]


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold an exclusive lock on a file among all processes of this machine; it ends with the process.

    ``waiting`` is called when somebody else holds the lock. Who holds it may remove the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting:
                    waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
            if _is_file_of(path, file.fileno()):
                yield
                return


def _is_file_of(path: Path, descriptor: int) -> bool:
    """Tell whether a file that was waited for is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def ensure(names: Iterable[str], progress: Progress) -> dict[str, Path]:
    """Build what the cache lacks, and return the folder of each set by name.

    Raises:
        LocalError: Go is missing or too old, or a build failed.
    """
    return {name: _ensure_one(SETS[name], progress) for name in names}


def built(name: str) -> Path | None:
    """Return the folder of a set when it is in the cache, without building it.

    Raises:
        LocalError: Go is missing or too old.
    """
    folder = _target(SETS[name], usable_toolchain(SETS[name]))
    return folder if folder.is_dir() else None


def usable_toolchain(build: BuildSet) -> Toolchain:
    """Return the toolchain to build a set with, or the one that it was built with: then Go need not be there.

    Raises:
        LocalError: the set is not in the cache, and Go is missing or too old.
    """
    memory = cache_folder() / "bin" / f".{build.name}.toolchain"
    try:
        found = find_toolchain(build.folder)
    except LocalError:
        with contextlib.suppress(OSError, ValueError, TypeError):
            remembered = Toolchain(**json.loads(memory.read_text()))
            if _target(build, remembered).is_dir():
                return remembered
        raise
    text = json.dumps(asdict(found))
    with contextlib.suppress(OSError):  # a cache that can only be read, or that is not there yet
        if not memory.exists() or memory.read_text() != text:
            memory.write_text(text)
    return found


def _target(build: BuildSet, toolchain: Toolchain) -> Path:
    return cache_folder() / "bin" / f"{build.name}-{build.version}-{cache_key(build, toolchain)}"


def _ensure_one(build: BuildSet, progress: Progress) -> Path:
    toolchain = usable_toolchain(build)
    target = _target(build, toolchain)
    if target.is_dir():
        return target
    make_cache(target.parent)
    lock = cache_folder() / "bin" / f".{build.name}.lock"
    with locked(lock, lambda: progress.line(f"{build.name}: waiting for another build of the same")):
        if target.is_dir():
            return target
        with tempfile.TemporaryDirectory(prefix=f".{build.name}-", dir=lock.parent) as scratch:
            result = Path(scratch) / "result"
            result.mkdir()
            started = time.monotonic()
            if build.binaries:
                _compile(build, toolchain, result, progress)
            if build.files:
                _copy_files(build, toolchain, result)
            result.replace(target)
            usable_toolchain(build)  # remembers it, now that there is a folder to do so
        progress.line(f"{build.name} {build.version}: done in {time.monotonic() - started:.0f} s")
    return target


def _compile(build: BuildSet, toolchain: Toolchain, result: Path, progress: Progress) -> None:
    """Run ``go build`` and tell how far it is; the log stays in the cache."""
    log = cache_folder() / "logs" / f"{build.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    output = result if len(build.binaries) > 1 else result / next(iter(build.binaries))
    command = [toolchain.go, "build", "-v", *build.flags(), "-o", f"{output}{os.sep * output.is_dir()}"]
    command += build.binaries.values()
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
    with log.open("wb") as file:
        child = subprocess.Popen(command, cwd=build.folder, env=environment, stdout=file, stderr=file)
        try:
            _report(build, child, log, progress)
        finally:
            if child.poll() is None:  # interrupted: no orphan goes on burning the processors
                child.terminate()
                child.wait()
    if child.returncode:
        raise LocalError(_failure(build, log), tail(log))
    for name, package in build.binaries.items():
        # Go names a binary after its package: etcd's, for instance, is called "server".
        made = result / binary_name(package)
        if made.exists() and made.name != name:
            made.rename(result / name)


def binary_name(package: str) -> str:
    """Return the file name that ``go build -o folder/`` gives to a package: a version suffix does not count."""
    parts = package.split("/")
    versioned = len(parts) > 1 and parts[-1][:1] == "v" and parts[-1][1:].isdigit()
    return parts[-2] if versioned else parts[-1]


def _report(build: BuildSet, child: subprocess.Popen[bytes], log: Path, progress: Progress) -> None:
    started = time.monotonic()
    progress.line(f"{build.name} {build.version}: building, once; log: {log}")
    while True:
        try:
            child.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            progress.transient(progress_text(build, time.monotonic() - started, log.read_text(errors="replace")))
        else:
            return


def progress_text(build: BuildSet, elapsed_s: float, log: str) -> str:
    """Say how far a build is, from what ``go build -v`` has written: a package a line, or a download a line."""
    lines = log.splitlines()
    downloads = sum(line.startswith("go: downloading ") for line in lines)
    compiled = sum(bool(line) and " " not in line and not line.startswith("#") for line in lines)
    text = f"{build.name}: {elapsed_s:.0f} s"
    if downloads:
        text += f", {downloads} modules downloaded"
    return f"{text}, {compiled} of at most about {build.about} packages compiled"


def _failure(build: BuildSet, log: Path) -> str:
    text = log.read_text(errors="replace")
    if "no space left" in text:
        remedy = "free some disk space (about 6 GB are needed) and run it again"
    elif any(mark in text for mark in ("dial tcp", "connection refused", "i/o timeout", "TLS handshake")):
        remedy = "the Go module proxy was not reached: check the network and GOPROXY, then run it again"
    elif "signal: killed" in text:
        remedy = "the compiler was killed, probably for memory: close something or set GOMAXPROCS=1"
    else:
        remedy = "read the log; `go clean -cache` and another run help when the Go cache is damaged"
    return f"building {build.name} failed: {remedy}; log: {log}"


def _copy_files(build: BuildSet, toolchain: Toolchain, result: Path) -> None:
    """Copy folders of the module itself, at the locked version, into the result."""
    command = [toolchain.go, "mod", "download", "-json", build.module]
    environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    done = subprocess.run(command, cwd=build.folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"{build.name}: the module {build.module} was not downloaded", done.stderr.strip())
    source = Path(json.loads(done.stdout)["Dir"])
    for name, folder in build.files.items():
        shutil.copytree(source / folder, result / name, copy_function=shutil.copyfile)
        for path in (result / name, *(result / name).rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)  # module folders are read-only, ours can be deleted
