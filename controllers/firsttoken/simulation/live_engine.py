"""An engine whose requests come one by one, as a server gets them: the exact engine, followed by somebody's clock."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from firsttoken.simulation.engine import Engine
from firsttoken.simulation.engine_rows import Clock, Served, Step
from firsttoken.simulation.requests import requests
from firsttoken.simulation.settings import EngineSettings


class Token(NamedTuple):
    """One token: when it is there (seconds, perhaps still to come), whose it is, and its number from 1."""

    time: float
    request: Served
    number: int


class LiveEngine(Engine):
    """One replica. Call `run_until(now)` when time has passed, then take what was made by `take`.

    Times are the caller's, in seconds, and must not go back. Nothing is kept of requests that have ended.
    """

    def __init__(self, settings: EngineSettings, clock: Clock) -> None:
        """`settings` as started; assign others with the same KV to `settings` while it runs."""
        super().__init__(requests([], [], [], hash_tokens=settings.block_tokens), settings, clock)
        self.allocation_failures = 0  # times that a running request found no KV block
        self._recomputed: dict[Served, float] = {}  # of preempted requests: when they decode again, seconds
        self._tokens: list[Token] = []

    def submit(
        self, prompt: int, output: int, arrival: float, *, priority: int = 0, hashes: Sequence[int] = ()
    ) -> Served:
        """A request of `prompt` tokens leaves its client at `arrival`; it ends with its `output`th token.

        `hashes`: one for each full KV block of the prompt, standing for the block and all before it; 0 or more.
        Raises SimulationInputError: its KV could never fit.
        """
        self.settings.check(0, prompt, output)
        one = Served(0, prompt, output, priority if self.settings.priorities else 0, list(hashes))
        self.depart(one, arrival)
        return one

    def take(self) -> tuple[list[Token], list[Step]]:
        """Tokens and steps decided since the last call, in order."""
        tokens, steps = self._tokens, self.steps
        self._tokens, self.steps = [], []
        return tokens, steps

    def abort(self, one: Served) -> None:
        """Its client is gone: its place and KV are free for the next step. One that has ended is left alone."""
        self._recomputed.pop(one, None)
        for queue in (self.coming, self.waiting, self.loaded, self.running):
            if one in queue:
                queue.remove(one)
                self.pool.forget(one.own)
                self.give_back(one, one.computed)
                return

    def phases(self, now: float) -> tuple[int, int]:
        """Admitted requests that prefill, and that decode, at `now`, seconds.

        A request decodes from its first token on, and prefills again while it recomputes. Steps are decided ahead, so
        the engine's own lists are up to two steps further: who has left them by a token still to come counts.
        """
        admitted = [*self.running, *(one for one in self.finishing if one.finish > now)]
        decodes = sum(one.first <= now and self._recomputed.get(one, now) <= now for one in admitted)
        return len(admitted) - decodes, decodes

    def waiting_requests(self, now: float) -> int:
        """Requests that have reached the engine by `now` and were not admitted."""
        return len(self.waiting) + len(self.loaded) + sum(one.ready <= now for one in self.coming)

    def next_time(self, now: float) -> float | None:
        """When to call `run_until` again, after one until `now`; None: when a request comes."""
        if self.decides >= now and (self.running or self.finishing or self.waiting or self.loaded):
            return self.decides
        return max(now, self.decides, self.coming[0].ready) if self.coming else None

    def oldest_waiting(self, now: float) -> float:
        """Seconds since the oldest request that waits for its first step left its client; 0 without one."""
        arrivals = [one.arrival for one in (*self.waiting, *self.coming) if one.ready <= now]
        return max(0.0, now - min(arrivals, default=now))

    def _token(self, one: Served) -> None:
        super()._token(one)
        if one.generated == one.output:
            self._recomputed.pop(one, None)
        elif self._recomputed.get(one) == math.inf:
            self._recomputed[one] = self.end
        self._tokens.append(Token(self.end, one, one.generated))

    def _preempt(self, victim: Served) -> int:
        self.allocation_failures += 1
        if victim.generated:
            self._recomputed[victim] = math.inf
        return super()._preempt(victim)
