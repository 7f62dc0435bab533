"""One reconcile per service at a time, never two, never none: a level-triggered queue of keys (DESIGN §1).

The shape of client-go's workqueue: a key added while it is being worked on is worked on once more afterwards; adding
it twice before is one piece of work; failures come back later and later.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

_BACKOFF_SECONDS = (0.2, 300.0)  # first and longest pause after a failure


class Workqueue(Generic[Key]):
    """Keys to be worked on. Not thread-safe: one event loop."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter
        self._waiting: asyncio.Queue[Key] = asyncio.Queue()
        self._dirty: set[Key] = set()
        self._active: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}

    def __len__(self) -> int:
        return self._waiting.qsize()

    def add(self, key: Key) -> None:
        """Work on `key` soon."""
        self._cancel_timer(key)
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._active:
            self._waiting.put_nowait(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Work on `key` in `seconds`, or earlier if something else asks; the nearest of several times counts."""
        loop = asyncio.get_running_loop()
        present = self._timers.get(key)
        when = loop.time() + max(0.0, seconds)
        if present is None or present.when() > when:
            self._cancel_timer(key)
            self._timers[key] = loop.call_at(when, self.add, key)

    def retry(self, key: Key, at_least: float = 0.0) -> float:
        """`key` failed: again after a pause that doubles with each failure, with jitter. Returns the pause, seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        first, longest = _BACKOFF_SECONDS
        pause = min(longest, first * 2.0 ** min(failures, 20)) * (1.0 + self._jitter() / 2)
        pause = max(pause, at_least)
        self.add_after(key, pause)
        return pause

    def succeeded(self, key: Key) -> None:
        """Forget earlier failures of `key`."""
        self._failures.pop(key, None)

    def forget(self, key: Key) -> None:
        """`key` is gone: no timer, no failures."""
        self._cancel_timer(key)
        self._failures.pop(key, None)

    async def work(self, handle: Callable[[Key], Awaitable[None]]) -> None:
        """Take keys and handle them, one after the other, for ever. `handle` must not raise."""
        while True:
            key = await self._waiting.get()
            self._dirty.discard(key)
            self._active.add(key)
            try:
                await handle(key)
            finally:
                self._active.discard(key)
                if key in self._dirty:
                    self._waiting.put_nowait(key)

    def _cancel_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
