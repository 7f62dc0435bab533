"""The exact fleet in plain Python: the reference that the compiled one is tested against.

One event after the other over all replicas. At one time a request comes first, then a hand-over, then a decision of a
prefill (or serving) replica, then one of a decode replica.
"""

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from firsttoken.simulation.engine import Engine
from firsttoken.simulation.engine_rows import Served
from firsttoken.simulation.fleet import check_fleet, draws_of, pools_of, revision_of
from firsttoken.simulation.fleet_router import just_after
from firsttoken.simulation.fleet_shape import Pool, Replica, Revision
from firsttoken.simulation.policies import CacheAware, LeastLoaded, PowerOfTwo, RoundRobin
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.settings import Link
from firsttoken.simulation.state import AWAITED, LOADED

ARRIVAL, HANDOVER, PREFILL, DECODE = range(4)


def load(engine: Engine) -> int:
    """Requests that were sent to a replica and have not ended."""
    parts = engine.coming, engine.waiting, engine.loaded, engine.running, engine.finishing
    return sum(len(part) for part in parts)


@dataclass(eq=False)
class Router:
    """A pool and what its router remembers. `column`: of its random numbers."""

    pool: Pool
    engines: list[Engine]
    column: int
    turn: int = 0
    sent: dict[int, Engine] = field(default_factory=dict)

    def choose(self, i: int, draws: NDArray[np.int64]) -> Engine:
        """The replica for request `i`."""
        policy = self.pool.policy
        if isinstance(policy, RoundRobin):
            self.turn += 1
            return self.engines[(self.turn - 1) % len(self.engines)]
        if isinstance(policy, LeastLoaded) or len(self.engines) == 1:
            return min(self.engines, key=load)
        if isinstance(policy, PowerOfTwo):
            count = len(self.engines)
            one = int(draws[i, self.column]) % count
            other = (one + 1 + int(draws[i, self.column + 1]) % (count - 1)) % count
            return min(self.engines[one], self.engines[other], key=load)
        chosen = self._cache_aware(policy, i)
        if not policy.held:
            self.sent.update(dict.fromkeys(chosen.rows[i].hashes, chosen))
        return chosen

    def _cache_aware(self, policy: CacheAware, i: int) -> Engine:
        loads = [load(one) for one in self.engines]
        if max(loads) - min(loads) > policy.most_ahead and max(loads) > policy.most_times * min(loads):
            return min(self.engines, key=load)
        best, blocks = self._longest(policy, self.engines[0].rows[i].hashes)
        row, known = self.engines[0].rows[i], self.engines[0].requests.hash_tokens
        if best and min(blocks * known, row.prompt) > policy.least_match * row.prompt:
            return best
        return min(self.engines, key=load)

    def _longest(self, policy: CacheAware, hashes: list[int]) -> tuple[Engine | None, int]:
        if not policy.held:
            known = 0
            while known < len(hashes) and hashes[known] in self.sent:
                known += 1
            return (self.sent[hashes[known - 1]], known) if known else (None, 0)
        lengths = []
        for engine in self.engines:
            groups, full = engine.pool.groups, engine.pool.group_blocks
            missing = (k for k, h in enumerate(hashes) if h not in groups or groups[h].blocks < full)
            lengths.append(next(missing, len(hashes)))
        longest = [one for one, length in zip(self.engines, lengths, strict=True) if length == max(lengths)]
        return min(longest, key=load), max(lengths)


class ExactFleet:
    """See fleet.Fleet. Request i is row i of the engines `owner[i]` and `decoder[i]`, which may be the same."""

    def __init__(
        self,
        requests: Requests,
        revisions: Sequence[Revision],
        *,
        seed: int = 0,
        keys: NDArray[np.int64] | None = None,
    ) -> None:
        """Raises SimulationInputError, as Fleet."""
        check_fleet(requests, revisions)
        self.requests, self.revision = requests, revision_of(requests, revisions, seed, keys)
        self.draws = draws_of(pools_of(revisions), len(requests), seed)
        self.routers: dict[tuple[int, bool], Router] = {}
        self.kinds: dict[Engine, int] = {}
        for pool, role, number in pools_of(revisions):
            engines = [self._engine(one, role, revisions[number].link) for one in pool.replicas]
            self.routers[number, role == "decode"] = Router(pool, engines, 2 if role == "decode" else 0)
            self.kinds |= dict.fromkeys(engines, DECODE if role == "decode" else PREFILL)
        self.engines = list(self.kinds)
        self.reached = dict.fromkeys(self.engines, 0.0)
        self.owner: dict[int, Engine] = {}
        self.decoder: dict[int, Engine] = {}
        self.handovers: list[tuple[float, int]] = []  # end of prefill and request
        self.held: dict[Engine, list[int]] = {one: [] for one in self.engines}
        self.noted: set[int] = set()

    def _engine(self, one: Replica, role: str, link: Link) -> Engine:
        own = self.requests
        if role == "prefill":
            own = replace(own, output_tokens=np.ones_like(own.output_tokens))
        engine = Engine(own, one.settings, one.table, holds=role == "prefill", link=link)
        for row in engine.rows if role == "decode" else ():
            row.remote = AWAITED
        return engine

    def run(self) -> None:
        """All requests at their own arrivals, to the end."""
        arrivals = list(enumerate(self.requests.arrival.tolist()))
        while True:
            events = [(self._next(one), self.kinds[one], k) for k, one in enumerate(self.engines)]
            events += [(time, ARRIVAL, i) for i, time in arrivals[:1]]
            events += [(time, HANDOVER, i) for time, i in self.handovers[:1]]
            now, kind, which = min(events)
            if now == math.inf:
                return
            for one in self.engines:  # nobody decides before: only who has ended is let go
                one.run_until(now)
                self.reached[one] = max(self.reached[one], now)
            if kind == ARRIVAL:
                arrivals.pop(0)
                self._arrive(which, now)
            elif kind == HANDOVER:
                self.handovers.pop(0)
                self._hand_over(which, now)
            else:
                self._decide(self.engines[which], now)

    def _next(self, engine: Engine) -> float:
        if engine.decides >= self.reached[engine]:
            return engine.decides
        times = [one.ready for one in engine.coming[:1]]
        if engine.waiting:
            times += [half.ready for _, half in self._held(engine) if half.remote == LOADED]
        return max(min(times, default=math.inf), self.reached[engine])

    def _held(self, engine: Engine) -> list[tuple[int, Served]]:
        """Prompts whose KV is still here, with their decode halves."""
        return [(i, self.decoder[i].rows[i]) for i in self.held[engine]]

    def _arrive(self, i: int, now: float) -> None:
        router = self.routers[int(self.revision[i]), False]
        self.owner[i] = self.decoder[i] = router.choose(i, self.draws)
        self.owner[i].send(i, now)

    def _hand_over(self, i: int, now: float) -> None:
        self.decoder[i] = self.routers[int(self.revision[i]), True].choose(i, self.draws)
        self.held[self.owner[i]].append(i)
        self.decoder[i].send(i, now)

    def _decide(self, engine: Engine, now: float) -> None:
        for i, half in self._held(engine):
            if half.remote == LOADED and half.ready <= now:
                self.held[engine].remove(i)
                engine.give_back(engine.rows[i], engine.rows[i].computed)
        if engine.holds:
            engine.decides = max(engine.decides, now)  # it may have waited for room
        self.reached[engine] = just_after(now)
        engine.run_until(self.reached[engine])
        for one in engine.finishing if engine.holds else ():
            if one.row not in self.noted:
                self.noted.add(one.row)
                insort(self.handovers, (one.finish, one.row), key=lambda h: h[0])
