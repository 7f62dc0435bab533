"""Waiting on a condition until a deadline, and saying afterwards what was awaited."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from firsttoken_local.errors import LocalError, log_tails

T = TypeVar("T")


def wait_for(
    what: str,
    condition: Callable[[], T | None],
    *,
    timeout_s: float,
    logs: Sequence[Path] = (),
    interval_s: float = 0.05,
) -> T:
    """Poll ``condition`` until it returns something true, and return that.

    ``condition`` may raise :class:`LocalError` to end the wait at once, for instance because a process died.
    Network faults (``OSError``) count as "not yet": the last one is named when the deadline passes.

    Raises:
        LocalError: ``timeout_s`` seconds passed; holds the ends of ``logs``.
    """
    deadline = time.monotonic() + timeout_s
    last = ""
    while True:
        try:
            result = condition()
            last = ""
        except OSError as error:
            result = None
            last = f" (last fault: {error})"
        if result:
            return result
        if time.monotonic() >= deadline:
            raise LocalError(f"gave up after {timeout_s:g} s waiting for {what}{last}", log_tails(logs))
        time.sleep(interval_s)
