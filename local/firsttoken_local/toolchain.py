"""The Go toolchain: its presence, version and folders."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from firsttoken_local.errors import LocalError

OLDEST = (1, 21)  # from here on Go fetches the newer toolchain that a go.mod asks for


@dataclass(frozen=True)
class Toolchain:
    """The toolchain that Go uses in one module folder."""

    go: str
    version: str
    goos: str
    goarch: str


def parse_version(text: str) -> tuple[int, int]:
    """Return major and minor of a Go version such as ``go1.26.8`` or ``go1.27rc1``; (0, 0) for anything else."""
    found = re.match(r"go(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def find_toolchain(module_folder: Path) -> Toolchain:
    """Ask Go which toolchain it uses in ``module_folder``.

    Raises:
        LocalError: Go is missing, too old, or not allowed to fetch the version that go.mod asks for.
    """
    wanted = re.search(r"^go (\S+)$", (module_folder / "go.mod").read_text(), re.MULTILINE)
    need = f"install Go {wanted[1] if wanted else '1.26'} or newer and put its `go` on PATH"
    go = shutil.which("go")
    if go is None:
        raise LocalError(f"Go is not installed: {need}")
    command = [go, "env", "-json", "GOVERSION", "GOOS", "GOARCH"]
    done = subprocess.run(command, cwd=module_folder, capture_output=True, text=True, check=False)
    if done.returncode:
        fault = (done.stderr.strip().splitlines() or ["unknown fault"])[-1]
        raise LocalError(f"Go does not work here ({fault}): {need}")
    values = json.loads(done.stdout)
    if parse_version(values["GOVERSION"]) < OLDEST:
        raise LocalError(f"Go is too old ({values['GOVERSION']}): {need}")
    return Toolchain(go, values["GOVERSION"], values["GOOS"], values["GOARCH"])
