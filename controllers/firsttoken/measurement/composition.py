"""What engines computed in a window: prompts by length, and the decodes beside them.

Means of one engine, from sums over all engines of a revision's role; nothing of the spec's own assumptions.
"""

import re
from dataclasses import dataclass

from firsttoken.measurement.blocks import Window
from firsttoken.measurement.contract import PHASES

PREFILL, DECODE = PHASES


def is_bucket(name: str) -> bool:
    """Whether it names a prompt-length bucket, such as 64-256 or 16384+."""
    return re.fullmatch(r"[0-9]{1,9}(-[0-9]{1,9}|\+)", name) is not None


@dataclass(frozen=True)
class Prompts:
    """One prompt-length bucket: means in tokens and seconds."""

    bucket: str
    requests: float
    tokens: float
    cached: float

    @property
    def uncached(self) -> float:
        """Tokens to compute; the last one always is."""
        return max(1.0, self.tokens - self.cached)

    @property
    def spread(self) -> float:
        """Half width of evenly spread lengths with this mean, within the bucket."""
        low, _, high = self.bucket.rstrip("+").partition("-")
        above = float(high) - self.tokens if high else self.tokens
        return min(max(0.0, self.tokens - float(low)), max(0.0, above), self.uncached - 1)


@dataclass(frozen=True)
class Composition:
    """One engine's work. Tokens, requests and seconds."""

    prompts: tuple[Prompts, ...]
    budget: float
    prefill_tokens: float  # by the steps, of all engines
    steps: float  # with prompts, for each prompt
    running: float  # requests that decode, at a random moment
    context: float  # of a decode, mean
    output: float  # of a request, mean
    engines: float
    rate: float  # prompts a second of one engine

    @property
    def requests(self) -> float:
        """Prompts that got their first token, of all engines."""
        return sum(p.requests for p in self.prompts)

    @property
    def uncached(self) -> float:
        """Tokens of all these that had to be computed."""
        return sum(p.requests * p.uncached for p in self.prompts)

    @property
    def room(self) -> float:
        """Tokens of prompts in a full step."""
        return max(1.0, self.budget - self.running)


def composition(window: Window) -> Composition:
    """Of all blocks together."""
    prompts = tuple(_prompts(window, b) for b in window.labels("prefills") if window.total("prefills", b) > 0)
    budget, engines = window.extremes("least_budget", "most_budget"), _mean(window, "engines", "")
    seconds, requests = window.seconds * len(window.blocks), sum(p.requests for p in prompts)
    return Composition(
        prompts=prompts,
        budget=budget[1] if budget else 0.0,
        prefill_tokens=window.total("step_tokens", PREFILL),
        steps=window.total("steps", PREFILL) / requests if requests else 0.0,
        running=_mean(window, "running", DECODE),
        context=_context(window),
        output=_output(window),
        engines=engines,
        rate=requests / max(1.0, engines) / seconds,
    )


def _prompts(window: Window, bucket: str) -> Prompts:
    counted = max(1e-9, window.total("prompts", bucket))
    return Prompts(
        bucket,
        window.total("prefills", bucket),
        tokens=window.total("prompt_tokens", bucket) / counted,
        cached=window.total("cached_tokens", bucket) / counted,
    )


def _context(window: Window) -> float:
    """Mean context of a decode. Long outputs are met more often, in proportion to their length."""
    weight = context = 0.0
    for bucket in window.labels("kv_requests"):
        ended, prompts = window.total("kv_requests", bucket), window.total("prompts", bucket)
        if not ended or not prompts:
            continue
        prompt = window.total("prompt_tokens", bucket) / prompts
        output = max(1.0, window.total("kv_tokens", bucket) / ended - prompt)
        weight += ended * output
        context += ended * output * (prompt + output / 2)
    return context / weight if weight else 0.0


def _output(window: Window) -> float:
    ended, kept = _sum(window, "kv_requests"), _sum(window, "kv_tokens")
    prompts, tokens = _sum(window, "prompts"), _sum(window, "prompt_tokens")
    # The last token is never an input, so its KV is not kept.
    return max(1.0, kept / ended - tokens / prompts + 1) if ended and prompts else 1.0


def _sum(window: Window, question: str) -> float:
    return sum(window.total(question, label) for label in window.labels(question))


def _mean(window: Window, question: str, label: str) -> float:
    """Of a gauge."""
    values = [block[question, label] for block in window.blocks if (question, label) in block]
    return sum(values) / len(values) if values else 0.0
