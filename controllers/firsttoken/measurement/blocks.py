"""What was measured of one service: a window of equal blocks for each revision and role, oldest first.

A block holds sums over its time (increases of counters) and states (gauges) by question (questions.py) and by the
question's own label: a prompt-length bucket, a phase, or nothing. What nobody measured is not in it: never zero.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

Block = Mapping[tuple[str, str], float]  # (question, label) -> value, in the question's unit
Part = tuple[str, str]  # revision and role


@dataclass(frozen=True)
class Window:
    """Blocks one after the other, each of `seconds`; an empty one where nothing was measured."""

    seconds: float
    blocks: tuple[Block, ...]

    def __hash__(self) -> int:
        """Of what it holds, so that what follows from it can be remembered."""
        return hash((self.seconds, *(frozenset(block.items()) for block in self.blocks)))

    def total(self, question: str, label: str = "") -> float:
        """Sum over all blocks; 0 where no block has it."""
        return sum(block.get((question, label), 0.0) for block in self.blocks)

    def labels(self, question: str) -> tuple[str, ...]:
        """Of a question, sorted."""
        return tuple(sorted({label for block in self.blocks for name, label in block if name == question}))

    def extremes(self, low: str, high: str) -> tuple[float, float] | None:
        """The least and the largest value of two questions over all blocks, None without any."""
        least = [block[low, ""] for block in self.blocks if (low, "") in block]
        most = [block[high, ""] for block in self.blocks if (high, "") in block]
        return (min(least), max(most)) if least and most else None

    @property
    def unsound(self) -> bool:
        """Whether something in it is no finite number, or below zero."""
        return any(not (math.isfinite(value) and value >= 0) for block in self.blocks for value in block.values())


@dataclass(frozen=True)
class Measurements:
    """Of one service. `fault`: why there is no answer, one sentence that ends with the remedy; "" with one."""

    windows: Mapping[Part, Window] = field(default_factory=dict)
    fault: str = ""
