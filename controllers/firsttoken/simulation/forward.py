"""Many equal steps at once, compiled: decodes only, or decodes beside full chunks of one prompt.

Until somebody arrives, ends or runs out of KV, each further step has the same requests with one token more each (and
the next chunk). Only sums change, so a step costs its time formula and no look at the requests.
"""

import math
from typing import Any

from firsttoken.simulation.compiled import compiled
from firsttoken.simulation.kv_cache import cache_blocks, free_blocks, take
from firsttoken.simulation.progress import run_step
from firsttoken.simulation.queues import next_ready
from firsttoken.simulation.schedule import blocks_of
from firsttoken.simulation.state import EngineState


@compiled
def _longest_stretch(engine: EngineState, r: int) -> int:
    """Steps until a decode would end, or outgrow the sliding window, or the prompt's last chunk come."""
    rows, rep, running = engine.rows, engine.replicas[r], engine.running[r]
    window, steps = engine.constants[rep.table].window, 1 << 40
    for k in range(rep.running):
        row = rows[running[k]]
        if rep.chunk_count and k == rep.single:
            left = row.prompt + row.generated - row.computed
            steps = min(steps, (left - 1) // rep.chunk_tokens)
            continue
        context = row.prompt + row.generated
        steps = min(steps, row.output - row.generated - 1)
        if context <= window < math.inf:
            steps = min(steps, int(window) - context + 1)  # `below` counts it in the step that was run
    return steps


@compiled
def _growth(engine: EngineState, r: int, steps: int) -> int:
    """KV blocks that all running requests take in that many further steps."""
    rows, rep, running = engine.rows, engine.replicas[r], engine.running[r]
    blocks = 0
    for k in range(rep.running):
        row = rows[running[k]]
        each = rep.chunk_tokens if rep.chunk_count and k == rep.single else 1
        blocks += max(0, blocks_of(row.computed + steps * each, rep.block_tokens) - row.cover - row.private)
    return blocks


@compiled
def _fitting(engine: EngineState, r: int, steps: int) -> int:
    """As many of the steps as free KV blocks last for."""
    rep = engine.replicas[r]
    room = free_blocks(rep)
    if rep.chunk_count and engine.rows[engine.running[r][rep.single]].hash_count:
        room = rep.free_blank  # what is evicted decides what the prompt can share: step by step, then
    if _growth(engine, r, steps) <= room:
        return steps
    low, high = 0, steps
    while high - low > 1:
        middle = (low + high) // 2
        if _growth(engine, r, middle) <= room:
            low = middle
        else:
            high = middle
    return low


@compiled
def _count_phases(engine: EngineState, r: int) -> None:
    """How many decodes take a block in the first further step, the second, ...; it recurs with every block."""
    rows, rep, running, phases = engine.rows, engine.replicas[r], engine.running[r], engine.phases[r]
    phases[:] = 0
    if rep.reserved_blocks:
        return
    for k in range(rep.running):
        if rep.chunk_count and k == rep.single:
            continue
        row = rows[running[k]]
        slack = (row.cover + row.private) * rep.block_tokens - row.computed
        phases[slack % rep.block_tokens] += 1


@compiled
def _commit(engine: EngineState, r: int, steps: int) -> None:
    """The rows catch up with `steps` further steps."""
    rows, rep, running, nodes = engine.rows, engine.replicas[r], engine.running[r], engine.nodes[r]
    for k in range(rep.running):
        row = rows[running[k]]
        chunk = rep.chunk_count and k == rep.single
        prefills = chunk and row.hash_count and row.computed < row.prompt
        row.computed += steps * rep.chunk_tokens if chunk else steps
        row.generated += 0 if chunk else steps
        row.ran = rep.steps
        need = blocks_of(row.computed, rep.block_tokens) - row.cover - row.private
        if need > 0:
            take(rep, nodes, need)
            row.private += need
        if prefills:
            cache_blocks(rep, nodes, engine.hashes, row, row.computed)


@compiled
def forward(engine: EngineState, r: int, until: float) -> None:
    """Runs further steps like the last one whose decision falls before `until`."""
    rep, phases, chunks = engine.replicas[r], engine.phases[r], engine.chunks[r]
    arrival = min(until, next_ready(engine.rows, rep))
    most = _longest_stretch(engine, r)
    if most < 1:
        return
    most = _fitting(engine, r, most)
    if most < 1:
        return
    _count_phases(engine, r)
    used, done = rep.kv_blocks - free_blocks(rep), 0
    decides = rep.start if rep.ahead else rep.end
    while done < most and decides < arrival:
        used += phases[done % rep.block_tokens] + _chunk_blocks(engine, r, done)
        rep.total += rep.decodes
        rep.clipped += rep.below
        rep.longest += rep.decodes > 0
        if rep.chunk_count:
            chunks[0, 0] += rep.chunk_tokens
        run_step(engine, r, rep.end, used)
        done += 1
        decides = rep.start if rep.ahead else rep.end
    _commit(engine, r, done)


@compiled
def _chunk_blocks(engine: EngineState, r: int, done: int) -> int:
    """Blocks that the prompt takes in further step number `done`."""
    rep: Any = engine.replicas[r]
    if rep.chunk_count == 0 or rep.reserved_blocks:
        return 0
    row = engine.rows[engine.running[r][rep.single]]
    tokens = row.computed + done * rep.chunk_tokens
    after = blocks_of(tokens + rep.chunk_tokens, rep.block_tokens)
    return max(0, after - blocks_of(tokens, rep.block_tokens))
