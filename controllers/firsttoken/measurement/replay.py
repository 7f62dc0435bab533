"""The measured mix of prompts through one engine, step by step: how prompts meet in steps, and decodes meet prompts.

How many prompts share a step depends on when they come and how long steps are; means don't tell it. So some thousand
prompts of the measured lengths arrive at the measured rate, by numbers that are the same each time. Decodes are a
constant number. vLLM composes a step while the one before it runs, so a prompt waits for the next but one.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist

from firsttoken.measurement.composition import Composition
from firsttoken.measurement.step_curve import StepCurve

PROMPTS = 1000
_OUTPUT_SPREAD = (
    0.75  # of log-normal outputs: the ratio of P95 to P50 is 3.4; a contract with sums only doesn't tell it
)
_WARM_UP = 50  # prompts, which begin at an empty engine


@dataclass(frozen=True)
class Replayed:
    """Means over requests, in the model's own seconds."""

    prefill: float  # the prefill stage
    mixed: float  # of a token after the first: time in steps with prompts
    alone: float  # the same in steps of decodes alone
    steps: float  # steps with prompts, for each prompt


@dataclass
class _Request:
    """Tokens and seconds; `number` counts steps."""

    arrival: float
    done: float
    left: float
    output: float
    start: float = -1.0  # when its first step was decided
    stage: float = 0.0
    number: int = 0  # of steps until its first token


@dataclass(frozen=True)
class _Step:
    """A step with prompts in it: (tokens before, tokens), and whose last ones they are."""

    chunks: list[tuple[float, float]]
    ended: list[_Request]


def replay(found: Composition, curve: StepCurve, scale: tuple[float, float]) -> Replayed:
    """`scale`: measured over predicted seconds of steps with prompts, and of those without."""
    engine = _Engine(curve, found.room, scale, found.running)
    requests = list(_requests(found))
    engine.run(requests)
    mixed = alone = 0.0
    for one in requests:
        steps, seconds = engine.between(one.number, one.number + one.output)
        mixed += seconds / one.output
        alone += 1 - steps / one.output
    count = len(requests)
    settled = [r.stage for r in requests[_WARM_UP:]]
    return Replayed(
        prefill=sum(settled) / len(settled) / scale[0],
        mixed=mixed / count / scale[0],
        alone=alone / count * curve.decode,
        steps=len(engine.numbers) / count,
    )


class _Engine:
    """Prompts first come, first served, beside decodes: `running` on average, so that some prompts find nobody."""

    def __init__(self, curve: StepCurve, room: float, scale: tuple[float, float], running: float) -> None:
        self._curve, self._room, self._scale = curve, room, scale[0]
        # As many decode at a moment as a Poisson number has; nobody does in this part of all moments.
        self._idle, self._chance, self._beside = math.exp(-running), _Numbers(), 0.0
        self._pause = curve.decode * scale[1]
        self._now, self._number = 0.0, 0
        self.numbers: list[int] = []  # of the steps with prompts
        self._sums: list[float] = [0.0]  # of their seconds, up to each

    def run(self, requests: list[_Request]) -> None:
        """All of them, in order of arrival."""
        queue = deque(requests)
        step: _Step | None = None
        while queue or step is not None:
            following = self._composed(queue)
            if step is None and following is None:
                self._wait(queue[0].arrival)
                continue
            if step is None and not self._beside:
                step, following = following, None  # nothing runs that it would have to wait for
            self._run(step)
            step = following

    def between(self, first: float, last: float) -> tuple[int, float]:
        """Steps with prompts among those after the first `first` and up to `last`, and their seconds.

        After the last step the first ones come again: else the last requests would decode without prompts beside them.
        """
        (a, before), (b, after) = self._until(first), self._until(last)
        return b - a, after - before

    def _until(self, number: float) -> tuple[int, float]:
        again, rest = divmod(number, self._number)
        at = bisect_left(self.numbers, rest)
        return round(again) * len(self.numbers) + at, again * self._sums[-1] + self._sums[at]

    def _composed(self, queue: deque[_Request]) -> _Step | None:
        """Of the prompts that are there now."""
        room, step = self._room, _Step([], [])
        while queue and queue[0].arrival <= self._now and room >= 1:
            one = queue[0]
            one.start = self._now if one.start < 0 else one.start  # its queue ends when its first step is decided
            own = min(one.left, room)
            step.chunks.append((one.done, own))
            one.done, one.left, room = one.done + own, one.left - own, room - own
            if one.left <= 0:
                step.ended.append(queue.popleft())
        return step if step.chunks else None

    def _wait(self, arrival: float) -> None:
        """Nobody is there: decodes go on until somebody comes, or have ended before."""
        steps = max(1, math.ceil((arrival - self._now) / self._pause))
        self._beside = self._pause if self._chance.next() > self._idle else 0.0
        self._now = max(self._now + steps * self._beside, arrival)
        self._number += steps

    def _run(self, step: _Step | None) -> None:
        start, number = self._now, self._number
        seconds = self._pause if step is None else self._curve.seconds(step.chunks) * self._scale
        self._now, self._number = start + seconds, number + 1
        if step is None:
            return
        self.numbers.append(number)
        self._sums.append(self._sums[-1] + seconds)
        for one in step.ended:
            one.stage, one.number = self._now - one.start, number + 1


def _requests(found: Composition) -> Iterator[_Request]:
    """Prompts of the measured lengths, as Poisson arrivals at exactly the measured rate."""
    ends, draw = list(accumulate(p.requests for p in found.prompts)), _Numbers()
    gaps = [-math.log(draw.next()) for _ in range(PROMPTS)]
    now, each = 0.0, PROMPTS / found.rate / sum(gaps)
    for gap in gaps:
        now += gap * each
        bucket = found.prompts[min(len(ends) - 1, bisect_left(ends, draw.next() * ends[-1]))]
        length = max(1.0, bucket.uncached + bucket.spread * (2 * draw.next() - 1))
        normal = NormalDist().inv_cdf(draw.next())
        mean = max(1.0, found.output - 1)
        output = mean * math.exp(_OUTPUT_SPREAD * normal - _OUTPUT_SPREAD**2 / 2)
        yield _Request(now, bucket.cached, length, max(1.0, round(output)))


class _Numbers:
    """Evenly spread in (0, 1), the same each time: Knuth's MMIX generator."""

    def __init__(self) -> None:
        self._state = 88172645463325252

    def next(self) -> float:
        """The next one."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return ((self._state >> 33) + 0.5) / 2**31
