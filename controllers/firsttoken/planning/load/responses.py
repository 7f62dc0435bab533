"""Distributions of TTFT and TPOT of one replica at one rate. Times in seconds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from firsttoken.planning.load.curves import EngineLimits, PromptSteps, StepCurves
from firsttoken.planning.load.demand import PromptClass
from firsttoken.planning.load.probability import percentile
from firsttoken.planning.load.routers import ALONE, Router
from firsttoken.planning.load.steady import DECODE, PREFILL, solve
from firsttoken.planning.load.token_times import TokenTimes
from firsttoken.planning.load.waiting import LEAST_SLACK, NO_WAIT, OVERLOAD_SECONDS, Tail, Waiting, waiting
from firsttoken.planning.types import Percentiles

NEVER = 1e-4  # a probability that counts as 0


@dataclass(frozen=True)
class Handover:
    """What a first token waits for after its prefill: the KV goes to a decode engine, which makes it. Seconds.

    The decode engine handles the prompt again, which takes what it took before.
    """

    decode_step: float  # there, at its own batch
    input: float = 0.0  # mean wait for the API server there
    boundaries: float = 0.0  # mean wait for a step there, first to ask for the KV and again when it has come
    uneven: float = 0.0  # width of an even distribution that scatters as much
    queue: float = 0.0  # mean wait for KV of others on the link
    places: Tail = NO_WAIT  # wait for a place or KV there
    set_up: float = 0.0  # of a transfer, at the speed of the decode side
    token: float = 0.0  # of it for each token's KV


class _Class(NamedTuple):
    """Prompts of one class as TTFT sees them."""

    share: float
    fixed: float  # TTFT without any wait
    spread: float  # of it, from the shortest prompt of the class to the longest
    gap: float  # what other prompts may add to the class's last step


class FirstTokens:
    """TTFT of some prompts: what is fixed for their length, and the wait, which also fills their last step.

    That step takes in the prompts that came during the wait w: w x (seconds that prompts add each second), up to a full
    step.
    """

    def __init__(self, wait: Waiting, classes: Sequence[_Class], others: float, places: Tail = NO_WAIT) -> None:
        """`others`: seconds of work that arrive each second, at most 1. `places`: on the decode side of a split."""
        self._classes = [(c.share, c.fixed, c.gap, wait.survival(c.spread)) for c in classes]
        self._weight = sum(c.share for c in classes)
        self._longest = max(c.fixed + c.spread / 2 for c in classes) + wait.step
        self._more = 1 + others
        self._gate, self._places = wait.busy * (wait.ahead + wait.step), places

    def survival(self, t: float) -> float:
        """P(TTFT > t). Who waits for a place on the decode side waits their mean."""
        share, scale, shift = self._places.share, self._places.scale, self._places.shift
        if share < NEVER and not shift:
            return self._above(t)
        return self._above(t - shift) * (1 - share) + self._above(t - shift - scale) * share

    def _above(self, t: float) -> float:
        total, more, gate = 0.0, self._more, self._gate
        for share, fixed, gap, wait in self._classes:
            beyond = t - fixed
            if beyond > gate:
                later = beyond - gate
                slowed, full = later / more, later - gap
                beyond = gate + (slowed if slowed > full else full)
            total += share * wait(beyond)
        return total / self._weight

    def percentile(self, share: float, low: float = 0.0) -> float:
        """Seconds that `share` of these requests do not exceed, known to be above `low`."""
        return percentile(self.survival, share, low, max(low * 1.2, self._longest))


class Replica:
    """One replica at one rate."""

    def __init__(
        self,
        curves: StepCurves,
        limits: EngineLimits,
        rate: float,
        role: str,
        handover: Handover | None = None,
        *,
        router: Router = ALONE,
    ) -> None:
        """`curves` are shared between rates. `router`: what chooses it among its like."""
        self.curves, self.role, self._handover = curves, role, handover
        held = self._moved(round(curves.shape.prompts.mean)) if role == PREFILL else 0.0
        steady = solve(curves, limits, rate, role, held)
        self._near, self._far = router.near(steady.running, steady.prefill_share), router.far
        self.steady = steady._replace(spread=steady.spread * math.sqrt(self._far)) if self._far < 1 else steady
        n = steady.running
        self._decode = decode = curves.decode(max(1.0, n)) if n > 0 else 0.0
        self._token = max(0.0, curves.full(n) - decode) / curves.room(n) if role != DECODE else 0.0
        self._steps: dict[PromptClass, PromptSteps] = {}
        self._input_wait = self._waiting_for_input()
        self._others = min(1.0, min(1.0, self._near) * rate * curves.shape.mean_uncached * self._token)

    @cached_property
    def waiting(self) -> Waiting:
        """What every prompt waits."""
        return waiting(self.curves, self.steady, self.steps, self._near)

    @cached_property
    def token_times(self) -> TokenTimes:
        """Distribution of TPOT."""
        return TokenTimes(self.curves, self.steady, self._near, self._far)

    def first_tokens(self, prompts: Sequence[PromptClass]) -> FirstTokens:
        """Distribution of TTFT over these prompts, weighted by their shares."""
        places = self._handover.places if self._handover else NO_WAIT
        return FirstTokens(self.waiting, [self._class(p) for p in prompts], self._others, places)

    def steps(self, prompt: PromptClass) -> PromptSteps:
        """A prompt's own steps, alone with the decodes."""
        found = self._steps.get(prompt)
        if found is None:
            found = self._steps[prompt] = self.curves.prompt(prompt, self.steady.running)
        return found

    def ttft(self, prompts: Sequence[PromptClass]) -> Percentiles:
        """Over these prompts, weighted by their shares."""
        return _percentiles(self.first_tokens(prompts).percentile)

    def tpot(self) -> Percentiles:
        """Over requests, each with the mean over its tokens. A prefill engine makes one token, so none."""
        if self.role == PREFILL:
            return Percentiles(0.0, 0.0, 0.0)
        return _percentiles(self.token_times.percentile)

    def _class(self, prompt: PromptClass) -> _Class:
        if self.role == DECODE:
            return _Class(prompt.share, self.steady.tpot, 0.0, 0.0)
        seconds, _, left = self.steps(prompt)
        fixed = self._input_wait + self.curves.model.api_seconds(prompt.tokens) + seconds
        if self.role == PREFILL:
            fixed += self._moved(prompt.tokens)
        if self._handover:
            again = self._handover.input + self._handed_over_together() + self.curves.model.api_seconds(prompt.tokens)
            fixed += again + self._handover.decode_step
        room, token = self.curves.chunk(self.steady.running), self._token * self.curves.stages
        # Within a class prefill is linear in the length. A step has a least time, which its tokens do not add to; over
        # several steps that is part of what a token takes.
        several = min(1.0, max(0.0, prompt.uncached / room - 1))
        spread = prompt.width * (token + several * (seconds / prompt.uncached - token))
        spread = min(spread, 2 * max(0.0, seconds - self._decode))
        if self._handover:
            spread = math.hypot(spread, self._handover.uneven)
        return _Class(prompt.share, fixed, spread, left)

    def _waiting_for_input(self) -> float:
        """Mean wait for the API server, seconds: an M/G/1 queue. Of an overload, what it is after ten minutes."""
        share = self.steady.api_share
        mean = self.steady.rate * self.curves.square_api / 2 / max(LEAST_SLACK, 1 - share)
        return mean + max(0.0, 1 - 1 / share if share else 0.0) * OVERLOAD_SECONDS

    def _handed_over_together(self) -> float:
        """Mean wait for the decode side's API server behind prompts that ended in the same prefill step, seconds."""
        arrivals = self.steady.rate * self.curves.steps(0.0).single
        together = arrivals / -math.expm1(-arrivals) if arrivals else 1.0
        most = max(1.0, self.curves.room(0.0) / self.curves.typical)
        return (min(most, together) - 1) / 2 * self.curves.mean_api

    def _moved(self, tokens: int) -> float:
        """Seconds from the end of a prefill until its KV is at a decode engine, and the next step there begins.

        KV goes at the speed of the slower side.
        """
        way, seconds = self._handover, self.curves.model.transfer_seconds(tokens)
        return max(seconds, way.set_up + way.token * tokens) + way.boundaries + way.queue if way else seconds

    def handover(self) -> Handover:
        """What first tokens wait for when this is the decode engine. Transfers to it come one after the other."""
        wait, prompts, move = self.waiting, self.curves.shape.prompts, self.curves.model.transfer_seconds
        set_up = move(0)
        token = (move(round(prompts.mean)) - set_up) / max(1, round(prompts.mean))
        free = max(LEAST_SLACK, 1 - self.steady.rate * token * prompts.mean)
        return Handover(
            decode_step=self.curves.decode(self.steady.running + 1),
            input=self._input_wait,
            boundaries=2 * wait.busy * (wait.ahead + wait.step / 2),
            uneven=math.sqrt(2) * wait.busy * wait.step,
            queue=self.steady.rate * token**2 * prompts.second_moment / 2 / free,
            places=wait.places,
            set_up=set_up,
            token=token,
        )


def _percentiles(find: Callable[[float, float], float]) -> Percentiles:
    """`find` takes a share and a lower bound of the result."""
    p50 = find(0.50, 0.0)
    p95 = find(0.95, p50)
    return Percentiles(p50, p95, find(0.99, p95))
