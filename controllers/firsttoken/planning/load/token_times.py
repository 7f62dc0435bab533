"""Distribution of TPOT over requests, each with the mean over its tokens. Seconds."""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from firsttoken.planning.load.curves import StepCurves
from firsttoken.planning.load.lengths import Stratum
from firsttoken.planning.load.probability import log_normal_below, percentile, poisson_above
from firsttoken.planning.load.steady import Steady
from firsttoken.planning.load.waiting import LEAST_SLACK, context_variation

# Deviations of the number of running decodes, as a mean over a request's time (which evens out a third of the
# variance): three points with the variance of a normal distribution, and their weights.
DEVIATIONS = ((-1.5, 0.15), (0.0, 0.7), (1.5, 0.15))
MOST_ADDED = 0.9  # part of the time that prompts take from decodes: beyond, the longest step is what counts


class _Part(NamedTuple):
    """Requests of one output length beside one number of decodes."""

    share: float
    tokens: int
    decode: float  # a step without prompts
    mean: float  # what prompts add to all their steps
    size: float  # what one prompt adds, as if all were equal
    drained: float  # backlog at the end of their time, on average
    deviation: float  # of what prompts add; 0 where next to none of it is left at the beginning


class TokenTimes:
    """While a request makes m tokens, prompts add seconds to its steps.

    They are a Poisson number; since prompts differ, one of equal ones with the same mean and variance stands for it.
    More come while they make the request wait: a delay cycle, whose variance is that of the first ones over
    (1 - added)^2 (Conway, Maxwell and Miller 1967). Requests that last no longer than the queue remembers see the
    backlog that they find instead. No step is longer than a full one.
    """

    def __init__(self, curves: StepCurves, steady: Steady, near: float = 1.0, far: float = 1.0) -> None:
        """Of one engine in a steady state; `near` and `far`: of its router (routers.py)."""
        self._near, self._far = min(1.0, near), far
        self._rho = min(1.0, steady.prefill_share * steady.admitted / steady.rate) * self._near
        self._backlog = self._memory = self._unit = 0.0
        n, shape = steady.running, curves.shape
        full = 0.0
        if steady.excess:
            full, rest = curves.full(n + 1), max(LEAST_SLACK, 1 - self._rho)
            spread = shape.square_uncached / shape.mean_uncached
            work = spread / 2 * full / curves.room(n)
            self._unit = steady.excess * (spread / shape.mean_uncached - (1 - far))
            added = min(MOST_ADDED, steady.admitted * steady.excess)
            self._backlog = work / rest * (1 - curves.decode(n + 1) / full) / (1 - added)
            self._memory = self._rho * work / rest**2 / full
        # What a decode adds to a step is its context, and contexts differ.
        deviation = math.sqrt(n) * steady.spread * context_variation(curves, steady)
        self._decodes = [curves.decode(max(1.0, n + 1 + z * deviation)) for z, _ in DEVIATIONS]
        self._first, self._longest = min(self._decodes), max(full, *self._decodes)
        self._curves, self._steady = curves, steady

    @cached_property
    def _parts(self) -> tuple[_Part, ...]:
        return tuple(self._divide())

    @cached_property
    def _weight(self) -> float:
        return sum(p.share for p in self._parts)

    def _divide(self) -> Iterator[_Part]:
        usual = min(MOST_ADDED, self._steady.admitted * self._steady.excess)
        outputs = [self._output(stratum, usual) for stratum in self._curves.shape.output_strata]
        for decode, (z, weight) in zip(self._decodes, DEVIATIONS, strict=True):
            added = min(MOST_ADDED, usual * max(0.0, 1 + z * self._uneven()))
            excess = decode * added / (1 - added)
            for share, tokens, size, drained in outputs:
                mean = excess * tokens * self._beside(tokens)
                own = math.sqrt(mean * size) if mean * size <= 64 * self._backlog * self._backlog else 0.0
                yield _Part(weight * share, tokens, decode, mean, size, drained, own)

    def _output(self, stratum: Stratum, added: float) -> tuple[float, int, float, float]:
        """What of a part doesn't depend on the decodes beside it: share, tokens, size and what is drained."""
        tokens, memory = stratum.decodes, self._memory
        # How both fade in with the length (4, the square) was chosen to agree with an engine that is stepped.
        cycle = (1 / (1 - added) ** 2 - 1) * tokens / (tokens + 4 * memory)
        drained = self._rho * self._backlog * (tokens / (tokens + memory)) ** 2
        return stratum.share, tokens, self._unit * (1 + cycle), drained

    def _uneven(self) -> float:
        """Deviation of the prompts that came while those that decode did, relative: what made many decode adds more
        prompts to their steps, too.
        """
        steady, shape = self._steady, self._curves.shape
        came = steady.admitted * steady.residence
        spread = shape.square_uncached / shape.mean_uncached**2
        return min(1.0, math.sqrt(self._far * spread / came)) if came > 0 and steady.excess else 0.0

    def _beside(self, tokens: int) -> float:
        """Prompts that come while a request makes its tokens, of those that Poisson arrivals would bring.

        Few come close to its own, and as many as on average once it stays for longer than prompts are apart.
        """
        if self._near >= 1:
            return 1.0
        apart = self._steady.admitted * tokens * self._steady.tpot
        return self._near + (1 - self._near) * apart / (1 + apart)

    def survival(self, t: float) -> float:
        """P(a request's mean TPOT > t)."""
        if t >= self._longest:
            return 0.0
        above = self._above
        return sum([p[0] * (above(p, t) if p[2] <= t else 1.0) for p in self._parts]) / self._weight

    def percentile(self, share: float, low: float = 0.0) -> float:
        """Seconds that `share` of the requests do not exceed, known to be above `low`."""
        first = max(low, self._first)
        return percentile(self.survival, share, first, max(first, self._longest))

    def _above(self, part: _Part, t: float) -> float:
        """P(prompts add more to the steps of such a request than leaves its mean TPOT at t).

        The backlog at its beginning, with probability rho exponential, is work of its time, that at its end is not. The
        sum with the prompts that come, taken as normal, is an exponentially modified normal distribution.
        """
        _, tokens, decode, mean, size, drained, deviation = part
        excess = (t - decode) * tokens
        if not self._unit:
            return 0.0
        later, backlog = excess + drained, self._backlog
        other = poisson_above(later / size, mean / size)
        if not deviation:
            return other
        apart, few = (later - mean) / deviation, deviation / backlog
        exponent = log_normal_below(apart - few) - apart * few + few * few / 2
        return min(1.0, other + self._rho * math.exp(min(0.0, exponent)))
