"""Seconds of one engine step, compiled: `StepModel.step_seconds` term by term, in the same order of operations.

The formulas are those of planning/timing/attention.py; a property test holds both equal. A step is described by sums:
its chunks as arrays of (tokens before, tokens), and what StepSums names.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from firsttoken.planning.timing.attention import (
    ACTIVATION_BYTES,
    BESIDE_KEYS,
    BESIDE_ROWS,
    BESIDE_SHARE,
    LONE_PROCESSOR_SHARE,
    QUERY_TILE,
    SPLIT_CONTEXT,
)
from firsttoken.simulation.compiled import compiled

# What the formulas need of a model on a device; see planning/timing/attention.py and parts.py for units.
CONSTANTS = np.dtype(
    [
        *((name, np.float64) for name in (
            "flops", "bandwidth", "processors", "prefill_floor_us", "prefill_mfu", "prefill_half_tokens",
            "prefill_tail", "prefill_mbu", "decode_floor_us", "decode_mbu", "decode_request_us", "decode_overlap",
            "decode_split_us", "decode_length_us", "score_bytes",
            "prefill_heads", "prefill_kv_heads", "prefill_both", "prefill_kv_bytes",
            "decode_kv_heads", "decode_kv_bytes", "latent_flops", "window",
            "layers", "full_layers", "windowed_layers", "tiled", "one_kernel", "overlap", "expand_token",
            "cpu_step_us", "cpu_request_us", "cpu_eager_us", "prefill_scale", "decode_scale",
        )),
        ("largest_graph", np.int64),
    ]
)  # fmt: skip


class StepSums(NamedTuple):
    """What a step's time depends on, beside its chunks one by one. Tokens and requests."""

    chunk_count: int
    chunk_tokens: int
    decodes: int
    longest: int  # context of a decode
    total: float  # of all contexts
    clipped: float  # the same, each cut to the sliding window


@compiled
def _attended(prefix: float, chunk: float, window: float) -> float:
    if prefix + chunk <= window:
        return chunk * prefix + chunk * chunk / 2
    if prefix >= window:
        return chunk * window
    growing = window - prefix
    return growing * prefix + growing * growing / 2 + (chunk - growing) * window


@compiled
def _prefill_work(c: Any, prefix: float, chunk: float, window: float) -> float:
    least = QUERY_TILE * c.prefill_kv_heads / c.prefill_heads
    padded = max(1.0, least / chunk)
    pairs = _attended(prefix, chunk, window) + chunk * c.prefill_half_tokens
    last = min(prefix + chunk, window)
    longest = min(chunk * padded, QUERY_TILE) * (last + c.prefill_half_tokens)
    average = c.prefill_heads * pairs * padded / c.processors
    both = c.prefill_both
    compute = 2 * both * (average + c.prefill_tail * longest) * c.processors / (c.flops * c.prefill_mfu)
    own = ACTIVATION_BYTES * c.prefill_heads * both + ACTIVATION_BYTES * c.prefill_kv_heads * both * 2
    rows = own + c.prefill_kv_bytes
    kept = min(prefix, window)
    moved = chunk * rows / (c.bandwidth * c.prefill_mbu) + kept * c.prefill_kv_bytes / c.bandwidth
    return math.pow(compute * math.sqrt(compute) + moved * math.sqrt(moved), 2 / 3)


@compiled
def _untiled(c: Any, prefix: float, chunk: float) -> float:
    scores = c.prefill_heads * chunk * (prefix + chunk)
    compute = 2 * c.prefill_both * scores / (c.flops * c.prefill_mfu)
    moved = scores * c.score_bytes / (c.bandwidth * c.decode_mbu)
    tiled = _prefill_work(c, prefix, chunk, math.inf)
    return 3 * (c.prefill_floor_us * 1e-6) + max(compute + moved, tiled)


@compiled
def _decode_floor(c: Any, longest: float) -> float:
    split = min(1.0, longest / SPLIT_CONTEXT)
    return (c.decode_floor_us + c.decode_split_us * split + c.decode_length_us * longest * 1e-4) * 1e-6


