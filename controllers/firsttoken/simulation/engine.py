"""The exact engine, one step after the other in plain Python: the reference that the compiled one is tested against.

It schedules like vLLM V1 (v1/core/sched/scheduler.py): running requests first, decodes among them, then waiting ones;
who runs out of KV preempts the last, which starts over (recompute).
"""

import math
from bisect import insort
from dataclasses import dataclass, field

import numpy as np

from firsttoken.simulation.engine_kv import BlockPool
from firsttoken.simulation.engine_remote import grant_loaded, pull
from firsttoken.simulation.engine_rows import Clock, Served, Step
from firsttoken.simulation.fast import check
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.settings import EngineSettings, Link
from firsttoken.simulation.state import AWAITED, LOADED, RUNS


@dataclass(eq=False)
class Engine:
    """One replica. Every step is kept. `holds`: KV of who has ended stays; `link`: how KV from elsewhere comes."""

    requests: Requests
    settings: EngineSettings
    clock: Clock
    steps: list[Step] = field(default_factory=list)
    closed: bool = False
    holds: bool = False
    link: Link = field(default_factory=Link)
    think_seconds: float = 0.0

    def __post_init__(self) -> None:
        check(self.requests, self.settings)
        own, hashes = self.requests, self.requests.dense_hashes()[0].tolist()
        priorities = own.priority if self.settings.priorities else np.zeros(len(own), int)
        lengths = zip(own.prompt_tokens.tolist(), own.output_tokens.tolist(), priorities.tolist(), strict=True)
        self.rows = [
            Served(i, *one, hashes[own.hash_offsets[i] : own.hash_offsets[i + 1]]) for i, one in enumerate(lengths)
        ]
        group = max(1, own.hash_tokens // self.settings.block_tokens)
        self.pool = BlockPool(self.settings.kv_blocks, group, RUNS * self.settings.max_num_seqs)
        self.coming: list[Served] = []
        self.loaded: list[Served] = []
        self.waiting: list[Served] = []
        self.running: list[Served] = []
        self.finishing: list[Served] = []
        self.arrived, self.unsent, self.ran, self.seats = 0, len(self.rows), 0, 0
        self.decides, self.end, self.link_free, self.preempted = 0.0, 0.0, 0.0, False
        self.api_free = 0.0  # until when the API server is busy with the prompts sent so far

    def send(self, row: int, arrival: float) -> None:
        """Request `row` leaves its client at `arrival`."""
        self.depart(self.rows[row], arrival)

    def depart(self, one: Served, arrival: float) -> None:
        """`one` leaves its client at `arrival`, seconds. The API server takes one after the other."""
        stages = self.settings.stages
        one.arrival = arrival
        start = max(arrival + stages.gateway_seconds, self.api_free)
        one.ready = self.api_free = start + stages.input_seconds + stages.input_token_seconds * one.prompt
        insort(self.coming, one, key=lambda r: r.ready)

    def run(self) -> list[Served]:
        """All requests at their own arrivals, to the end."""
        for row, arrival in enumerate(self.requests.arrival.tolist()):
            self.send(row, arrival)
        self.run_until(math.inf)
        return self.rows

    def run_closed(self, clients: int, think_seconds: float = 0.0) -> list[Served]:
        """`clients` that each send the next request that long after the end of the one before."""
        self.closed, self.think_seconds = True, think_seconds
        self.unsent = max(0, len(self.rows) - clients)
        for row in range(len(self.rows) - self.unsent):
            self.send(row, 0.0)
        self.run_until(math.inf)
        return self.rows

    def run_until(self, until: float) -> None:
        """Steps that are decided before `until`, and what has ended by then."""
        while True:
            self._release(min(self.decides, until))
            if self.decides >= until:
                return
            self._arrive(self.decides)
            start = max(self.decides, self.end)
            if self._compose(start):
                self._run(start)
                self.decides = start if self.settings.schedule_ahead else self.end
            elif self.end > self.decides:
                self.decides = self.end
            elif self.preempted:
                continue  # the first in line preempted itself, being the least urgent: the others come at once
            elif self.coming and self.coming[0].ready < until:
                self.decides = self.coming[0].ready
            else:
                return

    def _arrive(self, now: float) -> None:
        while self.coming and self.coming[0].ready <= now:
            one = self.coming.pop(0)
            if one.remote == LOADED:
                self.loaded.append(one)
                continue
            one.order, self.arrived = self.arrived, self.arrived + 1
            if self.settings.priorities:
                insort(self.waiting, one, key=_urgency)
            else:
                self.waiting.append(one)

    def _release(self, now: float) -> None:
        for one in [r for r in self.finishing if r.finish <= now]:
            self.finishing.remove(one)
            if not self.holds:
                self.give_back(one, one.computed)

    def give_back(self, one: Served, hashed: int) -> int:
        """Its KV is free; of its first `hashed` tokens full blocks have a hash. Returns the run of those not shared."""
        self._publish(one, hashed)
        unshared = 0
        if self.settings.prefix_caching:
            unshared = max(0, min(hashed // self.settings.block_tokens - one.covered, one.private))
        run = self.pool.give_back(one.hashes, one.covered, one.private - unshared, unshared)
        one.own_from, one.covered, one.private = one.covered, 0, 0
        return run

    def _compose(self, start: float) -> bool:
        self._publish_copies()
        budget, self.preempted = self._grant_running()
        if not self.preempted:
            self._publish_copies()
            budget = grant_loaded(self, budget)
            self._grant_waiting(budget, start)
        return any(r.granted for r in self.running)

    def _bound(self) -> int:
        """Most tokens of one prompt in this step: a long one must not starve the others, if there are any."""
        alone = len(self.running) + len(self.finishing) + len(self.waiting) + len(self.loaded) <= 1
        threshold = 0 if alone or not self.settings.chunked_prefill else self.settings.long_prefill_threshold
        return threshold or self.settings.token_budget

    def _grant_running(self) -> tuple[int, bool]:
        budget, place, bound, preempted = self.settings.token_budget, 0, self._bound(), False
        while place < len(self.running) and budget:
            one = self.running[place]
            new = min(one.tokens - one.computed, bound, budget)
            need = self.blocks(one.computed + new) - one.covered - one.private
            while need > self.pool.free:
                victim, preempted = self._victim(), True
                if victim in self.running[:place]:
                    place -= 1
                budget += self._preempt(victim)
                if victim is one:
                    return budget, preempted
            self.give(one, new, max(0, need))
            budget -= new
            place += 1
        return budget, preempted

    def _victim(self) -> Served:
        """Whoever came last, least urgent first; ahead, it may have made its last token in the step that runs."""
        ended = self.finishing if self.settings.schedule_ahead and not self.holds else []
        holders = [*self.running, *(one for one in ended if one.covered + one.private)]
        return max(holders, key=_urgency if self.settings.priorities else lambda one: one.seat)

    def _preempt(self, victim: Served) -> int:
        run = self.give_back(victim, victim.hashed(self.settings.schedule_ahead and victim.ran == self.ran))
        victim.preempted += 1
        if victim in self.finishing:
            return 0
        self.running.remove(victim)
        victim.own = self.pool.keep(run)
        granted, victim.granted, victim.computed = victim.granted, 0, 0
        self.waiting.insert(0, victim)
        if self.settings.priorities:
            self.waiting.sort(key=_urgency)
        return granted

    def give(self, one: Served, tokens: int, blocks: int) -> None:
        """Tokens of this step and KV blocks; what is full after it is in the prefix cache from now on, as in vLLM."""
        self.pool.take(blocks)
        one.private += blocks
        one.granted = tokens
        self._publish(one, one.computed + tokens)

    def _publish(self, one: Served, tokens: int) -> None:
        """Full blocks of its first `tokens` can be hit from now on, unless another request's block has the hash."""
        if self.settings.prefix_caching and one.hashes:
            full = min(tokens, one.prompt) // self.settings.block_tokens
            full = min(full, len(one.hashes) * self.pool.group_blocks)
            covered = self.pool.store(one.hashes, one.covered, full)
            one.private -= covered - one.covered
            one.covered = covered

    def _publish_copies(self) -> None:
        """Whose block had the hash that another's had can be hit now if that is gone."""
        for one in self.running:
            self._publish(one, one.computed + one.granted)

    def admit(self, one: Served) -> None:
        """It runs."""
        one.base, one.seat, self.seats = one.generated, self.seats, self.seats + 1
        self.running.append(one)

    def _grant_waiting(self, budget: int, start: float) -> None:
        static, longest = self.settings.static_batching, 0
        if static and (self.running or self.finishing):
            return
        while budget and self.waiting and len(self.running) + len(self.finishing) < self.settings.most_running:
            one = self.waiting[0]
            if one.remote == AWAITED and pull(self, one, start):
                continue
            if one.remote == AWAITED:
                return
            shared, own, idle = self._hit(one)
            hit = shared + own
            cached = hit * self.settings.block_tokens
            new = min(one.tokens - cached, self._bound())
            if new > budget and not self.settings.chunked_prefill:
                return
            longest = max(longest, new)
            if static and (len(self.running) + 1) * longest > self.settings.token_budget:
                return
            new = min(new, budget)
            held = self.settings.reserved_blocks or self.blocks(cached + new)
            whole = self.blocks(one.tokens) if self.settings.full_prompt_fits else 0
            busy = self.running or self.finishing
            spare = self.settings.watermark_blocks if busy else 0
            if max(held, whole) - hit + idle + spare > self.pool.free:
                return
            self.waiting.pop(0)
            self.pool.hold(one.hashes, shared)
            self.pool.forget(one.own, own)
            one.covered, one.private, one.computed = shared, own, cached
            one.own = 0
            if not one.preempted:
                one.cached, one.queued = cached, self.decides
            self.give(one, new, held - hit)
            self.admit(one)
            budget -= new

    def _hit(self, one: Served) -> tuple[int, int, int]:
        """Leading blocks in the cache: shared ones, then its own of before; and free blocks that using them takes."""
        if not self.settings.prefix_caching:
            return 0, 0, 0
        most = (one.tokens - 1) // self.settings.block_tokens
        hit, idle = self.pool.cached_blocks(one.hashes, most)
        own = min(one.own_from + self.pool.left(one.own), most) - hit if one.own_from <= hit else 0
        own = max(0, own)
        return hit, own, idle + own

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self.settings.block_tokens)

    def _run(self, start: float) -> None:
        chunks = [(r.computed, r.granted) for r in self.running if r.granted and not r.decodes]
        if self.settings.static_batching and chunks:
            chunks = [(0, max(c for _, c in chunks))] * len(chunks)
        contexts = [r.tokens for r in self.running if r.granted and r.decodes]
        seconds, gpu = self.clock.step_seconds(chunks, contexts)
        self.end = start + seconds
        people = len(self.running) + len(self.finishing), len(self.waiting) + len(self.loaded)
        tokens = sum(c for _, c in chunks), len(contexts)
        self.steps.append(Step(start, seconds, gpu, *tokens, *people, self.pool.used))
        self.ran += 1
        for one in list(self.running):
            one.computed += one.granted
            one.ran = self.ran if one.granted else one.ran
            if one.granted and one.computed == one.tokens:
                self._token(one)
            one.granted = 0

    def _token(self, one: Served) -> None:
        one.generated += 1
        if one.generated == 1:
            one.first = self.end
        if one.generated < one.output:
            return
        one.finish = self.end
        self.running.remove(one)
        self.finishing.append(one)
        if self.closed and self.unsent:
            row = len(self.rows) - self.unsent
            self.unsent -= 1
            self.send(row, self.end + self.settings.stages.delivery_seconds + self.think_seconds)


def _urgency(one: Served) -> tuple[int, float, int]:
    """With priorities, who is served first, smallest first: then by arrival at the API server, as in vLLM."""
    return one.priority, one.arrival, one.order
