"""Distributions of TTFT and TPOT of one replica at one rate. Times in seconds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from firsttoken.planning.load.curves import EngineLimits, PromptSteps, StepCurves
from firsttoken.planning.load.demand import PromptClass
from firsttoken.planning.load.probability import percentile
from firsttoken.planning.load.steady import DECODE, PREFILL, solve
from firsttoken.planning.load.token_times import TokenTimes
from firsttoken.planning.load.waiting import Waiting, waiting
from firsttoken.planning.types import Percentiles


@dataclass(frozen=True)
class Handover:
    """What a prefill engine's first token waits for: its KV goes to a decode engine, which makes the token."""

    decode_step: float  # seconds of a step there
    link: float | None = None  # bytes/s between the replicas; by default the PCIe of their GPUs


@dataclass(frozen=True)
class _Class:
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

    def __init__(self, wait: Waiting, classes: Sequence[_Class], others: float) -> None:
        """`others`: seconds of work that arrive each second, at most 1."""
        self._wait, self._classes, self._others = wait, classes, others
        self._weight = sum(c.share for c in classes)

    def survival(self, t: float) -> float:
        """P(TTFT > t)."""
        total, more = 0.0, 1 + self._others
        for c in self._classes:
            beyond = t - c.fixed
            if beyond > 0:
                beyond = max(beyond / more, beyond - c.gap)
            total += c.share * self._wait.survival(beyond, c.spread)
        return total / self._weight

    def percentile(self, share: float, low: float = 0.0) -> float:
        """Seconds that `share` of these requests do not exceed, known to be above `low`."""
        longest = max(c.fixed + c.spread / 2 for c in self._classes) + self._wait.step
        return percentile(self.survival, share, low, max(low * 1.2, longest))


class Replica:
    """One replica at one rate."""

    def __init__(
        self, curves: StepCurves, limits: EngineLimits, rate: float, role: str, handover: Handover | None = None
    ) -> None:
        """`curves` are shared between rates."""
        self.curves, self.role, self._handover = curves, role, handover
        held = self._transfer(round(curves.shape.prompts.mean)) if role == PREFILL else 0.0
        self.steady = solve(curves, limits, rate, role, held)
        n = self.steady.running
        self._decode = decode = curves.decode(max(1.0, n)) if n > 0 else 0.0
        self._token = max(0.0, curves.full(n) - decode) / curves.room(n) if role != DECODE else 0.0
        self._steps: dict[PromptClass, PromptSteps] = {}
        self._others = min(1.0, rate * curves.shape.mean_uncached * self._token)

    @cached_property
    def waiting(self) -> Waiting:
        """What every prompt waits."""
        return waiting(self.curves, self.steady, self.steps)

    @cached_property
    def token_times(self) -> TokenTimes:
        """Distribution of TPOT."""
        return TokenTimes(self.curves, self.steady)

    def first_tokens(self, prompts: Sequence[PromptClass]) -> FirstTokens:
        """Distribution of TTFT over these prompts, weighted by their shares."""
        return FirstTokens(self.waiting, [self._class(p) for p in prompts], self._others)

    def steps(self, prompt: PromptClass) -> PromptSteps:
        """A prompt's own steps, alone with the decodes."""
        found = self._steps.get(prompt)
        if found is None:
            found = self._steps[prompt] = self.curves.prompt(prompt, self.steady.running)
        return found

    def prefill(self, prompt: PromptClass) -> float:
        """Seconds of them; a decode engine has none."""
        return 0.0 if self.role == DECODE else self.steps(prompt).seconds

    def ttft(self, prompts: Sequence[PromptClass]) -> Percentiles:
        """Over these prompts, weighted by their shares."""
        return _percentiles(self.first_tokens(prompts).percentile)

    def tpot(self) -> Percentiles:
        """Over requests, each with the mean over its tokens. A prefill engine makes one token, so none."""
        if self.role == PREFILL:
            return Percentiles(0.0, 0.0, 0.0)
        return _percentiles(self.token_times.percentile)

    def queue(self) -> Percentiles:
        """Wait before a prompt's own steps."""
        step = self.waiting.step
        return _percentiles(lambda share, low: percentile(self.waiting.survival, share, low, low + step))

    def _class(self, prompt: PromptClass) -> _Class:
        if self.role == DECODE:
            return _Class(prompt.share, self.steady.tpot, 0.0, 0.0)
        seconds, _, left = self.steps(prompt)
        fixed = self.curves.model.api_seconds(prompt.tokens) + seconds
        if self.role == PREFILL:
            fixed += self._transfer(prompt.tokens) + (self._handover.decode_step if self._handover else 0.0)
        room, token = self.curves.chunk(self.steady.running), self._token * self.curves.stages
        # Within a class prefill is linear in the length. A step has a least time, which its tokens do not add to; over
        # several steps that is part of what a token takes.
        several = min(1.0, max(0.0, prompt.uncached / room - 1))
        spread = prompt.width * (token + several * (seconds / prompt.uncached - token))
        spread = min(spread, 2 * max(0.0, seconds - self._decode))
        return _Class(prompt.share, fixed, spread, left)

    def _transfer(self, tokens: int) -> float:
        return self.curves.model.transfer_seconds(tokens, self._handover.link if self._handover else None)


def _percentiles(find: Callable[[float, float], float]) -> Percentiles:
    """`find` takes a share and a lower bound of the result."""
    p50 = find(0.50, 0.0)
    p95 = find(0.95, p50)
    return Percentiles(p50, p95, find(0.99, p95))
