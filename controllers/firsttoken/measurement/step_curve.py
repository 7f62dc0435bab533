"""Seconds of a step of some prompt chunks beside a constant number of decodes, fast enough for thousands of steps.

The model's step is asked at some sizes of one chunk; between them it is straight. Attention is a product of each
chunk's tokens and those before it, so what several chunks save against one, and what a longer prefix costs, follow
from one factor.
"""

from bisect import bisect_left
from dataclasses import dataclass

from firsttoken.planning.timing.step import Decodes, StepModel

_SIZES = 24


@dataclass(frozen=True)
class StepCurve:
    """Of one engine. Tokens and seconds."""

    sizes: tuple[int, ...]
    times: tuple[float, ...]
    pair: float  # seconds that a token before costs a token of a chunk
    decode: float  # a step without prompts

    def seconds(self, chunks: list[tuple[float, float]]) -> float:
        """Of a step with these chunks: (tokens before, tokens)."""
        total = sum(own for _, own in chunks)
        pairs = sum(own * (before + own / 2) for before, own in chunks) - total * total / 2
        at = min(max(1, bisect_left(self.sizes, total)), len(self.sizes) - 1)
        low, high = self.sizes[at - 1], self.sizes[at]
        share = (total - low) / (high - low)
        return self.times[at - 1] + share * (self.times[at] - self.times[at - 1]) + self.pair * pairs


def step_curve(model: StepModel, room: int, decodes: Decodes, alone: Decodes) -> StepCurve:
    """`room`: most prompt tokens of a step; `decodes`: beside prompts; `alone`: of a step without prompts."""
    growth = max(2, room) ** (1 / (_SIZES - 1))
    sizes = sorted({1, max(2, room), *(round(growth**k) for k in range(_SIZES))})
    times = [model.step_seconds(((0, size),), decodes).seconds for size in sizes]
    far = 4 * sizes[-1]
    pair = (model.step_seconds(((far, sizes[-1]),), decodes).seconds - times[-1]) / (far * sizes[-1])
    decode = model.step_seconds((), alone).seconds if alone.requests else 0.0
    return StepCurve(tuple(sizes), tuple(times), max(0.0, pair), decode)
