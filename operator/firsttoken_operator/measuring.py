"""Round after round, what Prometheus has of the whole fleet: kept here until the next one, and handed to each pass."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from firsttoken.measurement.answers import Key
from firsttoken.measurement.blocks import Measurements
from firsttoken.measurement.stages import unusable
from firsttoken_operator import metrics
from firsttoken_operator.prometheus import PrometheusError

log = logging.getLogger("firsttoken")

FAILURES_TO_TELL = 2  # rounds: one that fails between two that don't is nothing to put into a status


class Source(Protocol):
    """Who is asked."""

    async def ask(self) -> Mapping[Key, Measurements]:
        """See prometheus.Prometheus."""


class Fleet:
    """The latest measurements. `wake` is told the services for which something changed that a person would see."""

    def __init__(self, source: Source, wake: Callable[[Iterable[Key] | None], None]) -> None:
        """`wake(None)`: all services."""
        self._source, self._wake = source, wake
        self._found: Mapping[Key, Measurements] = {}
        self._states: dict[Key, tuple[tuple[str, str, str], ...]] = {}
        self._fault, self._said, self._failures, self._answered = "", "", 0, False

    def of(self, key: Key) -> Measurements:
        """Of one service."""
        return Measurements(fault=self._fault) if self._fault else self._found.get(key, Measurements())

    async def round(self, patience: float | None = None) -> None:
        """Ask once, for at most `patience` seconds. Never raises for what a server does."""
        try:
            async with asyncio.timeout(patience):
                found = await self._source.ask()
        except TimeoutError:
            metrics.PROMETHEUS_ROUNDS.labels("failed").inc()
            self._failed(f"Prometheus has not answered within {patience:.0f} s; it is asked again")
            return
        except PrometheusError as error:
            metrics.PROMETHEUS_ROUNDS.labels("failed").inc()
            self._failed(str(error), error.detail)
            return
        metrics.PROMETHEUS_ROUNDS.labels("answered").inc()
        states = {key: _state(one) for key, one in found.items()}
        changed = {k for k in states.keys() | self._states.keys() if states.get(k) != self._states.get(k)}
        recovered, self._fault, self._failures, self._answered = bool(self._fault), "", 0, True
        self._found, self._states = found, states
        if recovered:
            log.info("Prometheus answers again")
        self._wake(None if recovered else changed)

    async def run(self, interval: float) -> None:
        """For ever, a round every `interval` seconds."""
        while True:
            await asyncio.sleep(interval)
            try:
                await self.round()
            except Exception:  # a defect of ours must not end the measuring of all services
                log.exception("a round of measuring failed")

    def _failed(self, why: str, detail: str = "") -> None:
        self._failures += 1
        if self._failures == 1 or why != self._said:
            log.warning("%s%s", why, f" ({detail})" if detail else "")
        self._said = why
        if self._answered and self._failures < FAILURES_TO_TELL:
            return
        changed = why != self._fault
        self._fault = why
        if changed:
            self._wake(None)


def _state(found: Measurements) -> tuple[tuple[str, str, str], ...]:
    """What of a service's measurements can be used."""
    states = []
    for (revision, role), window in sorted(found.windows.items()):
        why = unusable(window)
        states.append((revision, role, why.code if why is not None else ""))
    return tuple(states)
