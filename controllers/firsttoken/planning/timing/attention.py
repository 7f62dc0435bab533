"""Time of attention in one layer on one GPU: a chunk of a prompt, a batch of decodes, and the untiled baseline.

Widths are of one rank: heads already split by tensor parallelism. `AttentionShape.key_bytes` and the like are bytes.
"""

import math
from dataclasses import dataclass

QUERY_TILE = 128  # query rows an SM holds while keys stream by
ACTIVATION_BYTES = 2  # queries, outputs, and keys and values before they are stored
# Below this many tokens of context, kernels do not split a request's KV over SMs.
SPLIT_CONTEXT = 256
# Requests whose KV is not split are read by one SM each, which alone draws this many times its share of the memory
# bandwidth. An estimate from bytes in flight (64 to 128 KiB a SM, 600 ns); nobody published decode with skewed lengths.
LONE_PROCESSOR_SHARE = 3.0
# Passes over the score matrix when attention is not tiled: scores are written, read for the softmax, written again and
# read for the product with the values.
SCORE_PASSES = 4
SCORE_BYTES = 2
# An implementation that makes more passes than it must says so by the bytes that it moves for a score.
LEAST_SCORE_BYTES = SCORE_PASSES * SCORE_BYTES
# FlashAttention 2 serves a step that has prompt chunks in it with one kernel for all requests: there a decode takes a
# tile of 64 query rows for each of its heads, heads that share KV not packed into one, and walks its KV in blocks of
# 128 keys, not split over SMs (vllm-project/flash-attention, csrc/flash_attn/flash_fwd_launch_template.h: the paged
# "split" kernel; flash_api.cpp packs heads and splits KV only where no request has more than one query).
BESIDE_ROWS = 64
BESIDE_KEYS = 128
# Part of `prefill_mfu` that such tiles reach. Fitted on half of accuracy/data/mixed_attention_llmservingsim.csv.
BESIDE_SHARE = 0.86


@dataclass(frozen=True)
class AttentionEfficiency:
    """Fitted; one set for a generation and a format of the KV cache."""

    prefill_floor_us: float  # launch, rotary embedding apart, and writing a token's KV
    prefill_mfu: float  # part of the dense BF16 peak at long lengths
    prefill_half_tokens: float  # overhead of a query row, in keys: at twice this length half the ceiling is reached
    prefill_tail: float  # how much of the longest query tile is paid beyond the average (causal imbalance)
    prefill_mbu: float  # of the traffic of queries, outputs and the KV that is written
    decode_floor_us: float
    decode_mbu: float  # part of the memory bandwidth at which KV streams
    decode_request_us: float  # one SM's time for one request and KV head, bytes apart
    decode_overlap: float  # exponent of the norm over both: 1 they add, large the larger counts
    decode_split_us: float  # merging of partial results, from 256 tokens of context
    decode_length_us: float  # for 10,000 tokens of the longest context


@dataclass(frozen=True)
class AttentionShape:
    """Attention of one layer on one rank."""

    heads: int
    kv_heads: int
    query_width: float  # elements of a query and key that are multiplied (MLA prefill: 192)
    value_width: float
    kv_bytes: float  # of one token in this layer, keys and values and scales
    window: int | None = None
    latent_flops: float = 0.0  # MLA decode: FLOPs a token of context, since queries work on the latent vector


@dataclass(frozen=True)
class AttentionRates:
    """What the kernels of a device reach. FLOP/s, bytes/s."""

    flops: float
    bandwidth: float
    processors: int
    efficiency: AttentionEfficiency
    one_kernel: bool = False  # decodes beside prompt chunks are computed as if they were chunks (FlashAttention 2)
    score_bytes: float = LEAST_SCORE_BYTES  # memory traffic of one score, where attention is not tiled


def attended(prefix: float, chunk: float, window: int | None) -> float:
    """Pairs of query and key that causal attention of a chunk after `prefix` tokens computes."""
    if window is None or prefix + chunk <= window:
        return chunk * prefix + chunk * chunk / 2
    if prefix >= window:
        return chunk * window
    growing = window - prefix
    return growing * prefix + growing * growing / 2 + (chunk - growing) * window


def prefill_floor(rates: AttentionRates) -> float:
    """Seconds a layer that any step with a chunk pays once."""
    return rates.efficiency.prefill_floor_us * 1e-6


