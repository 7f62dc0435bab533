"""Distribution of what a prompt waits for before its own prefill: the running step, prompts ahead of it, a free place.

Survival functions P(time > t) in closed form, so that a percentile costs microseconds. All times in seconds.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from firsttoken.planning.load.curves import PromptSteps, StepCurves
from firsttoken.planning.load.demand import PromptClass
from firsttoken.planning.load.probability import normal_below
from firsttoken.planning.load.steady import DECODE, MOST_SPREAD, PREFILL, Steady

# A queue that grows without end has no percentile. What it is after so long is given instead, so that predictions stay
# finite and still say how bad it is: a fifth too many requests for ten minutes wait two minutes.
OVERLOAD_SECONDS = 600.0
LEAST_SLACK = 0.02  # of a resource: closer to its limit a queue takes hours to become what the formulas say


@dataclass(frozen=True)
class Tail:
    """P(wait > t) = share x exp(-(t - shift) / scale) beyond `shift`, and 1 up to it where `shift` is above 0."""

    share: float
    scale: float
    shift: float = 0.0

    def survival(self, t: float) -> float:
        """P(wait > t)."""
        if t < self.shift:
            return 1.0
        return self.share * math.exp((self.shift - t) / self.scale) if self.scale > 0 else 0.0


@dataclass(frozen=True)
class PromptQueue:
    """Work ahead of a prompt: an M/G/1 queue whose service time is one of a few lengths.

    Pollaczek and Khinchine: the wait is a geometric number (rho) of residual service times. With one of them it is
    that, which long prompts dominate; with more, an exponential with their mean.
    """

    rho: float  # at most 1
    residuals: tuple[tuple[float, float], ...]  # P(the prompt in service is one of these), its service time
    scale: float  # mean wait behind more than one
    shift: float  # backlog of an overload

    def residual(self, t: float) -> float:
        """P(residual service > t): a service time seen at a random moment has an even distribution behind it."""
        if t <= 0:
            return 1.0
        ends, lines = self._lines
        height, slope = lines[bisect_right(ends, t)]
        return height - slope * t

    @cached_property
    def _lines(self) -> tuple[list[float], list[tuple[float, float]]]:
        """The sum over service times x above t of P(x) (1 - t / x) as a line from each service time to the next."""
        ordered = sorted(self.residuals, key=lambda r: r[1], reverse=True)
        height = slope = 0.0
        lines = [(0.0, 0.0)]
        for share, service in ordered:
            height, slope = height + share, slope + share / service
            lines.append((height, slope))
        return [service for _, service in reversed(ordered)], lines[::-1]

    def after_uniform(self, t: float, width: float) -> float:
        """P(wait + a time spread evenly over `width` > t)."""
        t -= self.shift
        if t <= 0:
            return 1.0
        rho, idle = self.rho, max(0.0, 1 - t / width) if width > 0 else 0.0
        if not rho:
            return idle
        # Two points stand for the even distribution, exact up to the third moment.
        one = (self.residual(t - 0.2113 * width) + self.residual(t - 0.7887 * width)) / 2
        return (1 - rho) * (idle + rho * one) + rho * rho * self._more(t, width)

    def _more(self, t: float, width: float) -> float:
        scale = self.scale
        if width <= 0:
            return math.exp(-t / scale)
        if t < width:
            return (width - t - scale * math.expm1(-t / scale)) / width
        return scale * math.exp(-t / scale) * math.expm1(min(700.0, width / scale)) / width


@dataclass(frozen=True)
class Waiting:
    """What every prompt waits, whatever its length."""

    step: float  # the longest a decode step may still run when a prompt arrives
    prompts: PromptQueue
    places: Tail  # running requests and KV

    def survival(self, t: float, spread: float = 0.0) -> float:
        """P(wait + something even between -spread / 2 and spread / 2 > t).

        Prompts ahead are worked off while there is no place, so the longer of both counts.
        """
        # The sum of two even distributions by one with their mean and variance.
        width = math.hypot(self.step, spread)
        clear = 1 - self.prompts.after_uniform(t - (self.step - width) / 2, width)
        return 1 - clear * (1 - self.places.survival(t)) if t >= 0 else 1 - clear


def waiting(curves: StepCurves, steady: Steady, steps: Callable[[PromptClass], PromptSteps]) -> Waiting:
    """Of one engine in a steady state; `steps` of a prompt there."""
    return Waiting(_running_step(curves, steady), _prompts_ahead(curves, steady, steps), _places(curves, steady))


def _running_step(curves: StepCurves, steady: Steady) -> float:
    """A prompt that finds decodes waits for the end of their step; without any it starts at once."""
    if steady.role == PREFILL or steady.running <= 0:
        return 0.0
    return curves.decode(max(1.0, steady.running)) / curves.stages * -math.expm1(-steady.running)


def _prompts_ahead(curves: StepCurves, steady: Steady, steps: Callable[[PromptClass], PromptSteps]) -> PromptQueue:
    """Service time of a prompt: its share of full steps."""
    rho = steady.prefill_share
    if steady.role == DECODE or not rho:
        return PromptQueue(0.0, (), 0.0, 0.0)
    shape, token = curves.shape, curves.full(steady.running) / curves.room(steady.running)
    # The longest prompts are most of the work that is met, so a class counts by its mean square.
    residuals = tuple(
        (
            c.share * c.uncached / shape.mean_uncached,
            _service(steps, c, curves.chunk(steady.running), token) * c.squares / c.uncached**2,
        )
        for c in shape.prompt_classes
    )
    mean = sum(p * x for p, x in residuals) / 2
    scale = mean * (1 + 1 / max(LEAST_SLACK, 1 - rho))
    return PromptQueue(min(1.0, rho), residuals, scale, max(0.0, 1 - 1 / rho) * OVERLOAD_SECONDS)


def _service(steps: Callable[[PromptClass], PromptSteps], prompt: PromptClass, chunk: float, token: float) -> float:
    """A prompt's share of full steps, seconds; of a long one, whose attention costs more than the average, its own."""
    count = prompt.uncached / chunk
    if count <= 1:
        return prompt.uncached * token
    return max(steps(prompt).occupied * count / math.ceil(count), prompt.uncached * token)