@compiled
def _decode_work(c: Any, count: float, context: float, longest: float) -> float:
    stream = context * c.decode_kv_bytes / (c.bandwidth * c.decode_mbu)
    if c.latent_flops:
        stream = max(stream, context * c.latent_flops / (c.flops * c.prefill_mfu))
    tiles = count * c.decode_kv_heads
    requests = c.decode_request_us * 1e-6 * tiles / c.processors
    if c.decode_overlap == 1:
        work = stream + requests
    else:
        largest = max(stream, requests)
        low = min(stream, requests) / largest if largest else 0.0
        work = largest * math.pow(1 + math.pow(low, c.decode_overlap), 1 / c.decode_overlap)
    if tiles < c.processors:
        return work
    alone = longest * c.decode_kv_bytes / c.decode_kv_heads * c.processors / (c.bandwidth * LONE_PROCESSOR_SHARE)
    return max(work, alone)


@compiled
def _beside_prompts_work(c: Any, count: float, context: float, longest: float) -> float:
    half = BESIDE_KEYS / 2
    average = c.prefill_heads * max(context + count * half, count * BESIDE_KEYS) / c.processors
    compute = 2 * c.prefill_both * BESIDE_ROWS * max(average, longest + half, float(BESIDE_KEYS)) * c.processors
    return compute / (c.flops * c.prefill_mfu * BESIDE_SHARE)


@compiled
def _decode_layer(c: Any, beside: bool, count: float, context: float, longest: float) -> float:
    alone = _decode_work(c, count, context, longest)
    return max(alone, _beside_prompts_work(c, count, context, longest)) if beside else alone


@compiled
def _decode_attention(c: Any, step: Any, floor: float) -> float:
    count, longest = float(step.decodes), float(step.longest)
    if count == 0:
        return floor * c.layers
    seconds, beside = 0.0, c.one_kernel != 0 and floor > 0
    if c.full_layers:
        seconds = max(floor, _decode_floor(c, longest))
        seconds = c.full_layers * (seconds + _decode_layer(c, beside, count, step.total, longest))
    if c.windowed_layers:
        longest = min(longest, c.window)
        work = _decode_layer(c, beside, count, step.clipped, longest)
        seconds += c.windowed_layers * (max(floor, _decode_floor(c, longest)) + work)
    return seconds


@compiled
def _attention(c: Any, chunks: Any, step: Any) -> float:
    floor = c.prefill_floor_us * 1e-6 if step.chunk_count and c.tiled else 0.0
    seconds = _decode_attention(c, step, floor)
    if not c.tiled:
        untiled = 0.0
        for i in range(step.chunk_count):
            untiled += _untiled(c, chunks[i, 0], chunks[i, 1])
        return seconds + c.layers * untiled
    for i in range(step.chunk_count):
        prefix, chunk = float(chunks[i, 0]), float(chunks[i, 1])
        if c.full_layers:
            seconds += c.full_layers * _prefill_work(c, prefix, chunk, math.inf)
        if c.windowed_layers:
            seconds += c.windowed_layers * _prefill_work(c, prefix, chunk, c.window)
        if c.expand_token and prefix:
            seconds += c.expand_token * prefix
    return seconds


@compiled
def step_seconds(c: Any, by_tokens: Any, by_rows: Any, chunks: Any, step: Any) -> tuple[float, float]:
    """Seconds of the step, and of it those in which the GPU works; `step` has the fields of StepSums."""
    tokens, rows = step.chunk_tokens + step.decodes, step.chunk_count + step.decodes
    attention = _attention(c, chunks, step)
    cpu = c.cpu_step_us + c.cpu_request_us * rows
    if tokens > c.largest_graph:
        cpu += c.cpu_eager_us
    cpu *= 1e-6
    gpu = by_tokens[tokens] + attention + by_rows[rows]
    seconds = max(gpu, cpu) if c.overlap else gpu + cpu
    scale = c.prefill_scale if step.chunk_count else c.decode_scale
    return seconds * scale, gpu * scale
