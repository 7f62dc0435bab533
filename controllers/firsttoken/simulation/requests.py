"""Requests as columns: when each arrives, how long it is, and which blocks of its prompt others may share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firsttoken.simulation.errors import SimulationInputError

MOST_TOKENS = 2**24  # longest prompt or output that is believed; more is a wrong column
PRIORITIES = (-128, 127)


@dataclass(frozen=True, eq=False)
class Requests:
    """n requests by arrival. Columns are arrays of n; block hashes of request i are hashes[offsets[i]:offsets[i + 1]].

    A hash stands for one block of `hash_tokens` prompt tokens *and* all before it, first block first; a last block that
    is not full may have one, too. No hashes: nothing is shared. Larger priorities wait longer (vLLM's order).
    """

    arrival: NDArray[np.float64]  # seconds
    prompt_tokens: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
    priority: NDArray[np.int8]
    hash_offsets: NDArray[np.int64]  # n + 1
    hashes: NDArray[np.int64]
    hash_tokens: int = 16

    def __len__(self) -> int:
        return len(self.arrival)

    def dense_hashes(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Hashes numbered from 0, equal ones alike, and the different ones in this order, which is rising."""
        kinds, numbers = np.unique(self.hashes, return_inverse=True)
        return numbers.astype(np.int32), kinds

    def take(self, rows: NDArray[np.int64]) -> "Requests":
        """These rows, which must be in order of arrival."""
        counts = np.diff(self.hash_offsets)[rows]
        offsets = np.concatenate(([0], np.cumsum(counts)))
        inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return Requests(
            self.arrival[rows], self.prompt_tokens[rows], self.output_tokens[rows], self.priority[rows],
            offsets.astype(np.int64), self.hashes[np.repeat(self.hash_offsets[:-1][rows], counts) + inside],
            self.hash_tokens,
        )  # fmt: skip


def requests(
    arrival: Any,
    prompt_tokens: Any,
    output_tokens: Any,
    *,
    priority: Any = 0,
    block_hashes: Sequence[Sequence[int]] | None = None,
    hash_tokens: int = 16,
) -> Requests:
    """Checked and sorted by arrival (seconds); rows that arrive together keep their order.

    `block_hashes`: one list a request. Raises SimulationInputError: a column of another length, a time that is no
    number, a length below 1.
    """
    times = _column("arrival", arrival, None, np.float64)
    count = len(times)
    if not np.isfinite(times).all() or (count and times.min() < 0):
        row = int(np.flatnonzero(~(np.isfinite(times) & (times >= 0)))[0])
        raise SimulationInputError(f"arrival of request {row} is {times[row]}: give seconds from 0 on")
    prompts, outputs = _lengths("prompt_tokens", prompt_tokens, count), _lengths("output_tokens", output_tokens, count)
    priorities = _column("priority", priority, count, np.int64)
    if count and not PRIORITIES[0] <= priorities.min() <= priorities.max() <= PRIORITIES[1]:
        raise SimulationInputError(f"priority must be a whole number from {PRIORITIES[0]} to {PRIORITIES[1]}")
    offsets, flat = _hashes(block_hashes, prompts, hash_tokens)
    given = Requests(times, prompts, outputs, priorities.astype(np.int8), offsets, flat, hash_tokens)
    order = np.argsort(times, kind="stable")
    return given if (order[:-1] < order[1:]).all() else given.take(order)


def _column(name: str, values: Any, count: int | None, kind: Any) -> NDArray[Any]:
    try:
        found = np.array(values, dtype=kind)
    except (ValueError, TypeError, OverflowError) as error:
        raise SimulationInputError(f"{name} must be numbers: {str(error).splitlines()[0]}") from error
    if found.ndim == 0 and count is not None:
        return np.full(count, found)
    if found.ndim != 1 or (count is not None and len(found) != count):
        raise SimulationInputError(
            f"{name} has shape {found.shape}: give one value for each of {count or 'n'} requests"
        )
    return found


def _lengths(name: str, values: Any, count: int) -> NDArray[np.int32]:
    found = _column(name, values, count, np.int64)
    wrong = np.flatnonzero((found < 1) | (found > MOST_TOKENS))
    if len(wrong):
        row = int(wrong[0])
        raise SimulationInputError(f"{name} of request {row} is {found[row]}: give 1 to {MOST_TOKENS} tokens")
    return found.astype(np.int32)


def _hashes(
    given: Sequence[Sequence[int]] | None, prompts: NDArray[np.int32], hash_tokens: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    count = len(prompts)
    if given is None:
        return np.zeros(count + 1, np.int64), np.zeros(0, np.int64)
    if hash_tokens < 1:
        raise SimulationInputError(f"hash_tokens is {hash_tokens}: give the tokens of a hashed block, 1 or more")
    if len(given) != count:
        raise SimulationInputError(f"block_hashes has {len(given)} lists: give one for each of {count} requests")
    sizes = np.fromiter((len(one) for one in given), np.int64, count)
    most = -(-prompts.astype(np.int64) // hash_tokens)
    if (sizes > most).any():
        row = int(np.flatnonzero(sizes > most)[0])
        raise SimulationInputError(
            f"block_hashes of request {row} has {sizes[row]} blocks: {prompts[row]} prompt tokens are {most[row]} "
            f"blocks of {hash_tokens}"
        )
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    flat = np.fromiter((h for one in given for h in one), np.int64, int(offsets[-1]))
    return offsets, flat