def _places(curves: StepCurves, steady: Steady) -> Tail:
    """Wait for a place: M/M/c in heavy traffic (Halfin and Whitt 1981), with the scarcer of running requests and KV.

    With beta the free places in standard deviations of those in use, P(wait > 0) is
    1 / (1 + beta F(beta) / f(beta)); the wait is exponential with the mean time between departures over the slack.
    KV is in use by requests of different length, so its deviation is larger by their coefficient of variation.
    """
    share = max(steady.running_share, steady.kv_share)
    if not share or not steady.residence:
        return Tail(0.0, 0.0)
    places = steady.rate * steady.residence / share
    slack = max(LEAST_SLACK, 1 - share)
    spread = steady.spread if share < 1 else MOST_SPREAD
    if steady.kv_share > steady.running_share:
        spread *= _variation(curves, steady)
    beta = slack * math.sqrt(places / share) / spread
    density = math.exp(-min(700.0, beta * beta / 2)) / math.sqrt(2 * math.pi)
    full = 1 / (1 + beta * normal_below(beta) / density) if density > 0 else 0.0
    scale = steady.residence / (places * slack) * spread * spread
    return Tail(full, scale, max(0.0, 1 - 1 / share) * OVERLOAD_SECONDS)


def _variation(curves: StepCurves, steady: Steady) -> float:
    """Square root of E[k^2] / E[k]^2, k the KV of a running request: deviation of a Poisson number of such."""
    prompts, outputs = curves.shape.prompts, curves.shape.outputs
    mean = max(1.0, prompts.mean)
    variance = max(0.0, prompts.second_moment - prompts.mean**2)
    if steady.role != PREFILL:
        mean = curves.shape.context
        variance += max(0.0, outputs.second_moment - outputs.mean**2) / 4
    return math.sqrt(1 + variance / mean**2)
