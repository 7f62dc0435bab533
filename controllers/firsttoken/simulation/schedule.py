"""What goes into the next step, compiled: vLLM's V1 scheduler (v1/core/sched/scheduler.py, `schedule`).

Running requests first, in the order they were admitted; a decode is a request with one token to compute. Then waiting
ones, unless somebody was preempted. `grant` of a row is its tokens in this step.
"""

from typing import Any

from firsttoken.simulation.compiled import compiled
from firsttoken.simulation.kv_cache import (
    cache_blocks,
    cached_prefix,
    free_blocks,
    free_row,
    hold_prefix,
    hold_run,
    take,
)
from firsttoken.simulation.queues import admit, came_before, expect, first_waiting, put_back
from firsttoken.simulation.state import AWAITED, LOADED, NOBODY, EngineState


@compiled
def blocks_of(tokens: int, block_tokens: int) -> int:
    """KV blocks for `tokens`."""
    return -(-tokens // block_tokens)


@compiled
def _threshold(rep: Any) -> int:
    """Most tokens of one prompt in this step; 0: no bound. Alone, a long prompt starves nobody."""
    if not rep.chunked or rep.running + rep.finishing + rep.waiting <= 1:
        return 0
    return rep.threshold


@compiled
def _goes_first(rep: Any, one: Any, other: Any) -> bool:
    """Which of two is preempted first: admitted last, or with priorities the least urgent that came last."""
    if not rep.priorities:
        return one.seat > other.seat
    return one.rank > other.rank or (one.rank == other.rank and came_before(other, one))


@compiled
def _victim(engine: EngineState, r: int) -> int:
    """Place of the running request to preempt; or -1 - k: it is number k of those whose last step isn't known to have
    ended, which vLLM takes for running.
    """
    rows, rep, running, finishing = engine.rows, engine.replicas[r], engine.running[r], engine.finishing[r]
    found = rep.running - 1
    if rep.priorities:
        for k in range(rep.running - 1):
            if _goes_first(rep, rows[running[k]], rows[running[found]]):
                found = k
    if not rep.ahead or rep.holds:
        return found
    best = running[found]
    for k in range(rep.finishing):
        one = rows[finishing[k]]
        if one.cover + one.private > 0 and _goes_first(rep, one, rows[best]):
            found, best = -1 - k, finishing[k]
    return found


@compiled
def _take_from_ended(engine: EngineState, r: int, k: int) -> None:
    """KV of a request whose last token is being made is free before its step has ended."""
    rep, row = engine.replicas[r], engine.rows[engine.finishing[r, k]]
    free_row(rep, engine.nodes[r], engine.hashes, row, _hashed(rep, row), False)
    row.preempted += 1
    rep.preemptions += 1
    rep.step_preempted += 1


@compiled
def publish_copies(engine: EngineState, r: int) -> None:
    """Whose block had the hash that another's had can be hit now if that is gone."""
    rep = engine.replicas[r]
    if not rep.lost:
        return
    rep.lost = 0
    for k in range(rep.running):
        row = engine.rows[engine.running[r, k]]
        if row.hash_count:
            cache_blocks(rep, engine.nodes[r], engine.hashes, row, row.computed + row.grant)


@compiled
def seat(rows: Any, rep: Any, running: Any, i: int) -> None:
    """Request `i` runs."""
    running[rep.running] = i
    rep.running += 1
    rep.admitted += 1
    rows[i].base, rows[i].seat = rows[i].generated, rep.seats
    rep.seats += 1


@compiled
def _hashed(rep: Any, row: Any) -> int:
    """Tokens of a running request whose full blocks have a hash, as in vLLM.

    While its last step is not known to have ended, the token that is made has none, nor, unless it is granted anew, the
    one it is made from.
    """
    if not rep.ahead or row.ran != rep.steps or row.generated == row.base:
        return row.computed + row.grant
    if row.grant:
        return row.computed + row.grant - 1
    return row.computed - (1 if row.generated > row.base + 1 else 0)


@compiled
def _preempt(engine: EngineState, r: int, place: int) -> int:
    """The request at this place gives up its KV and waits again. Returns the tokens it had in this step."""
    rows, rep, running = engine.rows, engine.replicas[r], engine.running[r]
    i = running[place]
    row = rows[i]
    free_row(rep, engine.nodes[r], engine.hashes, row, _hashed(rep, row), True)
    granted, row.grant, row.computed = row.grant, 0, 0
    row.preempted += 1
    rep.preemptions += 1
    rep.step_preempted += 1
    for k in range(place, rep.running - 1):
        running[k] = running[k + 1]
    rep.running -= 1
    put_back(rows, rep, engine.heads[r], engine.tails[r], i)
    return granted


@compiled
def schedule_running(engine: EngineState, r: int) -> int:
    """Tokens for running requests; returns what is left of the budget."""
    rows, rep, running, nodes = engine.rows, engine.replicas[r], engine.running[r], engine.nodes[r]
    budget, place, threshold = rep.token_budget, 0, _threshold(rep)
    while place < rep.running and budget > 0:
        row = rows[running[place]]
        new = row.prompt + row.generated - row.computed
        if 0 < threshold < new:
            new = threshold
        new = min(new, budget)
        need = blocks_of(row.computed + new, rep.block_tokens) - row.cover - row.private
        while need > free_blocks(rep):
            victim = _victim(engine, r)
            if victim < 0:
                _take_from_ended(engine, r, -1 - victim)
                continue
            budget += _preempt(engine, r, victim)
            if victim == place:
                return budget
            if victim < place:
                place -= 1
        if need > 0:
            take(rep, nodes, need)
            row.private += need
        row.grant = new
        budget -= new
        if row.hash_count and row.computed < row.prompt:  # a decode fills no block of the prompt
            cache_blocks(rep, nodes, engine.hashes, row, row.computed + new)
        place += 1
    return budget


@compiled
def _new_tokens(rep: Any, target: int, cached: int, budget: int) -> int:
    """Tokens that a request gets in its first step; 0: its prompt must go as a whole and does not fit."""
    new, threshold = target - cached, _threshold(rep)
    if 0 < threshold < new:
        new = threshold
    if new > budget and not rep.chunked:
        return 0
    return min(new, budget)


@compiled
def _blocks_wanted(rep: Any, target: int, tokens: int) -> tuple[int, int]:
    """Blocks that a request of `target` tokens holds after its first step, and those that must be there for it."""
    if rep.reserved_blocks:
        return rep.reserved_blocks, rep.reserved_blocks
    held = blocks_of(tokens, rep.block_tokens)
    return held, blocks_of(target, rep.block_tokens) if rep.full_fits else held


@compiled
def schedule_waiting(engine: EngineState, r: int, budget: int, start: float) -> None:
    """Admits requests while tokens, places and KV last. `start` of the step, seconds."""
    rows, rep, running, nodes = engine.rows, engine.replicas[r], engine.running[r], engine.nodes[r]
    heads, tails, hashes, longest = engine.heads[r], engine.tails[r], engine.hashes, 0
    if rep.static and rep.running + rep.finishing > 0:  # nobody joins a batch under way
        return
    while budget > 0 and rep.waiting and rep.running + rep.finishing < rep.most_running:
        i = first_waiting(heads)
        if i == NOBODY:  # who waits has its KV already
            return
        row = rows[i]
        if row.remote == AWAITED:
            if not _pull(engine, r, i, start):
                return
            continue
        target = row.prompt + row.generated
        shared, own, idle = cached_prefix(rep, nodes, hashes, row, target)
        hit, cached = shared + own, (shared + own) * rep.block_tokens
        new = _new_tokens(rep, target, cached, budget)
        longest = max(longest, new)
        if rep.static and (rep.running + 1) * longest > rep.token_budget:  # padded
            return
        held, wanted = _blocks_wanted(rep, target, cached + new)
        watermark = rep.watermark if rep.running + rep.finishing else 0
        if new == 0 or wanted - hit + idle + watermark > free_blocks(rep):
            return
        admit(rows, rep, heads, tails, i)
        hold_prefix(rep, nodes, hashes, row, shared)
        hold_run(rep, nodes, row, own)
        take(rep, nodes, held - hit)
        row.private, row.computed, row.grant = held - shared, cached, new
        if row.preempted == 0:
            row.cached, row.queued = cached, rep.decides
        if row.hash_count:
            cache_blocks(rep, nodes, hashes, row, cached + new)
        seat(rows, rep, running, i)
        budget -= new


@compiled
def _pull(engine: EngineState, r: int, i: int, start: float) -> bool:
    """Blocks for the prompt of request `i`, the first that waits, and its KV is on the way. False: there is no room.

    As with vLLM's NixlConnector: what the prefix cache has is not moved, and until the rest is here the request takes
    no place among the running ones. Transfers to one replica share its link one after the other.
    """
    rows, rep, nodes = engine.rows, engine.replicas[r], engine.nodes[r]
    row = rows[i]
    hit, _, idle = cached_prefix(rep, nodes, engine.hashes, row, row.prompt)
    whole, busy = max(rep.reserved_blocks, blocks_of(row.prompt, rep.block_tokens)), rep.running + rep.finishing > 0
    spare = (rep.watermark if busy else 0) + _promised(engine, r)
    if whole - hit + idle + spare > free_blocks(rep):
        return False
    admit(rows, rep, engine.heads[r], engine.tails[r], i)
    hold_prefix(rep, nodes, engine.hashes, row, hit)
    take(rep, nodes, whole - hit)
    row.private, row.cached, row.remote = whole - hit, hit * rep.block_tokens, LOADED
    rep.link_free = max(start, rep.link_free) + rep.link_token * (row.prompt - row.cached)
    row.ready = rep.link_free + rep.link_set_up
    expect(rows, rep, i)
    return True


@compiled
def _promised(engine: EngineState, r: int) -> int:
    """KV blocks that requests being prefilled here will still take: no KV from elsewhere may be put there."""
    rows, rep, running, blocks = engine.rows, engine.replicas[r], engine.running[r], 0
    for k in range(rep.running):
        row = rows[running[k]]
        if row.generated == row.base:
            left = blocks_of(row.prompt + row.generated, rep.block_tokens) - row.cover - row.private
            blocks += max(0, left)
    return blocks


@compiled
def schedule_loaded(engine: EngineState, r: int, budget: int) -> int:
    """Admits requests whose KV has come, to compute the last token of the prompt. Returns what is left of `budget`."""
    rows, rep, running = engine.rows, engine.replicas[r], engine.running[r]
    while budget > 0 and rep.loaded_head != NOBODY and rep.running + rep.finishing < rep.most_running:
        i = rep.loaded_head
        row = rows[i]
        rep.loaded_head = row.next
        if row.next == NOBODY:
            rep.loaded_tail = NOBODY
        rep.waiting -= 1
        row.computed, row.grant, row.queued = row.prompt - 1, 1, rep.decides
        if row.hash_count:
            cache_blocks(rep, engine.nodes[r], engine.hashes, row, row.prompt)
        seat(rows, rep, running, i)
        budget -= 1
    return budget
