"""Normal and Poisson probabilities, and percentiles of a survival function. Plain numbers, no units."""

import math
from collections.abc import Callable

ROOT_HALF = math.sqrt(0.5)
TOLERANCE = 1e-4  # of a percentile, relative
ROUNDS = 60  # of a search: far more than it takes


def normal_below(z: float) -> float:
    """P(normal number < z)."""
    return 0.5 * math.erfc(-z * ROOT_HALF)


def log_normal_below(z: float) -> float:
    """Logarithm of P(normal number < z), cut where that is smaller than a float holds."""
    return math.log(max(1e-300, 0.5 * math.erfc(-z * ROOT_HALF)))


def poisson_above(x: float, mean: float) -> float:
    """P(a Poisson number with this mean > x), smooth in x; 1 below 0.

    P(number > x) = P(Gamma(x + 1) < mean), and the cube root of a Gamma number is nearly normal (Wilson and Hilferty
    1931; within 0.02 here).
    """
    if x < 0:
        return 1.0
    if mean <= 0:
        return 0.0
    shape = x + 1
    z = 3 * math.sqrt(shape) * (math.pow(mean / shape, 1 / 3) - 1 + 1 / (9 * shape))
    return 0.5 * math.erfc(-z * ROOT_HALF)


def percentile(survival: Callable[[float], float], share: float, low: float, high: float) -> float:
    """The least t at or above `low` with survival(t) <= 1 - share, for a falling function.

    `high` is a first guess of what is above it.
    """
    target = 1 - share
    at_low = survival(low) - target
    if at_low <= 0:
        return low
    high = max(high, low + 1e-6)
    step = high - low
    at_high = survival(high) - target
    while at_high > 0 and step < 1e9:
        low, at_low, step = high, at_high, step * 2
        high += step
        at_high = survival(high) - target
    return root(lambda t: survival(t) - target, (low, at_low), (high, at_high), TOLERANCE)


def root(
    function: Callable[[float], float], left: tuple[float, float], right: tuple[float, float], tolerance: float
) -> float:
    """Where a function is no longer above 0, to a relative `tolerance`, never less than that.

    `left` and `right`: argument and value, above 0 and not above. False position that halves the weight of an end which
    stays (Illinois), with a bisection each fourth time: a survival function may jump.
    """
    (low, at_low), (high, at_high) = left, right
    side = 0
    for turn in range(ROUNDS):
        width = high - low
        if at_low <= 0 or width <= tolerance * high:
            break
        middle = low + width * at_low / (at_low - at_high) if turn % 4 < 3 else low + width / 2
        # A guess at one end is moved off it, so that the interval closes from both sides.
        beside = min(tolerance * high, width) / 2
        middle = min(max(middle, low + beside), high - beside)
        found = function(middle)
        if found > 0:
            low, at_low = middle, found
            at_high = at_high / 2 if side > 0 else at_high
            side = 1
        else:
            high, at_high = middle, found
            at_low = at_low / 2 if side < 0 else at_low
            side = -1
    return high
