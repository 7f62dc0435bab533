"""Step times of one model under one shape of requests as functions of the number of running decodes.

Each is evaluated at a coarse grid of decodes and interpolated between, so that neighbouring rates share evaluations.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from firsttoken.planning.load.demand import PromptClass, RequestShape
from firsttoken.planning.timing.step import Decodes, StepModel, StepTime

# Decodes at which steps are evaluated: 0, 1, 2, 3, 4, 6, 8, 12, ... A step is close to linear in between.
GRID: tuple[int, ...] = (0, 1, *(n for k in range(1, 16) for n in (2**k, 3 * 2 ** (k - 1))))
WIDTHS = (*(after - n for n, after in pairwise(GRID)), math.inf)  # to the next point; beyond the last all is as there
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


class Steps(NamedTuple):
    """A step beside a number of decodes, seconds."""

    decode: float  # without prompts
    full: float  # its budget filled with prompts of the shape
    single: float  # with the one typical prompt in it, or with as much of it as fits


class PromptSteps(NamedTuple):
    """The steps of one prompt beside a number of decodes, seconds."""

    seconds: float  # until its first token
    occupied: float  # until the next prompt may begin: with several stages less than that
    # What others may add to the last of them at most, which is what is missing to a full one. The least time of a step
    # is paid once: a longer prompt leaves others less, but then its own step takes more.
    left: float


class StepCurves:
    """Interpolated step times in seconds. Lives as long as one planning call; remembers what it evaluated.

    With p pipeline stages, p batches are in flight, each with its part of the decodes and a token budget of its own. A
    step is one round of them. A batch holds up all that are behind it in each stage, so the round takes p times the
    slowest stage of its fullest batch, whether or not the others have prompts in them.
    """

    def __init__(self, model: StepModel, shape: RequestShape, token_budget: int) -> None:
        """`token_budget` of the engine, tokens a step."""
        self.model, self.shape, self.token_budget = model, shape, token_budget
        self.stages = model.stages
        # Whole steps composed before a request is seen that comes during one (asynchronous scheduling).
        self.ahead = int(model.stages == 1 and model.parts().overlap)
        self._known: dict[int, Steps] = {}  # by the point of GRID
        self._prompts: dict[tuple[int, int, int], PromptSteps] = {}  # by tokens, cached tokens and point
        self._chunks: dict[tuple[int, int], StepTime] = {}  # that fill a step, by the tokens before them and decodes
        # What others made of these: in steady states of other rates they are asked for again.
        self.token_times: dict[tuple[float, float], tuple[float, float]] = {}
        self.replicas: dict[object, Any] = {}
        self._decodes: dict[int, float] = {}  # by point; no budget changes these and the next
        self._batches: dict[int, Decodes] = {}
        self._family = {token_budget: self}
        uncached = shape.mean_uncached
        pairs = sum(c.share * c.uncached * (c.cached + c.uncached / 2) for c in shape.prompt_classes)
        self.mean_api, self.square_api = self._input()  # of what a request takes in the API server; seconds, squared
        self.typical = max(1, round(shape.square_uncached / uncached))  # prompt in which the average prefill token lies
        self._reach = pairs / uncached  # keys that the average prefill token attends to

    def _input(self) -> tuple[float, float]:
        once, prompts = self.model.api_seconds(0), self.shape.prompts
        token = self.model.api_seconds(1) - once
        square = once**2 + 2 * once * token * prompts.mean + token**2 * prompts.second_moment
        return once + token * prompts.mean, square

    def for_budget(self, token_budget: int) -> "StepCurves":
        """The same with another budget, sharing what doesn't depend on it; one for each budget."""
        found = self._family.get(token_budget)
        if found is None:
            found = self._family[token_budget] = StepCurves(self.model, self.shape, token_budget)
            found._family, found._decodes, found._batches = self._family, self._decodes, self._batches
        return found

    def room(self, decodes: float) -> float:
        """Prompt tokens that fit into a step beside `decodes`."""
        return max(1.0, self.stages * self.token_budget - decodes)

    def chunk(self, decodes: float) -> float:
        """Those that fit into one batch of it."""
        return max(1.0, self.token_budget - self._each(decodes))

    def _each(self, decodes: float) -> float:
        """Decodes of a batch: a single one is in one, and the other stages are idle."""
        return decodes if decodes <= 1 else max(1.0, decodes / self.stages)

    def decode(self, decodes: float) -> float:
        """A step of decodes only."""
        low, part = self._place(decodes)
        at_low = self._decode(low)
        return at_low + (self._decode(low + 1) - at_low) * part if part else at_low

    def full(self, decodes: float) -> float:
        """A step whose budget is filled with prompts of the shape."""
        return self.steps(decodes).full

    def steps(self, decodes: float) -> Steps:
        """All three kinds."""
        low, part = self._place(decodes)
        decode, full, single = a = self._steps(low)
        if not part:
            return a
        b = self._steps(low + 1)
        return Steps(decode + (b[0] - decode) * part, full + (b[1] - full) * part, single + (b[2] - single) * part)

    def prompt(self, prompt: PromptClass, decodes: float) -> PromptSteps:
        """The steps of one prompt, alone with the decodes."""
        low, part = self._place(decodes)
        whole, own, left = a = self._prompt(prompt, low)
        if not part:
            return a
        b = self._prompt(prompt, low + 1)
        return PromptSteps(whole + (b[0] - whole) * part, own + (b[1] - own) * part, left + (b[2] - left) * part)

    def _place(self, decodes: float) -> tuple[int, float]:
        """The last point of GRID at or below the decodes of a batch, and how far they are on the way to the next."""
        decodes = decodes if self.stages == 1 else self._each(decodes)
        low = bisect_right(GRID, decodes) - 1
        return low, (decodes - GRID[low]) / WIDTHS[low]

    def _steps(self, point: int) -> Steps:
        found = self._known.get(point)
        if found is None:
            n = GRID[point]
            found = self._known[point] = Steps(self._decode(point), self._full(n), self._single(n))
        return found

    def _prompt(self, prompt: PromptClass, point: int) -> PromptSteps:
        key = (prompt.tokens, prompt.cached, point)
        found = self._prompts.get(key)
        if found is None:
            found = self._prompts[key] = self._divide(prompt, point)
        return found

    # From here on `decodes` are those of one batch.

    def _decode(self, point: int) -> float:
        found = self._decodes.get(point)
        if found is None:
            n = GRID[point]
            found = self._decodes[point] = self._through(self.model.step_seconds((), self._running(n)), n - 1)
        return found

    def _running(self, decodes: int) -> Decodes:
        found = self._batches.get(decodes)
        if found is None:
            context, longest = self.shape.context, self.shape.longest_context(decodes)
            found = self._batches[decodes] = Decodes(decodes, round(decodes * context), round(longest))
        return found

    def _full(self, decodes: int) -> float:
        room = max(1, self.token_budget - decodes)
        count = min(CHUNKS_OF_A_STEP, -(-room // self.typical))
        size, rest = divmod(room, count)
        sizes = [size + (i < rest) for i in range(count)]
        chunks = [(max(0, round(self._reach - s / 2)), s) for s in sizes if s]
        return self._through(self.model.step_seconds(chunks, self._running(decodes)), math.inf)

    def _single(self, decodes: int) -> float:
        room = max(1, self.token_budget - decodes)
        size = min(self.typical, room)
        prefix = max(0, round(self._reach - size / 2))
        return self._through(self.model.step_seconds(((prefix, size),), self._running(decodes)), decodes - 1)

    def _through(self, step: StepTime, others: float) -> float:
        """Seconds until a batch has passed all stages, beside batches of `others` decodes on average.

        Alone it takes its own time in each; where there is a batch in every stage, that of the slowest in each.
        """
        if self.stages == 1:
            return step.seconds
        crowded = self.stages * self.model.interval_seconds(step)
        return step.seconds - (crowded - step.seconds) * math.expm1(-max(0.0, others))

    def _divide(self, prompt: PromptClass, point: int) -> PromptSteps:
        """A chunk follows the one before it as soon as the first stage is free, and never overtakes it."""
        decodes, stages = GRID[point], self.stages
        running, room = self._running(decodes), max(1, self.token_budget - decodes)
        earlier = (prompt.uncached - 1) // room
        size = prompt.uncached - earlier * room
        last = self.model.step_seconds(((prompt.tokens - size, size),), running)
        alone = self._through(last, decodes)
        filled = max(alone, self._steps(point).full)
        own = self.model.interval_seconds(last)
        if not earlier:
            return PromptSteps(alone, own, filled - alone)
        before, end = self._earlier(prompt, room, earlier, decodes)
        slowest = self._through(end, decodes) * (1 - 1 / stages)
        rest, full = (max(x, x / stages + slowest) for x in (alone, filled))
        return PromptSteps(before + rest, before + own, full - rest)

    def _earlier(self, prompt: PromptClass, room: int, count: int, decodes: int) -> tuple[float, StepTime]:
        """Seconds until `count` full chunks have begun and the next may, and the last of them."""

        def step(index: float) -> StepTime:
            key = (prompt.cached + int(index * room), decodes)
            found = self._chunks.get(key)
            if found is None:
                found = self._chunks[key] = self.model.step_seconds(((key[0], room),), self._running(decodes))
            return found

        end, interval = step(count - 1), self.model.interval_seconds
        if count <= CHUNKS_ADDED:
            return sum(interval(step(i)) for i in range(count)), end
        return count * (interval(step(0)) + 4 * interval(step((count - 1) / 2)) + interval(end)) / 6, end