def prefill_work(
    prefix: float, chunk: float, shape: AttentionShape, rates: AttentionRates, *, batch: int = 1, read: float = 1.0
) -> float:
    """Seconds beyond the floor for `chunk` tokens after `prefix` cached ones, `batch` such prompts.

    Work is spread over the SMs; the query tile with most keys ends last. FLOPs do not change when a prompt is cut into
    chunks, but each chunk reads the KV before it again. `read` below 1: traffic that a benchmark finds in L2.
    """
    e, both = rates.efficiency, shape.query_width + shape.value_width
    # Query heads that share a KV head are packed into one tile, so few rows waste little of it.
    least = QUERY_TILE * shape.kv_heads / shape.heads
    padded = max(1.0, least / chunk)
    pairs = attended(prefix, chunk, shape.window) + chunk * e.prefill_half_tokens
    last = min(prefix + chunk, shape.window or prefix + chunk)
    longest = min(chunk * padded, QUERY_TILE) * (last + e.prefill_half_tokens)
    average = batch * shape.heads * pairs * padded / rates.processors
    compute = 2 * both * (average + e.prefill_tail * longest) * rates.processors / (rates.flops * e.prefill_mfu)
    rows = ACTIVATION_BYTES * shape.heads * both + ACTIVATION_BYTES * shape.kv_heads * both * 2 + shape.kv_bytes
    kept = min(prefix, shape.window or prefix)
    moved = batch * (chunk * rows * read / (rates.bandwidth * e.prefill_mbu) + kept * shape.kv_bytes / rates.bandwidth)
    return _norm(compute, moved)


def untiled_seconds(prefix: float, chunk: float, shape: AttentionShape, rates: AttentionRates, batch: int = 1) -> float:
    """Seconds for attention that writes the whole score matrix to memory (no FlashAttention), floor included.

    The mask hides half of a square but its scores are computed all the same, and a window saves nothing.
    """
    e, both = rates.efficiency, shape.query_width + shape.value_width
    scores = batch * shape.heads * chunk * (prefix + chunk)
    compute = 2 * both * scores / (rates.flops * e.prefill_mfu)
    moved = scores * rates.score_bytes / (rates.bandwidth * e.decode_mbu)
    tiled = prefill_work(prefix, chunk, shape, rates, batch=batch)
    return 3 * prefill_floor(rates) + max(compute + moved, tiled)


def decode_floor(longest: float, rates: AttentionRates) -> float:
    """Seconds a layer that any step with decodes pays once; `longest` context in tokens."""
    e = rates.efficiency
    split = min(1.0, longest / SPLIT_CONTEXT)
    return (e.decode_floor_us + e.decode_split_us * split + e.decode_length_us * longest * 1e-4) * 1e-6


def decode_work(
    count: int, context: float, longest: float, shape: AttentionShape, rates: AttentionRates, *, read: float = 1.0
) -> float:
    """Seconds beyond the floor for `count` decodes with `context` tokens together, the longest having `longest`.

    `read` below 1: the part of the KV traffic that remains where a benchmark finds the rest in L2. In an engine it is
    1, since the KV of every other layer and the weights pass between two uses.
    """
    e = rates.efficiency
    stream = context * shape.kv_bytes * read / (rates.bandwidth * e.decode_mbu)
    if shape.latent_flops:
        stream = max(stream, context * shape.latent_flops / (rates.flops * e.prefill_mfu))
    tiles = count * shape.kv_heads
    requests = e.decode_request_us * 1e-6 * tiles / rates.processors
    if e.decode_overlap == 1:
        work = stream + requests
    else:
        largest = max(stream, requests)
        low = min(stream, requests) / largest if largest else 0.0
        work = largest * (1 + low**e.decode_overlap) ** (1 / e.decode_overlap)
    if tiles < rates.processors:
        return work
    alone = longest * shape.kv_bytes / shape.kv_heads * rates.processors / (rates.bandwidth * LONE_PROCESSOR_SHARE)
    return max(work, alone)


def decodes_work(
    count: int, context: float, longest: float, shape: AttentionShape, rates: AttentionRates, *, beside: bool
) -> float:
    """As `decode_work`; `beside`: prompt chunks are in the step, beside which no kernel is faster than alone."""
    alone = decode_work(count, context, longest, shape, rates)
    if not (beside and rates.one_kernel):
        return alone
    return max(alone, beside_prompts_work(count, context, longest, shape, rates))


def beside_prompts_work(
    count: int, context: float, longest: float, shape: AttentionShape, rates: AttentionRates
) -> float:
    """Seconds beyond the floor for decodes in a step that has prompt chunks, with `one_kernel`; as in `decode_work`.

    Compute counts, not traffic: the heads that share KV read it one after another, mostly from L2.
    """
    both, half = shape.query_width + shape.value_width, BESIDE_KEYS / 2  # the last block is half full on average
    average = shape.heads * max(context + count * half, count * BESIDE_KEYS) / rates.processors
    compute = 2 * both * BESIDE_ROWS * max(average, longest + half, BESIDE_KEYS) * rates.processors
    return compute / (rates.flops * rates.efficiency.prefill_mfu * BESIDE_SHARE)


def _norm(a: float, b: float) -> float:
    """Norm with exponent 1.5: writing KV and computing overlap in part."""
    return math.pow(a * math.sqrt(a) + b * math.sqrt(b), 2 / 3)
