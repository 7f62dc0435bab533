"""The state of a fleet: replicas of all revisions in the arrays of one EngineState, and what routers remember."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from firsttoken.simulation.requests import Requests
from firsttoken.simulation.state import AWAITED, EngineState, request_rows

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
