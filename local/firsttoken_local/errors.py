"""The faults that a person can do something about."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class LocalError(Exception):
    """A fault of the local cluster: one clear line, and what the logs said as ``details``."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"{self.message}\n{self.details}" if self.details else self.message


def tail(path: Path, lines: int = 15, start: int = 0) -> str:
    """Return the last ``lines`` lines of a file from byte ``start`` on; an empty string when there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(start, file.tell() - 400 * lines))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def log_tails(paths: Iterable[Path], lines: int = 15) -> str:
    """Return the ends of several logs, each under its path; logs without content are left out."""
    parts = [f"--- {path}\n{text}" for path in paths if (text := tail(path, lines))]
    return "\n".join(parts)
