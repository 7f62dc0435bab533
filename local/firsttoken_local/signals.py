"""Signals that unwind the stack, so that ``finally`` does its work."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)  # SIGHUP: the terminal was closed


@contextlib.contextmanager
def ending_signals_raise(*, once: bool = False) -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack as SIGINT does, where nothing else was arranged for them.

    With ``once``, whatever comes after the first of the three is ignored until the end of the block: the clean-up
    that the first one starts is not broken off by an impatient second.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handled = {one: signal.SIG_DFL for one in ENDING if signal.getsignal(one) is signal.SIG_DFL}
    before = {**handled, signal.SIGINT: signal.getsignal(signal.SIGINT)} if once else handled

    def stop(number: int, _frame: FrameType | None) -> None:
        for one in before if once else ():
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    for one in before:
        signal.signal(one, stop)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
