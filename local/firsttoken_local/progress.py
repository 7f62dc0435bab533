"""Progress for a person: lines, and on a terminal one line that is rewritten in place."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Protocol, TextIO


class Progress(Protocol):
    """What the cluster tells while it works."""

    def line(self, text: str) -> None:
        """Tell something that stays visible."""

    def transient(self, text: str) -> None:
        """Tell where a long step stands; a later call may overwrite it."""


class Silent:
    """Tells nothing; for tests."""

    def line(self, text: str) -> None:
        """Drop the text."""

    def transient(self, text: str) -> None:
        """Drop the text."""


class Printed:
    """Writes to a stream: refreshed in place on a terminal, otherwise one line every ``every_s`` seconds."""

    def __init__(self, stream: TextIO | None = None, every_s: float = 20.0) -> None:
        self._stream = stream or sys.stderr
        self._tty = self._stream.isatty()
        self._every_s = every_s
        self._last = 0.0
        self._dirty = False

    def line(self, text: str) -> None:
        """Print one line, in place of a transient one."""
        self._stream.write(("\r\033[K" if self._dirty else "") + text + "\n")
        self._stream.flush()
        self._dirty = False
        self._last = time.monotonic()

    def transient(self, text: str) -> None:
        """Rewrite the current line on a terminal; elsewhere print it only when the last print is old enough."""
        if self._tty:
            self._stream.write("\r\033[K" + text)
            self._stream.flush()
            self._dirty = True
        elif time.monotonic() - self._last >= self._every_s:
            self.line(text)


@contextlib.contextmanager
def told_when_slow(told: Progress, text: str, after_s: float = 3.0) -> Iterator[None]:
    """Tell ``text`` in one line if the block takes longer than ``after_s`` seconds; a quick one stays silent."""
    timer = threading.Timer(after_s, told.line, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
