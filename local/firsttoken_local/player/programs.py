"""What runs in a played pod: a process of this machine, or an engine server inside the player."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

# What a client of this machine was told must not come between pods.
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


class Program(Protocol):
    """One life of a container."""

    async def start(self) -> None:
        """Start it; readiness is asked for by HTTP."""

    async def ended(self) -> str:
        """Wait for its end; returns how it ended."""

    async def stop(self, grace_s: float) -> None:
        """End it: it gets this many seconds to do so by itself."""


class ProcessProgram:
    """A process with a log of its own."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path) -> None:
        self._argv, self._environment, self._log, self._folder = argv, environment, log, folder
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it.

        Raises:
            OSError: it can't be executed.
        """
        kept = {key: value for key, value in os.environ.items() if key not in PROXY_VARIABLES}
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**kept, **self._environment},
            )

    async def ended(self) -> str:
        """Wait for its end."""
        assert self._process is not None  # noqa: S101 - started
        return f"exit status {await self._process.wait()}"

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL when the grace is over."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM if grace_s > 0 else signal.SIGKILL)
        try:
            await asyncio.wait_for(process.wait(), max(grace_s, 0.01))
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class ServerProgram:
    """A server in this process, for as long as its context is open."""

    def __init__(self, context: AbstractAsyncContextManager[object]) -> None:
        self._context = context
        self._task: asyncio.Task[None] | None = None
        self._stop, self._up = asyncio.Event(), asyncio.Event()

    async def start(self) -> None:
        """Start it.

        Raises:
            OSError: its address is taken.
        """
        self._task = asyncio.create_task(self._run())
        up = asyncio.create_task(self._up.wait())
        await asyncio.wait([self._task, up], return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if self._task.done():
            await self._task

    async def _run(self) -> None:
        async with self._context:
            self._up.set()
            await self._stop.wait()

    async def ended(self) -> str:
        """Wait for its end."""
        assert self._task is not None  # noqa: S101 - started
        done, _ = await asyncio.wait([self._task])
        (task,) = done
        return "ended" if task.cancelled() or task.exception() is None else repr(task.exception())

    async def stop(self, grace_s: float) -> None:  # noqa: ARG002 - the hook before it waited for the requests
        """End it at once: connections that are left break off."""
        if self._task is not None:
            self._stop.set()
            await asyncio.wait([self._task])


class Silence:
    """Stands for a program that can't be played: the pod counts as ready, and answers nobody."""

    def __init__(self) -> None:
        self._stop = asyncio.Event()

    async def start(self) -> None:
        """Nothing starts."""

    async def ended(self) -> str:
        """Wait for :meth:`stop`."""
        await self._stop.wait()
        return "ended"

    async def stop(self, grace_s: float) -> None:  # noqa: ARG002 - nothing has to come to an end
        """End it."""
        self._stop.set()


async def run_hook(argv: Sequence[str], log: Path, deadline_s: float) -> None:
    """A preStop hook: a command that gets so many seconds."""
    hook = ProcessProgram(argv, {}, log, log.parent)
    await hook.start()
    try:
        await asyncio.wait_for(hook.ended(), deadline_s)
    except TimeoutError:
        await hook.stop(0)
