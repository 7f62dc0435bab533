"""The state of a fleet: replicas of all revisions in the arrays of one EngineState, and what routers remember."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from firsttoken.simulation.requests import PRIORITIES, Requests
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.state import AWAITED, NOBODY, NODE, STEP, EngineState, replica_record, request_rows
from firsttoken.simulation.state import BIN as SUMS
from firsttoken.simulation.step_cost import CONSTANTS
from firsttoken.simulation.step_table import StepTable

# A pool: `count` replicas from `first` on behind one router. `decode`: the pool that makes the tokens of what is
# prefilled here, or NOBODY. `turn`: of round robin. `head`: first of the prefilled that nobody has taken over yet.
POOL = np.dtype(
    [(n, np.int64) for n in ("first", "count", "policy", "decode", "turn", "head", "held", "most_ahead")]
    + [(n, np.float64) for n in ("least_match", "most_times")]
)


class FleetState(NamedTuple):
    """R replicas, P pools, n requests. Row i of `engine` is request i; row n + i its decode half, if there are any."""

    engine: EngineState
    pools: NDArray[Any]  # POOL (P)
    senders: NDArray[np.int32]  # (P, hashes): the replica that a block was last sent to, as routers remember it
    draws: NDArray[np.int64]  # (n, 4): numbers for random choices, two at each router; or none
    ranks: NDArray[np.int32]  # (n): priority as a rank
    replica: NDArray[np.int32]  # (rows): who has it
    reached: NDArray[np.float64]  # (R): everything before this time is decided
    held_heads: NDArray[np.int32]  # (R): prefilled requests whose KV is still here, in the order of hand-over
    held_tails: NDArray[np.int32]


def fleet_rows(requests: Requests, halves: bool) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Rows of ROW, with decode halves or not, and the ranks."""
    rows = request_rows(requests, True)
    ranks = rows["rank"].copy()
    if halves:
        decode = rows.copy()
        decode["remote"] = AWAITED
        rows = np.concatenate((rows, decode))
    return rows, ranks


def replicas_state(
    rows: NDArray[Any],
    hashes: NDArray[np.int32],
    kinds: int,
    replicas: Sequence[tuple[EngineSettings, StepTable]],
    *,
    hash_tokens: int,
    bins: int,
    bin_seconds: float,
    log: int,
) -> EngineState:
    """EngineState of all replicas; arrays are as long as the largest of them needs."""
    tables = list({id(table): table for _, table in replicas}.values())
    place = {id(table): number for number, table in enumerate(tables)}
    count, seqs = len(replicas), max(s.max_num_seqs for s, _ in replicas)
    records = np.concatenate([replica_record(s, hash_tokens, place[id(t)]) for s, t in replicas])
    records["bin_seconds"] = bin_seconds
    ranks = PRIORITIES[1] - PRIORITIES[0] + 1 if any(s.priorities for s, _ in replicas) else 1
    return EngineState(
        rows=rows,
        replicas=records,
        running=np.zeros((count, seqs), np.int32),
        finishing=np.zeros((count, 2 * seqs), np.int32),
        chunks=np.zeros((count, seqs, 2), np.int64),
        heads=np.full((count, ranks), NOBODY, np.int32),
        tails=np.full((count, ranks), NOBODY, np.int32),
        nodes=np.zeros((count, max(1, kinds)), NODE),
        hashes=hashes,
        phases=np.zeros((count, max(s.block_tokens for s, _ in replicas)), np.int64),
        timeline=np.zeros((count, bins), SUMS),
        log=np.zeros((count, log), STEP),
        constants=np.concatenate([t.constants.astype(CONSTANTS) for t in tables]),
        by_tokens=_stacked([t.by_tokens for t in tables]),
        by_rows=_stacked([t.by_rows for t in tables]),
    )


def _stacked(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Columns of different lengths as rows; what is beyond the end of one is never asked for."""
    found = np.full((len(columns), max(len(c) for c in columns)), np.nan)
    for row, column in zip(found, columns, strict=True):
        row[: len(column)] = column
    return found
