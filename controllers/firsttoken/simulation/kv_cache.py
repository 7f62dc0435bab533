"""Paged KV with a prefix cache, compiled: vLLM's block pool, kept as counts where single blocks make no difference.

Free blocks form a queue: first those without content anyone could want, then by age those with a hash. Of the latter
only groups that some request names are kept one by one; between them run `fillers`, full blocks of prompts and outputs
that nobody will ask for. A request frees its last block first, so a prefix is evicted from its end. Prompt blocks with
one hash are a group; a group lives as a whole while anybody uses it, and is evicted by block. What a preempted request
shares with nobody, of prompt and output, is a run in that queue until it comes back for it: also a node, `row.own`.
"""

from typing import Any

from firsttoken.simulation.compiled import compiled
from firsttoken.simulation.state import NOBODY


@compiled
def free_blocks(rep: Any) -> int:
    """Blocks that can be taken, cached ones among them."""
    return rep.free_blank + rep.free_lru


@compiled
def _unlink(rep: Any, nodes: Any, h: int) -> None:
    node = nodes[h]
    before, after = node.prev, node.next
    if before == NOBODY:
        rep.lru_head = after
    else:
        nodes[before].next = after
    if after == NOBODY:
        rep.lru_tail = before
        rep.tail_fillers += node.fillers
    else:
        nodes[after].prev = before
        nodes[after].fillers += node.fillers
    node.fillers = 0


@compiled
def _append(rep: Any, nodes: Any, h: int) -> None:
    node, last = nodes[h], rep.lru_tail
    node.prev, node.next = last, NOBODY
    node.fillers = rep.tail_fillers
    rep.tail_fillers = 0
    if last == NOBODY:
        rep.lru_head = h
    else:
        nodes[last].next = h
    rep.lru_tail = h


@compiled
def _evict(rep: Any, nodes: Any, need: int) -> None:
    rep.free_lru -= need
    while need > 0:
        h = rep.lru_head
        if h == NOBODY:
            rep.tail_fillers -= need
            return
        node = nodes[h]
        taken = min(need, node.fillers)
        node.fillers -= taken
        need -= taken
        taken = min(need, node.left)
        node.left -= taken
        need -= taken
        if node.left == 0:
            _unlink(rep, nodes, h)
            rep.lost = 1


@compiled
def take(rep: Any, nodes: Any, need: int) -> None:
    """`need` blocks out of the free ones, of which there must be as many."""
    blank = min(need, rep.free_blank)
    rep.free_blank -= blank
    if need > blank:
        _evict(rep, nodes, need - blank)


@compiled
def cached_prefix(rep: Any, nodes: Any, hashes: Any, row: Any, target: int) -> tuple[int, int, int]:
    """Leading blocks of a request of `target` tokens that are cached: those in groups, then those of its own run; and
    how many free blocks using them takes.

    Full blocks only, and the last token is always computed.
    """
    most, hit, idle = (target - 1) // rep.block_tokens, 0, 0
    if not rep.caching:
        return 0, 0, 0
    for j in range(row.hash_count):
        node = nodes[hashes[row.first_hash + j]]
        usable = min(node.left, most - hit)
        if usable <= 0:
            break
        hit += usable
        if node.refs == 0:
            idle += usable
        if usable < rep.hash_blocks:
            break
    own = 0
    if row.own != NOBODY and row.own_from <= hit:
        own = max(0, min(row.own_from + nodes[row.own].left, most) - hit)
    return hit, own, idle + own


@compiled
def hold_prefix(rep: Any, nodes: Any, hashes: Any, row: Any, hit: int) -> None:
    """The request uses its first `hit` blocks from the cache. Of a free group only these are taken."""
    for j in range(-(-hit // rep.hash_blocks)):
        h = hashes[row.first_hash + j]
        node = nodes[h]
        if node.refs == 0:
            beyond = max(0, node.left - (hit - j * rep.hash_blocks))
            node.left -= beyond
            node.fillers += beyond
            _unlink(rep, nodes, h)
            rep.free_lru -= node.left
        node.refs += 1
    row.cover = hit


@compiled
def hold_run(rep: Any, nodes: Any, row: Any, used: int) -> None:
    """The request uses `used` blocks of its own run, and nobody will ask for the rest."""
    if row.own == NOBODY:
        return
    node = nodes[row.own]
    if node.left > 0:
        node.fillers += node.left - used
        node.left = 0
        rep.free_lru -= used
        _unlink(rep, nodes, row.own)
    node.next = rep.spare
    rep.spare = row.own
    row.own = NOBODY


@compiled
def _keep_run(rep: Any, nodes: Any, row: Any, blocks: int) -> None:
    """The request will ask for these of its blocks again, if one more can be remembered."""
    h = rep.spare
    if h == NOBODY:
        rep.tail_fillers += blocks
        return
    node = nodes[h]
    rep.spare = node.next
    node.left, node.fillers = blocks, 0
    row.own, row.own_from = h, row.cover
    _append(rep, nodes, h)


@compiled
def cache_blocks(rep: Any, nodes: Any, hashes: Any, row: Any, tokens: int) -> None:
    """What is full when `tokens` are computed can be hit from now on, unless another request's block has the hash."""
    width = rep.hash_blocks
    full = min(min(tokens, row.prompt) // rep.block_tokens, row.hash_count * width)
    if not rep.caching:
        return
    while row.cover < full:
        j = row.cover // width
        inside = row.cover - j * width
        node = nodes[hashes[row.first_hash + j]]
        if node.left != inside:
            return
        if inside == 0:
            node.refs = 1
        more = min(full - row.cover, width - inside)
        node.left += more
        row.cover += more
        row.private -= more


@compiled
def free_row(rep: Any, nodes: Any, hashes: Any, row: Any, hashed: int, again: bool) -> None:  # noqa: PLR0917
    """All blocks of the request, its last first. Full ones of its first `hashed` tokens can be hit; `again`: by it."""
    cache_blocks(rep, nodes, hashes, row, hashed)
    full = 0
    if rep.caching:
        full = max(0, min(hashed // rep.block_tokens - row.cover, row.private))
    rep.free_blank += row.private - full
    rep.free_lru += full
    if again and full:
        _keep_run(rep, nodes, row, full)
    else:
        rep.tail_fillers += full
    for j in range(-(-row.cover // rep.hash_blocks) - 1, -1, -1):
        h = hashes[row.first_hash + j]
        node = nodes[h]
        node.refs -= 1
        if node.refs == 0:
            _append(rep, nodes, h)
            rep.free_lru += node.left
    row.cover = 0
    row.private = 0
