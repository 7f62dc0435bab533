"""`vllm serve` of the tiny model on loopback, from the packages of the runtime-cpu image."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from firsttoken_local.builds import locked, make_cache
from firsttoken_local.errors import LocalError, tail
from firsttoken_local.images import tiny_model
from firsttoken_local.images.cache import images_folder
from firsttoken_local.images.catalogue import IMAGES, FromDockerfile
from firsttoken_local.images.debian import ensure_debian
from firsttoken_local.images.dockerfile import read_dockerfile
from firsttoken_local.images.packages import ensure_made, ensure_packages
from firsttoken_local.images.recipe import PYTHON
from firsttoken_local.layout import REPOSITORY
from firsttoken_local.ports import choose_ports
from firsttoken_local.progress import Progress
from firsttoken_local.waiting import wait_for

MODEL = "tiny"
READY_S = 600.0  # loading torch and vLLM on few cores
END_S = 30.0
BLOCK_TOKENS = 32  # the CPU backend takes multiples of it
MAX_MODEL_LENGTH = tiny_model.MAX_LENGTH
KV_GIB = 1


@dataclass(frozen=True)
class ServerSettings:
    """What one engine is started with. Tokens, requests."""

    token_budget: int
    max_num_seqs: int
    prefix_caching: bool

    def arguments(self) -> list[str]:
        """vLLM's flags."""
        caching = "--enable-prefix-caching" if self.prefix_caching else "--no-enable-prefix-caching"
        return [
            "--enforce-eager", "--dtype=float32", f"--max-model-len={MAX_MODEL_LENGTH}", "--enable-chunked-prefill",
            f"--max-num-batched-tokens={self.token_budget}", f"--max-num-seqs={self.max_num_seqs}",
            f"--block-size={BLOCK_TOKENS}", caching, f"--served-model-name={MODEL}", "--disable-log-stats",
            "--disable-uvicorn-access-log",
        ]  # fmt: skip


@dataclass(frozen=True)
class Runtime:
    """Folders of Python modules, and of the CUDA stubs that torch links to."""

    modules: tuple[Path, ...]
    stubs: Path

    def environment(self, home: Path) -> dict[str, str]:
        """As cpu.Dockerfile sets it, with one thread: engine, API server and clients share the machine."""
        return {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            "PYTHONPATH": os.pathsep.join(map(str, self.modules)), "LD_LIBRARY_PATH": str(self.stubs),
            "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": str(KV_GIB), "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        }  # fmt: skip


def ensure_runtime(folder: Path, told: Progress) -> Runtime:
    """What the runtime-cpu image holds, installed if need be; `folder` takes what the image adds to the packages.

    Raises:
        LocalError: it could not be installed, or this is another Python than the image's.
    """
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if own != PYTHON:
        raise LocalError(f"the packages are for Python {PYTHON} and this is {own}: run it with that one")
    image = IMAGES["runtime-cpu"]
    assert isinstance(image, FromDockerfile)  # noqa: S101
    recipe = read_dockerfile(image.dockerfile)
    (installed,), (made,) = recipe.installed, recipe.made
    make_cache(images_folder())
    with locked(images_folder() / "images.lock", lambda: told.line("waiting for another process that makes images")):
        packages = ensure_packages(installed, ensure_debian(told, recipe.packages), told)
        stubs = ensure_made(REPOSITORY / made.script, packages, told)
    for one in recipe.copied:  # vLLM's metadata among them
        target = folder / Path(one.target).relative_to("/opt/firsttoken")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / one.source, target)
    return Runtime((packages, folder), stubs)


@contextlib.contextmanager
def serving(settings: ServerSettings, told: Progress) -> Iterator[int]:
    """The port at which an engine answers until the end of the block.

    Raises:
        LocalError: it ended or was not there within ten minutes; holds the end of its log.
    """
    with tempfile.TemporaryDirectory(prefix="firsttoken-vllm-") as name:
        folder = Path(name)
        runtime = ensure_runtime(folder / "modules", told)
        (folder / "model").mkdir()
        for file, data in tiny_model.files().items():
            (folder / "model" / file).write_bytes(data)
        port, log = choose_ports(["vllm"])["vllm"], folder / "vllm.log"
        python = Path(sys.base_prefix) / "bin" / f"python{PYTHON}"
        argv = [python, runtime.modules[0] / "bin" / "vllm", "serve", folder / "model", "--host=127.0.0.1"]
        argv += [f"--port={port}", *settings.arguments()]
        with log.open("wb") as written:
            process = subprocess.Popen(
                list(map(str, argv)), stdout=written, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=runtime.environment(folder), cwd=folder, start_new_session=True,
            )  # fmt: skip
        try:
            told.transient(f"starting vllm serve {' '.join(settings.arguments())}")
            wait_for("vllm to answer", lambda: _answers(process, port, log), timeout_s=READY_S, logs=[log])
            yield port
        finally:
            _end(process)


def _answers(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    if process.poll() is not None:
        raise LocalError(f"vllm ended with {process.returncode}", tail(log))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    finally:
        connection.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """The API server and the engine's process, which it started in the same session."""
    for what, patience in ((signal.SIGTERM, END_S), (signal.SIGKILL, END_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, what)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
