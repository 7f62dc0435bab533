"""The state of the compiled engine: flat arrays of records, so that compiled code can step many replicas in one loop.

Every array but `rows` and `hashes` has the replica as its first axis. Times are seconds, KV is in blocks.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from firsttoken.simulation.requests import PRIORITIES, Requests
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.step_cost import CONSTANTS
from firsttoken.simulation.step_table import StepTable

NOBODY = -1  # ends a list
# A row's `remote`: its prompt is computed here; its KV is still elsewhere; its KV was asked for and is here at `ready`.
LOCAL, AWAITED, LOADED = 0, 1, 2
# Of this many preempted requests, times `max_num_seqs`, the blocks that nobody shares are remembered. Without
# priorities no more than `max_num_seqs` wait at once, since they go first.
RUNS = 2
# Sums over time: this many bins, of a second until time has run past the last.
BINS, BIN_SECONDS = 1024, 1.0

# One request: what it is, how far it is, when it got there.
ROW = np.dtype(
    [
        *((name, np.int32) for name in (
            "prompt", "output", "rank", "hash_count", "computed", "generated", "cover", "private", "grant",
            "preempted", "cached", "next", "remote", "base", "ran", "seat", "own", "own_from",
        )),
        ("first_hash", np.int64),
        ("order", np.int64),  # of arrival at the engine
        *((name, np.float64) for name in ("arrival", "ready", "queued", "first", "finish")),
    ]
)  # fmt: skip
# `cover`: leading blocks whose hash is in the prefix cache by this request or another; `private`: the others it holds.
# `next`: in the list of those not yet arrived, or of those waiting. `queued`: when its first step was decided. `base`:
# tokens generated when it was admitted last, up to which it prefills. `ran`: number of its last step. `seat`: of
# admission. `own`: of a preempted one, the node of its full blocks that nobody shares, `own_from` blocks in.
# `lost` of a replica: a group was evicted since copies of its blocks were last looked for.

REPLICA = np.dtype(
    [
        *((name, np.int64) for name in (
            # settings, which may change between calls
            "token_budget", "most_running", "kv_blocks", "block_tokens", "hash_blocks", "caching", "chunked",
            "threshold", "priorities", "reserved_blocks", "full_fits", "watermark", "ahead", "static", "table",
            # where it stands
            "running", "finishing", "waiting", "pending", "pending_head", "pending_tail", "free_blank", "free_lru",
            "lru_head", "lru_tail", "tail_fillers", "spare", "lost", "seats", "arrived", "steps", "preemptions",
            "finished",
            # the step that was composed last
            "steady", "admitted", "step_preempted", "chunk_count", "chunk_tokens", "decodes", "longest", "below",
            "single",
            # KV that moves: `holds` what it computed until somebody has it; rows whose KV came from elsewhere
            "holds", "loaded_head", "loaded_tail",
            # closed loop: rows not yet sent
            "closed", "cursor",
            "peak_running", "peak_waiting", "peak_kv",
        )),
        *((name, np.float64) for name in (
            "gateway", "input", "input_token", "delivery", "think", "start", "end", "total", "clipped", "seconds",
            "gpu", "bin_seconds", "decides",
            # until when the API server is busy with the prompts sent so far
            "api_free",
            # the way that KV comes: set-up, seconds a token, and until when it is taken
            "link_set_up", "link_token", "link_free",
        )),
    ]
)  # fmt: skip

# A group of KV blocks with one hash, or, behind all groups, the run of a preempted request; those not used are a list
# from `spare` on. `left`: of its blocks, how many are still cached; 0: none. `fillers`: blocks nobody will ask for that
# are next to be evicted before it.
NODE = np.dtype([(name, np.int32) for name in ("prev", "next", "refs", "left", "fillers")])

# A part of the time, or one step of the log: sums over its steps, tokens and requests times seconds.
BIN = np.dtype(
    [(n, np.float64) for n in (
        "steps", "seconds", "gpu", "prefill_tokens", "decode_tokens", "running", "waiting", "kv", "preempted",
    )]
)  # fmt: skip
STEP = np.dtype(
    [(n, np.float64) for n in ("start", "seconds")]
    + [(n, np.int64) for n in ("prefill_tokens", "decode_tokens", "running", "waiting", "kv")]
)


class EngineState(NamedTuple):
    """All state. R replicas, n requests, S running requests at most."""

    rows: NDArray[Any]  # ROW (n)
    replicas: NDArray[Any]  # REPLICA (R)
    running: NDArray[np.int32]  # (R, S) in order of admission
    finishing: NDArray[np.int32]  # (R, 2 S): done, their KV not yet free
    chunks: NDArray[np.int64]  # (R, S, 2): tokens before and of each chunk of the last step
    heads: NDArray[np.int32]  # (R, classes): first waiting of each priority
    tails: NDArray[np.int32]
    nodes: NDArray[Any]  # NODE (R, hashes and runs)
    hashes: NDArray[np.int32]
    phases: NDArray[np.int64]  # (R, block tokens): scratch
    timeline: NDArray[Any]  # BIN (R, bins)
    log: NDArray[Any]  # STEP (R, length): a ring of the last steps
    constants: NDArray[Any]  # CONSTANTS (tables)
    by_tokens: NDArray[np.float64]  # (tables, tokens)
    by_rows: NDArray[np.float64]  # (tables, requests)


def request_rows(requests: Requests, priorities: bool) -> NDArray[Any]:
    """Rows of ROW. A request waits among those of its priority, if these count."""
    rows = np.zeros(len(requests), ROW)
    rows["prompt"], rows["output"] = requests.prompt_tokens, requests.output_tokens
    rows["rank"] = requests.priority.astype(np.int32) - PRIORITIES[0] if priorities else 0
    rows["first_hash"], rows["hash_count"] = requests.hash_offsets[:-1], np.diff(requests.hash_offsets)
    rows["arrival"], rows["next"], rows["own"] = requests.arrival, NOBODY, NOBODY
    for name in ("queued", "first", "finish"):
        rows[name] = np.nan
    return rows


def replica_record(settings: EngineSettings, hash_tokens: int, table: int = 0) -> NDArray[Any]:
    """One REPLICA, empty, at time 0."""
    found, stages = np.zeros(1, REPLICA), settings.stages
    values = {
        "token_budget": settings.token_budget, "most_running": settings.most_running, "kv_blocks": settings.kv_blocks,
        "block_tokens": settings.block_tokens, "hash_blocks": max(1, hash_tokens // settings.block_tokens),
        "caching": settings.prefix_caching, "chunked": settings.chunked_prefill,
        "threshold": settings.long_prefill_threshold, "priorities": settings.priorities,
        "reserved_blocks": settings.reserved_blocks, "full_fits": settings.full_prompt_fits,
        "watermark": settings.watermark_blocks, "ahead": settings.schedule_ahead, "table": table,
        "static": settings.static_batching,
        "pending_head": NOBODY, "pending_tail": NOBODY, "lru_head": NOBODY, "lru_tail": NOBODY,
        "loaded_head": NOBODY, "loaded_tail": NOBODY,
        "free_blank": settings.kv_blocks, "gateway": stages.gateway_seconds, "input": stages.input_seconds,
        "input_token": stages.input_token_seconds, "delivery": stages.delivery_seconds,
    }  # fmt: skip
    for name, value in values.items():
        found[name] = value
    return found


def replicas_state(
    rows: NDArray[Any],
    hashes: NDArray[np.int32],
    kinds: int,
    replicas: Sequence[tuple[EngineSettings, StepTable]],
    *,
    hash_tokens: int,
    bins: int = BINS,
    bin_seconds: float = BIN_SECONDS,
    log: int = 0,
) -> EngineState:
    """Empty replicas; arrays are as long as the largest of them needs. `kinds`: different hashes. `bins` of
    `bin_seconds` double as time passes.
    """
    tables = list({id(table): table for _, table in replicas}.values())
    place = {id(table): number for number, table in enumerate(tables)}
    count, seqs = len(replicas), max(s.max_num_seqs for s, _ in replicas)
    records = np.concatenate([replica_record(s, hash_tokens, place[id(t)]) for s, t in replicas])
    records["bin_seconds"], records["spare"] = bin_seconds, groups_of(kinds)
    ranks = PRIORITIES[1] - PRIORITIES[0] + 1 if any(s.priorities for s, _ in replicas) else 1
    return EngineState(
        rows=rows,
        replicas=records,
        running=np.zeros((count, seqs), np.int32),
        finishing=np.zeros((count, 2 * seqs), np.int32),
        chunks=np.zeros((count, seqs, 2), np.int64),
        heads=np.full((count, ranks), NOBODY, np.int32),
        tails=np.full((count, ranks), NOBODY, np.int32),
        nodes=_nodes(groups_of(kinds), [s.max_num_seqs for s, _ in replicas]),
        hashes=hashes,
        phases=np.zeros((count, max(s.block_tokens for s, _ in replicas)), np.int64),
        timeline=np.zeros((count, bins), BIN),
        log=np.zeros((count, log), STEP),
        constants=np.concatenate([t.constants.astype(CONSTANTS) for t in tables]),
        by_tokens=_stacked([t.by_tokens for t in tables]),
        by_rows=_stacked([t.by_rows for t in tables]),
    )


def groups_of(kinds: int) -> int:
    """Nodes of groups, for so many different hashes."""
    return max(1, kinds)


def _nodes(groups: int, seqs: Sequence[int]) -> NDArray[Any]:
    """Empty groups, and for each replica the list of its runs, by its running requests at most."""
    found = np.zeros((len(seqs), groups + RUNS * max(seqs)), NODE)
    for own, most in zip(found, seqs, strict=True):
        last = groups + RUNS * most
        own["next"][groups:last] = [*range(groups + 1, last), NOBODY]
    return found


def _stacked(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Columns of different lengths as rows; what is beyond the end of one is never asked for."""
    found = np.full((len(columns), max(len(c) for c in columns)), np.nan)
    for row, column in zip(found, columns, strict=True):
        row[: len(column)] = column
    return found
