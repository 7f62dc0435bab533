"""Distribution of what a prompt waits for before its own prefill: the running step, prompts ahead of it, a free place.

Survival functions P(time > t) in closed form, so that a percentile costs microseconds. All times in seconds.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from firsttoken.planning.load.curves import PromptSteps, StepCurves
from firsttoken.planning.load.demand import PromptClass
from firsttoken.planning.load.probability import normal_below
from firsttoken.planning.load.steady import DECODE, MOST_SPREAD, PREFILL, Steady

# A queue that grows without end has no percentile. What it is after so long is given instead, so that predictions stay
# finite and still say how bad it is: a fifth too many requests for ten minutes wait two minutes.
OVERLOAD_SECONDS = 600.0
INSTANT = 1e-9  # seconds
ALWAYS = 0.999  # a probability that counts as 1
LEAST_SLACK = 0.02  # of a resource: closer to its limit a queue takes hours to become what the formulas say
# P(time > t) as a function of t; its constants are worked out once, since a percentile takes a dozen looks.
Survival = Callable[[float], float]


class Tail(NamedTuple):
    """P(wait > t) = share x exp(-(t - shift) / scale) beyond `shift`, and 1 up to it where `shift` is above 0."""

    share: float
    scale: float
    shift: float = 0.0

    def survival(self, t: float) -> float:
        """P(wait > t)."""
        if t < self.shift:
            return 1.0
        return self.share * math.exp((self.shift - t) / self.scale) if self.scale > 0 else 0.0


NO_WAIT = Tail(0.0, 0.0)


class Work(NamedTuple):
    """Prompts of one class that a new prompt may meet, and what they make it wait: anything from `least` to `most`."""

    rate: float  # how many of all that are met, in any unit
    least: float  # seconds
    most: float


@dataclass(frozen=True)
class PromptQueue:
    """Work ahead of a prompt, and work that shares its step.

    An M/G/1 queue (Pollaczek and Khinchine: a geometric number of residual service times) with a gate: who comes while
    decodes run waits for a boundary of their steps, together with all that come meanwhile. With one prompt met the time
    is that prompt's, which long prompts dominate; with more, an exponential, with which the mean is right.
    """

    met: float  # probability of meeting any, at most 1
    work: tuple[Work, ...]
    scale: float  # mean wait behind more than one
    shift: float  # backlog of an overload

    @cached_property
    def _lines(self) -> tuple[list[float], list[tuple[float, float]]]:
        """The sum over the kinds of work as a line from each of their bounds to the next."""
        turns: list[tuple[float, float, float]] = []
        total = sum(w.rate for w in self.work)
        for rate, least, most in self.work:
            share = rate / total
            slope = share / max(most - least, INSTANT)
            turns.append((most, slope * most, slope))
            if least > 0:
                turns.append((least, share - slope * most, -slope))
        turns.sort(reverse=True)
        height = slope = 0.0
        lines = [(0.0, 0.0)]
        for _, more, steeper in turns:
            height, slope = height + more, slope + steeper
            lines.append((height, slope))
        return [end for end, _, _ in reversed(turns)], lines[::-1]

    def after_uniform(self, width: float) -> Survival:
        """P(wait + a time spread evenly over `width` > t)."""
        met, shift, more = self.met, self.shift, self._more(width)
        alone, part = 1 - met, (1 - met) * met / 2
        ends, lines = self._lines
        # Two points stand for the even distribution, exact up to the third moment.
        near, far = 0.2113 * width, 0.7887 * width

        def survival(t: float) -> float:
            t -= shift
            if t <= 0:
                return 1.0
            idle = 1 - t / width if t < width else 0.0
            if not met:
                return idle
            # P(work of a single prompt that is met > time left), at both points.
            one = two = 1.0
            if t > near:
                height, slope = lines[bisect_right(ends, t - near)]
                one = height - slope * (t - near)
            if t > far:
                height, slope = lines[bisect_right(ends, t - far)]
                two = height - slope * (t - far)
            return alone * idle + part * (one + two) + met * met * more(t)

        return survival

    def _more(self, width: float) -> Survival:
        """The same behind more than one, for t above 0."""
        scale = self.scale
        if width <= 0 or not scale:
            return lambda t: math.exp(-t / scale)
        beyond = scale * math.expm1(min(700.0, width / scale)) / width

        def survival(t: float) -> float:
            if t < width:
                return (width - t - scale * math.expm1(-t / scale)) / width
            return beyond * math.exp(-t / scale)

        return survival


class Waiting(NamedTuple):
    """What every prompt waits, whatever its length."""

    step: float  # of decodes only, where any run: the longest that it may still take when a prompt arrives
    ahead: float  # steps that are composed before a prompt is seen
    busy: float  # probability that decodes run
    prompts: PromptQueue
    places: Tail  # running requests and KV

    def survival(self, spread: float = 0.0) -> Survival:
        """P(wait + something even between -spread / 2 and spread / 2 > t).

        Prompts ahead are worked off while there is no place, so the longer of both counts.
        """
        # The sum of two even distributions by one with their mean and variance.
        width = math.hypot(self.step, spread)
        beside, early = self.prompts.after_uniform(width), self.ahead + (self.step - width) / 2
        # Where decodes hardly ever pause, what is when they do is not looked at.
        pause, late = 1 - self.busy, spread / 2
        idle = self.prompts.after_uniform(spread) if self.busy < ALWAYS else None
        place = self.places.survival

        def survival(t: float) -> float:
            above = beside(t - early)
            if idle is not None:
                above += pause * (idle(t + late) - above)
            return 1 - (1 - above) * (1 - place(t)) if t >= 0 else above

        return survival


def waiting(
    curves: StepCurves, steady: Steady, steps: Callable[[PromptClass], PromptSteps], near: float = 1.0
) -> Waiting:
    """Of one engine in a steady state; `steps` of a prompt there. `near`: prompts that come close to another (routers).

    A prompt that finds decodes waits for the end of their step and, with asynchronous scheduling, for the whole next
    one, which is composed already; without any it starts at once.
    """
    step, busy = 0.0, 0.0
    if steady.role != PREFILL and steady.running > 0:
        step, busy = curves.decode(max(1.0, steady.running)) / curves.stages, -math.expm1(-steady.running)
    # Steps in which prompts come that share the one's own, or go into the one before it.
    gate = busy * step * (1 + curves.ahead)
    met = _prompts_met(curves, steady, steps, gate, near)
    return Waiting(step, step * curves.ahead, busy, met, _places(curves, steady))


def _prompts_met(
    curves: StepCurves, steady: Steady, steps: Callable[[PromptClass], PromptSteps], gate: float, near: float
) -> PromptQueue:
    """Service time of a prompt: its share of full steps. `gate`: mean seconds in which all that come wait together.

    Behind a router the queue is that of `near` times the load: for waiting only what comes close to another counts.
    """
    rho = steady.prefill_share
    if steady.role == DECODE or not rho:
        return PromptQueue(0.0, (), 0.0, 0.0)
    shape, full = curves.shape, curves.steps(steady.running).full
    token, chunk = full / curves.room(steady.running), curves.chunk(steady.running)
    beside, served = steady.rate * gate * near, min(1.0, min(1.0, rho) * near)
    rest = 1 - served
    work = []
    for c in shape.prompt_classes:
        # The longest prompts are most of the work that is met in service, so a class counts by its mean square.
        service = _service(steps, c, chunk, token)
        share = served * c.uncached / shape.mean_uncached
        work.append(Work(c.share * share, 0.0, service * c.squares / c.uncached**2))
        if beside:
            part = min(0.5, c.width / 2 / c.uncached)
            work.append(Work(c.share * beside, service * (1 - part), service * (1 + part)))
    mean = sum(w.rate * (w.least + w.most) / 2 for w in work) / (served + beside)
    met = 1 - rest * math.exp(-beside)
    # What makes the mean wait right: one of those met is counted where only one is.
    more = served / max(LEAST_SLACK, rest) + beside
    scale = mean * max(1.0, (more - (1 - met) * met) / met**2)
    return PromptQueue(met, tuple(work), scale, max(0.0, 1 - 1 / rho) * OVERLOAD_SECONDS)


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
        return NO_WAIT
    places = steady.rate * steady.residence / share
    slack = max(LEAST_SLACK, 1 - share)
    spread = steady.spread if share < 1 else MOST_SPREAD
    if steady.kv_share > steady.running_share:
        spread *= context_variation(curves, steady)
    beta = slack * math.sqrt(places / share) / spread
    density = math.exp(-min(700.0, beta * beta / 2)) / math.sqrt(2 * math.pi)
    full = 1 / (1 + beta * normal_below(beta) / density) if density > 0 else 0.0
    scale = steady.residence / (places * slack) * spread * spread
    return Tail(full, scale, max(0.0, 1 - 1 / share) * OVERLOAD_SECONDS)


def context_variation(curves: StepCurves, steady: Steady) -> float:
    """Square root of E[k^2] / E[k]^2, k the KV of a running request: deviation of a Poisson number of such."""
    prompts, outputs = curves.shape.prompts, curves.shape.outputs
    mean = max(1.0, prompts.mean)
    variance = max(0.0, prompts.second_moment - prompts.mean**2)
    if steady.role != PREFILL:
        mean = curves.shape.context
        variance += max(0.0, outputs.second_moment - outputs.mean**2) / 4
    return math.sqrt(1 + variance / mean**2)
