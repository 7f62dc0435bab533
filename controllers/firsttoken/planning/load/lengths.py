"""Prompt and output lengths as a distribution: log-normal through two percentiles, cut at what the engine takes.

Log-normal since a profile names P50 and P95 only, lengths are positive, and public traces are skewed to the right
(Azure 2023: the mean of conversation prompts is 1.13 times their median, of outputs 1.6 times).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import NormalDist

NORMAL = NormalDist()
Z95 = NORMAL.inv_cdf(0.95)

# Strata of prompts end here, in probability. They narrow upwards so that P50, P90, P95 and P99 each lie inside one:
# with equal strata the top seventh would stand for both P95 and P99 by a single length.
LONG_TAIL = (0.0, 0.25, 0.45, 0.55, 0.8, 0.92, 0.98, 1.0)
# Those of outputs narrow downwards: TPOT is a mean, which scatters most where it is over few tokens.
SHORT_TAIL = tuple(1 - share for share in reversed(LONG_TAIL))


@dataclass(frozen=True)
class Stratum:
    """A part of the requests: its mean length, and an even spread around it with the part's variance."""

    share: float  # of all requests
    tokens: int
    width: float  # tokens

    @property
    def decodes(self) -> int:
        """Decode steps of an output of this length, one at least: its first token comes out of prefill."""
        return max(1, self.tokens - 1)


@dataclass(frozen=True)
class LengthDistribution:
    """Tokens of a prompt or an output. Longer ones than `longest` count as `longest`, shorter than 1 as 1."""

    p50: int
    p95: int
    longest: int

    @cached_property
    def _mu(self) -> float:
        return math.log(max(1, self.p50))

    @cached_property
    def _sigma(self) -> float:
        return max(0.0, math.log(max(1, self.p95)) - self._mu) / Z95

    def quantile(self, share: float) -> float:
        """Tokens that `share` of the requests do not exceed, 0 < share < 1."""
        return self._cut(self._mu + self._sigma * NORMAL.inv_cdf(share))

    def below(self, tokens: float) -> float:
        """Part of the requests with at most `tokens`."""
        if tokens >= self.longest:
            return 1.0
        if tokens < 1:
            return 0.0
        if not self._sigma:
            return float(math.log(tokens) >= self._mu)
        return NORMAL.cdf((math.log(tokens) - self._mu) / self._sigma)

    @cached_property
    def mean(self) -> float:
        """Tokens."""
        return self._moment(1, 0.0, 1.0)

    @cached_property
    def second_moment(self) -> float:
        """Tokens squared."""
        return self._moment(2, 0.0, 1.0)

    @cached_property
    def third_moment(self) -> float:
        """Tokens to the power of three."""
        return self._moment(3, 0.0, 1.0)

    def strata(self, edges: tuple[float, ...]) -> tuple[Stratum, ...]:
        """The parts between these shares, shortest first."""
        return tuple(self._stratum(a, b) for a, b in pairwise(edges))

    def _stratum(self, low: float, high: float) -> Stratum:
        share = high - low
        mean = self._moment(1, low, high) / share
        variance = self._moment(2, low, high) / share - mean * mean
        # Below a part in a million it is rounding.
        width = math.sqrt(12 * variance) if variance > 1e-6 * mean else 0.0
        return Stratum(share, max(1, round(mean)), width)

    def _cut(self, logarithm: float) -> float:
        return max(1.0, min(float(self.longest), math.exp(min(logarithm, 60.0))))

    def _moment(self, order: int, low: float, high: float) -> float:
        """Sum over the requests between two shares of length to the power of `order`; at `longest` the curve is flat.

        Partial moments of a log-normal: exp(k mu + k^2 s^2 / 2) (F(b - k s) - F(a - k s)), F the normal distribution.
        """
        mu, sigma = self._mu, self._sigma
        if sigma == 0:
            return self._cut(mu) ** order * (high - low)
        start = NORMAL.inv_cdf(low) if low > 0 else -math.inf
        end = NORMAL.inv_cdf(high) if high < 1 else math.inf
        cut = (math.log(max(1, self.longest)) - mu) / sigma
        inner = min(end, max(start, cut))
        shift = order * sigma
        scale = math.exp(order * mu + shift * shift / 2)
        free = scale * (_cdf(inner - shift) - _cdf(start - shift))
        return free + float(self.longest) ** order * (_cdf(end) - _cdf(inner))


def _cdf(z: float) -> float:
    """Normal distribution function; takes infinities, which NormalDist does not."""
    return 0.5 * math.erfc(-z / math.sqrt(2))
