"""Who has not arrived, who waits, and who is done, compiled. Lists run through `next` of the rows themselves.

Waiting requests are one list a priority, each first come, first served. Who has its KV from elsewhere goes before them.
"""

import math
from typing import Any

from firsttoken.simulation.compiled import compiled
from firsttoken.simulation.kv_cache import free_row
from firsttoken.simulation.state import LOADED, NOBODY, EngineState


@compiled
def send(rows: Any, rep: Any, i: int, arrival: float) -> None:
    """Request `i` leaves its client at `arrival`; the engine can see it when gateway and input processing are done.

    The API server is one process: it takes requests in the order they are sent, one at a time.
    """
    row = rows[i]
    row.arrival = arrival
    row.ready = max(arrival + rep.gateway, rep.api_free) + rep.input + rep.input_token * row.prompt
    rep.api_free = row.ready
    expect(rows, rep, i)


@compiled
def expect(rows: Any, rep: Any, i: int) -> None:
    """Request `i` is on its way and there at its `ready`."""
    row = rows[i]
    rep.pending += 1
    last = rep.pending_tail
    if last == NOBODY or rows[last].ready <= row.ready:
        row.next = NOBODY
        if last == NOBODY:
            rep.pending_head = i
        else:
            rows[last].next = i
        rep.pending_tail = i
        return
    before, after = NOBODY, rep.pending_head
    while rows[after].ready <= row.ready:
        before, after = after, rows[after].next
    row.next = after
    if before == NOBODY:
        rep.pending_head = i
    else:
        rows[before].next = i


@compiled
def next_ready(rows: Any, rep: Any) -> float:
    """When the next request reaches the engine, seconds; infinite if none is on its way."""
    return math.inf if rep.pending_head == NOBODY else rows[rep.pending_head].ready


@compiled
def arrive(rows: Any, rep: Any, heads: Any, tails: Any, now: float) -> None:
    """All that are ready by `now` begin to wait."""
    while rep.pending_head != NOBODY and rows[rep.pending_head].ready <= now:
        i = rep.pending_head
        row = rows[i]
        rep.pending_head = row.next
        rep.pending -= 1
        row.next = NOBODY
        if row.remote == LOADED:
            _add_loaded(rows, rep, i)
            continue
        row.order = rep.arrived
        rep.arrived += 1
        last = tails[row.rank]
        if last != NOBODY and rep.priorities and came_before(row, rows[last]):
            put_back(rows, rep, heads, tails, i)
            continue
        if last == NOBODY:
            heads[row.rank] = i
        else:
            rows[last].next = i
        tails[row.rank] = i
        rep.waiting += 1
    if rep.pending_head == NOBODY:
        rep.pending_tail = NOBODY


@compiled
def came_before(one: Any, other: Any) -> bool:
    """Which of one priority is served first: by arrival at the API server, as in vLLM, then at the engine."""
    return one.arrival < other.arrival or (one.arrival == other.arrival and one.order < other.order)


@compiled
def _add_loaded(rows: Any, rep: Any, i: int) -> None:
    """Its KV is here: it goes before all that wait without any."""
    last = rep.loaded_tail
    if last == NOBODY:
        rep.loaded_head = i
    else:
        rows[last].next = i
    rep.loaded_tail = i
    rep.waiting += 1


@compiled
def first_waiting(heads: Any) -> int:
    """The next to be admitted, or NOBODY."""
    for rank in range(len(heads)):
        if heads[rank] != NOBODY:
            return heads[rank]
    return NOBODY


@compiled
def admit(rows: Any, rep: Any, heads: Any, tails: Any, i: int) -> None:
    """Request `i`, the first of its priority, waits no longer."""
    row = rows[i]
    heads[row.rank] = row.next
    if row.next == NOBODY:
        tails[row.rank] = NOBODY
    rep.waiting -= 1


@compiled
def put_back(rows: Any, rep: Any, heads: Any, tails: Any, i: int) -> None:
    """A preempted request waits again, before all others; with priorities, by its own and by when it came."""
    row = rows[i]
    before, after = NOBODY, heads[row.rank]
    while rep.priorities and after != NOBODY and came_before(rows[after], row):
        before, after = after, rows[after].next
    row.next = after
    if before == NOBODY:
        heads[row.rank] = i
    else:
        rows[before].next = i
    if after == NOBODY:
        tails[row.rank] = i
    rep.waiting += 1


@compiled
def release(engine: EngineState, r: int, now: float) -> None:
    """Places of the requests whose last step has ended by `now` are free, and their KV unless it is held."""
    rows, rep, finishing = engine.rows, engine.replicas[r], engine.finishing[r]
    kept = 0
    for k in range(rep.finishing):
        i = finishing[k]
        if rows[i].finish <= now:
            if not rep.holds:
                free_row(rep, engine.nodes[r], engine.hashes, rows[i], rows[i].computed, False)
            rep.finished += 1
        else:
            finishing[kept] = i
            kept += 1
    rep.finishing = kept
