"""KV that comes from another replica, in the exact engine: what NixlConnector does on the decode side."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from firsttoken.simulation.state import LOADED

if TYPE_CHECKING:
    from firsttoken.simulation.engine import Engine
    from firsttoken.simulation.engine_rows import Served


def pull(engine: Engine, one: Served, start: float) -> bool:
    """Blocks for the prompt of the first that waits, and its KV is on the way. False: there is no room.

    What the prefix cache has is not moved. Transfers share the link one after the other.
    """
    settings, pool = engine.settings, engine.pool
    busy = bool(engine.running or engine.finishing)
    whole = max(settings.reserved_blocks, engine.blocks(one.prompt))
    hit, idle = 0, 0
    if settings.prefix_caching:
        hit, idle = pool.cached_blocks(one.hashes, (one.prompt - 1) // settings.block_tokens)
    spare = (settings.watermark_blocks if busy else 0) + _promised(engine)
    if whole - hit + idle + spare > pool.free:
        return False
    engine.waiting.remove(one)
    pool.hold(one.hashes, hit)
    pool.take(whole - hit)
    one.covered, one.private = hit, whole - hit
    one.cached, one.remote = hit * settings.block_tokens, LOADED
    engine.link_free = max(start, engine.link_free) + engine.link.token_seconds * (one.prompt - one.cached)
    one.ready = engine.link_free + engine.link.set_up_seconds
    insort(engine.coming, one, key=lambda r: r.ready)
    return True


def _promised(engine: Engine) -> int:
    """KV blocks that requests being prefilled here will still take: no KV from elsewhere may be put there."""
    prefilled = (one for one in engine.running if one.generated == one.base)
    return sum(max(0, engine.blocks(one.tokens) - one.covered - one.private) for one in prefilled)


def grant_loaded(engine: Engine, budget: int) -> int:
    """Whose KV has come computes the last token of its prompt. Returns the tokens left of `budget`."""
    while budget and engine.loaded and len(engine.running) + len(engine.finishing) < engine.settings.most_running:
        one = engine.loaded.pop(0)
        one.computed, one.queued = one.prompt - 1, engine.decides
        engine.give(one, 1, 0)
        engine.admit(one)
        budget -= 1
    return budget
