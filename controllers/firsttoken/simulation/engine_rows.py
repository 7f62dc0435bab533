"""One request and one step of the exact engine, and its clock."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from firsttoken.simulation.state import LOADED, LOCAL


class Clock(Protocol):
    """How long a step takes; StepTable is one."""

    def step_seconds(self, chunks: Sequence[tuple[int, int]], contexts: Sequence[int]) -> tuple[float, float]:
        """Seconds of the step and GPU seconds of it."""


@dataclass(eq=False)
class Served:
    """One request and how far it is. Seconds, tokens, KV blocks."""

    row: int
    prompt: int
    output: int
    priority: int
    hashes: list[int]
    arrival: float = math.nan
    ready: float = math.nan
    order: int = 0  # of arrival at the engine
    computed: int = 0
    generated: int = 0
    covered: int = 0  # leading blocks in the prefix cache
    private: int = 0  # its other blocks
    granted: int = 0  # tokens in the step being composed
    queued: float = math.nan
    first: float = math.nan
    finish: float = math.nan
    preempted: int = 0
    cached: int = 0
    remote: int = LOCAL  # where its prompt's KV is: see state.py
    base: int = 0  # tokens generated when it was admitted last: what it computes up to them is prefill
    ran: int = 0  # number of the last step that it was in
    seat: int = 0  # of admission
    own: int = 0  # of a preempted request: its full blocks that nobody shares, in the pool; 0: none
    own_from: int = 0  # blocks before them

    @property
    def tokens(self) -> int:
        """Prompt and what is generated."""
        return self.prompt + self.generated

    def hashed(self, flying: bool) -> int:
        """Tokens whose full blocks have a hash, as in vLLM. `flying`: its last step is not known to have ended.

        A token that is still being made has none, nor, unless it is granted anew, the one it is made from.
        """
        if not flying or self.generated == self.base:
            return self.computed + self.granted
        if self.granted:
            return self.computed + self.granted - 1
        return self.computed - (self.generated > self.base + 1)

    @property
    def decodes(self) -> bool:
        """Only the newest token is to be computed."""
        return (self.generated > 0 or self.remote == LOADED) and self.computed == self.tokens - 1


class Step(NamedTuple):
    """One step. Requests that ended in the step before may still count as running."""

    start: float
    seconds: float
    gpu_seconds: float
    prefill_tokens: int
    decode_tokens: int
    running: int
    waiting: int
    kv_blocks: int
