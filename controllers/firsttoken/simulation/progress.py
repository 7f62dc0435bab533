"""A composed step runs, compiled: how long it takes, who gets a token, and what the time series keep of it."""

from typing import Any

from firsttoken.simulation.compiled import compiled
from firsttoken.simulation.kv_cache import free_blocks
from firsttoken.simulation.queues import send
from firsttoken.simulation.schedule import publish_copies, schedule_loaded, schedule_running, schedule_waiting
from firsttoken.simulation.state import LOADED, EngineState
from firsttoken.simulation.step_cost import step_seconds


@compiled
def compose(engine: EngineState, r: int, now: float) -> bool:
    """Decides, runs and books the step that starts at `now`. False: there is nothing to do."""
    rep = engine.replicas[r]
    rep.admitted = 0
    rep.step_preempted = 0
    publish_copies(engine, r)
    budget = schedule_running(engine, r)
    if rep.step_preempted == 0:
        publish_copies(engine, r)
        budget = schedule_loaded(engine, r, budget)
        schedule_waiting(engine, r, budget, now)
    ran = rep.running
    _sum_up(engine, r)
    if rep.decodes + rep.chunk_count == 0:
        return False
    run_step(engine, r, now, rep.kv_blocks - free_blocks(rep))
    _advance(engine, r)
    # The next step can be the same again if all that ran decode, or one of them has a full chunk left.
    everybody = rep.decodes + rep.chunk_count == ran == rep.running
    full = rep.decodes + rep.chunk_tokens == rep.token_budget
    alike = (rep.chunk_count == 0 and rep.admitted == 0) or (rep.chunk_count == 1 and full)
    rep.steady = everybody and alike and rep.step_preempted == 0 and rep.finishing == 0
    return True


@compiled
def _sum_up(engine: EngineState, r: int) -> None:
    """Chunks and decodes of the step, as its time depends on them."""
    rows, rep, running, chunks = engine.rows, engine.replicas[r], engine.running[r], engine.chunks[r]
    window = engine.constants[rep.table].window
    count, chunk_tokens, decodes, longest, below = 0, 0, 0, 0, 0
    total, clipped = 0.0, 0.0
    for k in range(rep.running):
        row = rows[running[k]]
        if row.grant == 0:
            continue
        context = row.prompt + row.generated
        if row.computed == context - 1 and (row.generated or row.remote == LOADED):
            decodes += 1
            total += context
            clipped += min(float(context), window)
            below += context < window
            longest = max(longest, context)
        else:
            chunks[count, 0], chunks[count, 1] = row.computed, row.grant
            rep.single = k
            count += 1
            chunk_tokens += row.grant
    if rep.static and count:
        chunk_tokens = _pad(chunks, count)
    rep.chunk_count, rep.chunk_tokens, rep.decodes, rep.longest, rep.below = (
        count,
        chunk_tokens,
        decodes,
        longest,
        below,
    )
    rep.total, rep.clipped = total, clipped


@compiled
def _pad(chunks: Any, count: int) -> int:
    """Prompts of a static batch get the length of its longest; returns their tokens."""
    longest = 0
    for k in range(count):
        longest = max(longest, chunks[k, 1])
    for k in range(count):
        chunks[k, 1] = longest
    return count * longest


@compiled
def run_step(engine: EngineState, r: int, now: float, used: int) -> None:
    """The step that the sums describe starts at `now`, with `used` KV blocks; writes its end and what series keep."""
    rep = engine.replicas[r]
    table = rep.table
    seconds, gpu = step_seconds(
        engine.constants[table], engine.by_tokens[table], engine.by_rows[table], engine.chunks[r], rep
    )
    rep.start, rep.end = now, now + seconds
    rep.seconds += seconds
    rep.gpu += gpu
    book(engine, r, gpu, used)


@compiled
def book(engine: EngineState, r: int, gpu: float, used: int) -> None:
    """The step from `start` to `end` in the time series and in the log; `used` KV blocks during it."""
    rep, log = engine.replicas[r], engine.log[r]
    running = rep.running + rep.finishing
    rep.peak_running = max(rep.peak_running, running)
    rep.peak_waiting = max(rep.peak_waiting, rep.waiting)
    rep.peak_kv = max(rep.peak_kv, used)
    if len(log):
        entry = log[rep.steps % len(log)]
        entry.start, entry.seconds = rep.start, rep.end - rep.start
        entry.prefill_tokens, entry.decode_tokens = rep.chunk_tokens, rep.decodes
        entry.running, entry.waiting, entry.kv = running, rep.waiting, used
    rep.steps += 1
    _spread(engine.timeline[r], rep, gpu, running, used)


@compiled
def _spread(bins: Any, rep: Any, gpu: float, running: int, used: int) -> None:
    while rep.end >= len(bins) * rep.bin_seconds:
        _halve(bins)
        rep.bin_seconds *= 2
    width, seconds, start = rep.bin_seconds, rep.end - rep.start, rep.start
    last = min(int(rep.end / width), len(bins) - 1)  # the quotient may be rounded up to the end of the last bin
    first = min(int(start / width), last)
    bins[first].preempted += rep.step_preempted
    for b in range(first, last + 1):
        part = min(rep.end, (b + 1) * width) - max(start, b * width) if last > first else seconds
        share, one = part / seconds if seconds else 1.0, bins[b]
        one.steps += share
        one.seconds += part
        one.gpu += gpu * share
        one.prefill_tokens += rep.chunk_tokens * share
        one.decode_tokens += rep.decodes * share
        one.running += running * part
        one.waiting += rep.waiting * part
        one.kv += used * part


@compiled
def _halve(bins: Any) -> None:
    """Two bins become one."""
    half = len(bins) // 2
    for b in range(len(bins)):
        one = bins[b]
        if b < half:
            left, right = bins[2 * b], bins[2 * b + 1]
            one.steps, one.seconds = left.steps + right.steps, left.seconds + right.seconds
            one.gpu, one.preempted = left.gpu + right.gpu, left.preempted + right.preempted
            one.prefill_tokens = left.prefill_tokens + right.prefill_tokens
            one.decode_tokens = left.decode_tokens + right.decode_tokens
            one.running, one.waiting = left.running + right.running, left.waiting + right.waiting
            one.kv = left.kv + right.kv
        else:
            one.steps = one.seconds = one.gpu = one.prefill_tokens = one.decode_tokens = 0.0
            one.running = one.waiting = one.kv = one.preempted = 0.0


@compiled
def _advance(engine: EngineState, r: int) -> None:
    """Tokens are computed, those at their end get one more, and who is done leaves."""
    rows, rep, running, finishing = engine.rows, engine.replicas[r], engine.running[r], engine.finishing[r]
    kept = 0
    for k in range(rep.running):
        i = running[k]
        row = rows[i]
        row.computed += row.grant
        row.ran = rep.steps if row.grant else row.ran
        made = row.grant and row.computed == row.prompt + row.generated
        row.grant = 0
        if made:
            row.generated += 1
            if row.generated == 1:
                row.first = rep.end
            if row.generated == row.output:
                row.finish = rep.end
                finishing[rep.finishing] = i
                rep.finishing += 1
                if rep.closed and rep.cursor < len(rows):
                    send(rows, rep, rep.cursor, rep.end + rep.delivery + rep.think)
                    rep.cursor += 1
                continue
        running[kept] = i
        kept += 1
    rep.running = kept
