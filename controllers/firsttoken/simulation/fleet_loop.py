"""A fleet's time, compiled: from arrival to arrival, and between prefill and decode replicas from event to event.

Prefill and decode replicas of a revision depend on each other both ways: a prompt's KV leaves when it is computed, and
makes room where it was when it has been fetched. So the prefill side goes one decision at a time, and the decode side
follows up to that time. At one time a request comes first, then a hand-over, then a prefill decision, then a decode
decision.
"""

import math
from typing import Any

from firsttoken.simulation.compiled import compiled
from firsttoken.simulation.fast import run_until
from firsttoken.simulation.fleet_router import advance, choose, deliver, just_after
from firsttoken.simulation.fleet_state import FleetState
from firsttoken.simulation.kv_cache import free_row
from firsttoken.simulation.policies import ROUND_ROBIN
from firsttoken.simulation.queues import next_ready
from firsttoken.simulation.state import LOADED, NOBODY

TAKEN = -1  # a prefilled row's `remote`: its end is in the list of hand-overs


@compiled
def serve(fleet: FleetState, arrivals: Any, pool_of: Any) -> None:
    """All requests, by rising `arrivals`, through the router of their pool, to the end."""
    for i in range(len(arrivals)):
        p, now = pool_of[i], arrivals[i]
        pool = fleet.pools[p]
        if pool.decode != NOBODY:
            _advance_halves(fleet, p, now)
            r = choose(fleet, p, i, 0)
        elif pool.policy == ROUND_ROBIN:  # nobody looks at the others
            r = choose(fleet, p, i, 0)
            run_until(fleet.engine, r, now)
        else:
            advance(fleet, p, now)
            r = choose(fleet, p, i, 0)
        deliver(fleet, r, i, i, now)
    for p in range(len(fleet.pools)):
        if fleet.pools[p].decode != NOBODY:
            _advance_halves(fleet, p, math.inf)
        elif fleet.pools[p].count:
            advance(fleet, p, math.inf)


@compiled
def _next_decision(fleet: FleetState, r: int) -> float:
    """When replica `r` decides next on what it knows, seconds; infinite: it has nothing to do."""
    rep = fleet.engine.replicas[r]
    if rep.decides >= fleet.reached[r]:
        return rep.decides
    return max(next_ready(fleet.engine.rows, rep), fleet.reached[r])


@compiled
def _freed(fleet: FleetState, r: int) -> float:
    """When the next prompt that is held has been fetched, as far as it is known; seconds."""
    rows, i, found = fleet.engine.rows, fleet.held_heads[r], math.inf
    while i != NOBODY:
        half = rows[i + len(fleet.ranks)]
        if half.remote == LOADED:
            found = min(found, half.ready)
        i = rows[i].next
    return max(found, fleet.reached[r])


@compiled
def _free(fleet: FleetState, r: int, now: float) -> None:
    """KV of prompts that have been fetched by `now` is free."""
    engine, before, i = fleet.engine, NOBODY, fleet.held_heads[r]
    rows = engine.rows
    while i != NOBODY:
        half, after = rows[i + len(fleet.ranks)], rows[i].next
        if half.remote == LOADED and half.ready <= now:
            free_row(engine.replicas[r], engine.nodes[r], engine.hashes, rows[i], rows[i].computed, False)
            if before == NOBODY:
                fleet.held_heads[r] = after
            else:
                rows[before].next = after
            if after == NOBODY:
                fleet.held_tails[r] = before
        else:
            before = i
        i = after


@compiled
def _note_ends(fleet: FleetState, p: int, r: int) -> None:
    """What the last decision of prefill replica `r` will end goes into the list of hand-overs, in order of time."""
    rows, pool, finishing = fleet.engine.rows, fleet.pools[p], fleet.engine.finishing[r]
    for k in range(fleet.engine.replicas[r].finishing):
        i = finishing[k]
        if rows[i].remote == TAKEN:
            continue
        rows[i].remote = TAKEN
        before, after = NOBODY, pool.head
        while after != NOBODY and rows[after].finish <= rows[i].finish:
            before, after = after, rows[after].next
        rows[i].next = after
        if before == NOBODY:
            pool.head = i
        else:
            rows[before].next = i


@compiled
def _prefill(fleet: FleetState, p: int, r: int, now: float) -> None:
    """Replica `r` decides at `now`."""
    _free(fleet, r, now)
    rep = fleet.engine.replicas[r]
    rep.decides = max(rep.decides, now)  # it may have waited for room
    fleet.reached[r] = just_after(now)
    run_until(fleet.engine, r, fleet.reached[r])
    _note_ends(fleet, p, r)


@compiled
def _hand_over(fleet: FleetState, p: int, now: float) -> None:
    """The first of the prefilled goes to a decode replica; its KV stays until it is fetched."""
    pool, rows = fleet.pools[p], fleet.engine.rows
    i = pool.head
    pool.head = rows[i].next
    rows[i].next = NOBODY
    r = fleet.replica[i]
    last = fleet.held_tails[r]
    if last == NOBODY:
        fleet.held_heads[r] = i
    else:
        rows[last].next = i
    fleet.held_tails[r] = i
    deliver(fleet, choose(fleet, pool.decode, i, 2), i + len(fleet.ranks), i, now)


@compiled
def _first_prefill(fleet: FleetState, p: int) -> tuple[float, int, bool]:
    """The next prefill decision, whose it is, and whether somebody waits for room whose end isn't known."""
    pool, stuck = fleet.pools[p], False
    found, actor = math.inf, NOBODY
    for r in range(pool.first, pool.first + pool.count):
        rep = fleet.engine.replicas[r]
        when = _next_decision(fleet, r)
        if rep.decides < fleet.reached[r] and rep.waiting > 0:
            stuck = True
            when = min(when, _freed(fleet, r))
        if when < found:
            found, actor = when, r
    return found, actor, stuck


@compiled
def _advance_halves(fleet: FleetState, p: int, until: float) -> None:
    """Prefill pool `p` and its decode pool up to `until`: everything that happens before."""
    pool = fleet.pools[p]
    decode = fleet.pools[pool.decode]
    while True:
        decision, actor, stuck = _first_prefill(fleet, p)
        handover = math.inf if pool.head == NOBODY else fleet.engine.rows[pool.head].finish
        now = min(decision, handover, until)
        if stuck:
            # A decode decision may make room, so it must not be passed.
            soon = math.inf
            for r in range(decode.first, decode.first + decode.count):
                soon = min(soon, _next_decision(fleet, r))
            if soon < now:
                advance(fleet, pool.decode, just_after(soon))
                continue
        advance(fleet, pool.decode, now)
        if not now < until:
            advance(fleet, p, until)
            return
        if handover <= decision:
            _hand_over(fleet, p, now)
        else:
            _prefill(fleet, p, actor, now)
