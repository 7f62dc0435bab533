"""The simulated engine by the wall clock: requests go in when they come, tokens come out when they are due."""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from firsttoken.simulation.engine_rows import Clock, Served
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.live_engine import LiveEngine, Token
from firsttoken.simulation.live_settings import MOST_BYTES, applied, read_live
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.telemetry import Telemetry

LOOK_S = 0.2  # between two looks at the live settings: they count within a second


def epoch_clock() -> Callable[[], float]:
    """Seconds since 1970 that never go back, so that the gateway's stamps can be compared."""
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset


class Flight:
    """One request under way: its tokens as they become due."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self._tokens: asyncio.Queue[Token] = asyncio.Queue()

    def land(self, token: Token) -> None:
        """A token is due."""
        self._tokens.put_nowait(token)

    async def tokens(self) -> AsyncIterator[Token]:
        """Each token when it is due."""
        while True:
            token = await self._tokens.get()
            yield token
            if token.number == self.served.output:
                return


class Driver:
    """One engine. Start it by :meth:`running`."""

    def __init__(
        self,
        settings: EngineSettings,
        clock: Clock,
        telemetry: Telemetry,
        *,
        now: Callable[[], float],
        live: Path | None = None,
        pod_uid: str = "",
        computes: bool = True,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``live``: file with the live settings. ``say``: takes one line when they can't be used."""
        self.telemetry, self.now, self._say = telemetry, now, say
        self._start, self._live, self._uid, self._computes = settings, live, pod_uid, computes
        self.engine = LiveEngine(settings, clock)
        self._flights: dict[int, Flight] = {}
        self._due: deque[Token] = deque()
        self._changed = asyncio.Event()
        self._seen = b""
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Driver]:
        """The engine steps and looks after its settings inside the block."""
        self.look_at_settings()
        self._tasks = (asyncio.create_task(self._step()), asyncio.create_task(self._watch_settings()))
        for task in self._tasks:
            task.add_done_callback(self._ended)
        try:
            yield self
        finally:
            tasks, self._tasks = self._tasks, ()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def works(self) -> bool:
        """Whether the engine steps and looks after its settings; False: requests would wait for ever."""
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._say("the simulated engine stopped:\n" + "".join(traceback.format_exception(error)))

    def submit(self, prompt: int, output: int, *, priority: int = 0, hashes: Sequence[int] = ()) -> Flight:
        """A request is here now.

        Raises:
            SimulationInputError: its KV could never fit.
        """
        served = self.engine.submit(prompt, output, self.now(), priority=priority, hashes=hashes)
        flight = self._flights[id(served)] = Flight(served)
        self._changed.set()
        return flight

    def leave(self, flight: Flight) -> None:
        """Nobody waits for its tokens any more: what it holds is free."""
        self._flights.pop(id(flight.served), None)
        self.engine.abort(flight.served)
        self._changed.set()

    def counts(self) -> tuple[int, int]:
        """Bring the gauges up to date; return running and waiting requests."""
        now = self._advance()
        self.telemetry.state(self.engine, now)
        return sum(self.engine.phases(now)), self.engine.waiting_requests(now)

    def look_at_settings(self) -> None:
        """Apply the live settings if they are others than before; broken ones leave the last good ones in force."""
        if self._live is None:
            return
        try:
            with self._live.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except OSError:
            return  # the ConfigMap is optional
        if data == self._seen:
            return
        self._seen = data
        try:
            values = read_live(data.decode(), self._uid)
        except UnicodeDecodeError:
            self._say("settings.json can't be used (not UTF-8 text): what was applied before stays")
            return
        except SimulationInputError as error:
            self._say(str(error))
            return
        self._advance()
        self.engine.settings = applied(values, self._start, computes=self._computes)
        self.telemetry.values["firsttoken_settings_generation", ()] = values.generation
        self._changed.set()

    async def _watch_settings(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.look_at_settings()

    def _advance(self) -> float:
        now = self.now()
        self.engine.run_until(now)
        tokens, steps = self.engine.take()
        self._due.extend(tokens)
        for step in steps:
            self.telemetry.step(step)
        return now

    async def _step(self) -> None:
        while True:
            self._changed.clear()
            now = self._advance()
            while self._due and self._due[0].time <= now:
                token = self._due.popleft()
                flight = self._flights.get(id(token.request))
                if flight is not None:
                    flight.land(token)
            times = [self.engine.next_time(now), self._due[0].time if self._due else None]
            known = [one for one in times if one is not None]
            wait = max(0.0, min(known) - self.now()) if known else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
