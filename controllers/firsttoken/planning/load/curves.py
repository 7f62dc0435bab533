"""Step times of one model under one shape of requests as functions of the number of running decodes.

Each is evaluated at a coarse grid of decodes and interpolated between, so that neighbouring rates share evaluations.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from firsttoken.planning.load.demand import PromptClass, RequestShape
from firsttoken.planning.timing.step import Decodes, StepModel

# Decodes at which steps are evaluated: 0, 1, 2, 3, 4, 6, 8, 12, ... A step is close to linear in between.
GRID: tuple[int, ...] = (0, 1, *(n for k in range(1, 16) for n in (2**k, 3 * 2 ** (k - 1))))
# A full step of very short prompts is made of this many longer chunks: attention between such is little of a step.
CHUNKS_OF_A_STEP = 8
# Above this many full chunks of one prompt, their times are integrated over the prefix (Simpson's rule, which is exact
# for attention that grows with it in a straight line) rather than added up.
CHUNKS_ADDED = 4


@dataclass(frozen=True)
class EngineLimits:
    """What one engine is started with."""

    token_budget: int  # tokens of a step at most, decodes first
    max_running: int  # requests running at once at most (max-num-seqs or the decode cap)
    kv_tokens: int  # tokens of KV that fit


class StepCurves:
    """Interpolated step times in seconds. Lives as long as one planning call; remembers what it evaluated."""

    def __init__(self, model: StepModel, shape: RequestShape, token_budget: int) -> None:
        """`token_budget` of the engine, tokens a step."""
        self.model, self.shape, self.token_budget = model, shape, token_budget
        self._known: dict[tuple[str, int, int, int], float] = {}
        uncached = shape.mean_uncached
        pairs = sum(c.share * c.uncached * (c.cached + c.uncached / 2) for c in shape.prompt_classes)
        self.typical = max(1, round(shape.square_uncached / uncached))  # prompt in which the average prefill token lies
        self._reach = pairs / uncached  # keys that the average prefill token attends to

    def room(self, decodes: float) -> float:
        """Prompt tokens that fit into a step beside `decodes`."""
        return max(1.0, self.token_budget - decodes)

    def decode(self, decodes: float) -> float:
        """A step of decodes only."""
        return self._between(decodes, self._decode, ("decode", 0, 0))

    def full(self, decodes: float) -> float:
        """A step whose budget is filled with prompts of the shape."""
        return self._between(decodes, self._full, ("full", 0, 0))

    def single(self, decodes: float) -> float:
        """A step with the one typical prompt in it, or with as much of it as fits."""
        return self._between(decodes, self._single, ("single", 0, 0))

    def prefill(self, prompt: PromptClass, decodes: float) -> float:
        """All steps of one prompt, alone with the decodes."""
        key = ("prefill", prompt.tokens, prompt.cached)
        return self._between(decodes, lambda n: self._prefill(prompt, n), key)

    def _between(self, decodes: float, evaluate: Callable[[int], float], key: tuple[str, int, int]) -> float:
        i = bisect_right(GRID, decodes) - 1
        low, high = GRID[i], GRID[min(i + 1, len(GRID) - 1)]
        at_low = self._at(low, evaluate, key)
        if decodes <= low or high == low:
            return at_low
        return at_low + (self._at(high, evaluate, key) - at_low) * (decodes - low) / (high - low)

    def _at(self, decodes: int, evaluate: Callable[[int], float], key: tuple[str, int, int]) -> float:
        full_key = (*key, decodes)
        found = self._known.get(full_key)
        if found is None:
            found = self._known[full_key] = evaluate(decodes)
        return found

    def _running(self, decodes: int) -> Decodes:
        shape = self.shape
        return Decodes(decodes, round(decodes * shape.context), round(shape.longest_context(decodes)))

    def _decode(self, decodes: int) -> float:
        return self.model.step_seconds((), self._running(decodes)).seconds

    def _full(self, decodes: int) -> float:
        room = int(self.room(decodes))
        count = min(CHUNKS_OF_A_STEP, -(-room // self.typical))
        size, rest = divmod(room, count)
        sizes = [size + (i < rest) for i in range(count)]
        chunks = [(max(0, round(self._reach - s / 2)), s) for s in sizes if s]
        return self.model.step_seconds(chunks, self._running(decodes)).seconds

    def _single(self, decodes: int) -> float:
        size = min(self.typical, int(self.room(decodes)))
        prefix = max(0, round(self._reach - size / 2))
        return self.model.step_seconds(((prefix, size),), self._running(decodes)).seconds

    def _prefill(self, prompt: PromptClass, decodes: int) -> float:
        running, room = self._running(decodes), int(self.room(decodes))
        chunks, rest = divmod(prompt.uncached, room)
        if chunks <= CHUNKS_ADDED:
            return self.model.prefill_seconds(prompt.tokens, prompt.cached, self.token_budget, running)
        last = prompt.cached + (chunks - 1) * room
        points = (prompt.cached, (prompt.cached + last) // 2, last)
        first, middle, end = (self.model.step_seconds(((p, room),), running).seconds for p in points)
        tail = self.model.step_seconds(((last + room, rest),), running).seconds if rest else 0.0
        return chunks * (first + 4 * middle + end) / 6 + tail
