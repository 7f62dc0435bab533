"""Running a program to its end: within a time, and with faults that a person can read."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from firsttoken_local.errors import LocalError


def finished(
    argv: Sequence[str | Path], *, timeout_s: float, env: Mapping[str, str] | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program and return its exit status and what it wrote.

    Raises:
        LocalError: it took longer than ``timeout_s`` seconds and was killed; holds the end of what it wrote.
    """
    try:
        return subprocess.run(
            argv, env=env, input=stdin, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        written = b"".join(part if isinstance(part, bytes) else b"" for part in (error.stdout, error.stderr))
        message = f"{Path(argv[0]).name} did not end within {timeout_s:g} s"
        raise LocalError(message, written.decode(errors="replace").strip()[-2000:]) from error


def output(
    what: str,
    argv: Sequence[str | Path],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a program that must succeed and return what it wrote.

    Raises:
        LocalError: it failed, which is told as ``what``, or took too long; holds the end of what it wrote.
    """
    done = finished(argv, timeout_s=timeout_s, env=env)
    if done.returncode:
        raise LocalError(what, (done.stdout + done.stderr).strip()[-2000:])
    return done.stdout
