"""A router's choice, compiled: see policies.py for the rules."""

import math
from typing import Any

import numpy as np

from firsttoken.simulation.compiled import compiled
from firsttoken.simulation.fast import run_until
from firsttoken.simulation.fleet_state import FleetState
from firsttoken.simulation.policies import CACHE_AWARE, LEAST_LOADED, POWER_OF_TWO, ROUND_ROBIN
from firsttoken.simulation.queues import send
from firsttoken.simulation.state import NOBODY

SMALL = 1e-300  # seconds


@compiled
def load(rep: Any) -> int:
    """Requests that were sent to a replica and have not ended."""
    return rep.pending + rep.waiting + rep.running + rep.finishing


@compiled
def _least_loaded(fleet: FleetState, p: int) -> int:
    pool, replicas = fleet.pools[p], fleet.engine.replicas
    best = pool.first
    for r in range(pool.first + 1, pool.first + pool.count):
        if load(replicas[r]) < load(replicas[best]):
            best = r
    return best


@compiled
def _less_of_two(fleet: FleetState, p: int, i: int, column: int) -> int:
    pool, replicas = fleet.pools[p], fleet.engine.replicas
    if pool.count == 1:
        return pool.first
    one = fleet.draws[i, column] % pool.count
    other = (one + 1 + fleet.draws[i, column + 1] % (pool.count - 1)) % pool.count
    one, other = pool.first + one, pool.first + other
    return one if load(replicas[one]) <= load(replicas[other]) else other


@compiled
def _unbalanced(fleet: FleetState, p: int) -> bool:
    pool, replicas = fleet.pools[p], fleet.engine.replicas
    least = most = load(replicas[pool.first])
    for r in range(pool.first + 1, pool.first + pool.count):
        least, most = min(least, load(replicas[r])), max(most, load(replicas[r]))
    return most - least > pool.most_ahead and most > pool.most_times * least


@compiled
def _last_sent(fleet: FleetState, p: int, row: Any) -> tuple[int, int]:
    """The replica that was last sent the longest known beginning of the prompt, and the blocks that it is long."""
    found, matched = NOBODY, 0
    for j in range(row.hash_count):
        sender = fleet.senders[p, fleet.engine.hashes[row.first_hash + j]]
        if sender == NOBODY:
            break
        found, matched = sender, j + 1
    return found, matched


@compiled
def _longest_held(fleet: FleetState, p: int, row: Any) -> tuple[int, int]:
    """The replica with the longest beginning of the prompt in its prefix cache, and the hashed blocks of it."""
    pool, engine = fleet.pools[p], fleet.engine
    found, matched = NOBODY, 0
    for r in range(pool.first, pool.first + pool.count):
        rep, nodes, blocks = engine.replicas[r], engine.nodes[r], 0
        while blocks < row.hash_count and nodes[engine.hashes[row.first_hash + blocks]].left == rep.hash_blocks:
            blocks += 1
        less = found != NOBODY and load(rep) < load(engine.replicas[found])
        if blocks > matched or (blocks == matched > 0 and less):
            found, matched = r, blocks
    return found, matched


@compiled
def _cache_aware(fleet: FleetState, p: int, i: int) -> int:
    pool, row, rep = fleet.pools[p], fleet.engine.rows[i], fleet.engine.replicas[fleet.pools[p].first]
    chosen = NOBODY
    if not _unbalanced(fleet, p):
        found, matched = _longest_held(fleet, p, row) if pool.held else _last_sent(fleet, p, row)
        tokens = min(matched * rep.hash_blocks * rep.block_tokens, row.prompt)
        if tokens > pool.least_match * row.prompt:
            chosen = found
    if chosen == NOBODY:
        chosen = _least_loaded(fleet, p)
    if not pool.held:
        for j in range(row.hash_count):
            fleet.senders[p, fleet.engine.hashes[row.first_hash + j]] = chosen
    return chosen


@compiled
def choose(fleet: FleetState, p: int, i: int, column: int) -> int:
    """The replica of pool `p` for row `i`; `column`: of this router's draws. All are where the request finds them."""
    pool = fleet.pools[p]
    if pool.policy == ROUND_ROBIN:
        chosen = pool.first + pool.turn
        pool.turn = (pool.turn + 1) % pool.count
        return chosen
    if pool.policy == LEAST_LOADED:
        return _least_loaded(fleet, p)
    if pool.policy == POWER_OF_TWO:
        return _less_of_two(fleet, p, i, column)
    assert pool.policy == CACHE_AWARE  # noqa: S101
    return _cache_aware(fleet, p, i)


@compiled
def deliver(fleet: FleetState, r: int, row: int, i: int, now: float) -> None:
    """Row `row` of request `i` leaves for replica `r` at `now`."""
    engine = fleet.engine
    rep = engine.replicas[r]
    engine.rows[row].rank = fleet.ranks[i] if rep.priorities else 0
    fleet.replica[row] = r
    send(engine.rows, rep, row, now)


@compiled
def just_after(now: float) -> float:
    """The end of what is decided at `now`: the next number, but none so small that a processor may take it for 0."""
    return np.nextafter(max(now, SMALL), math.inf)


@compiled
def advance(fleet: FleetState, p: int, until: float) -> None:
    """All replicas of a pool up to `until`: what is decided before, and who has ended by then."""
    pool = fleet.pools[p]
    for r in range(pool.first, pool.first + pool.count):
        run_until(fleet.engine, r, until)
        fleet.reached[r] = max(fleet.reached[r], until)
