"""A vLLM-like engine, step by step, to hold the closed formulas against: first come, first served, decodes first."""

import random
from collections import deque
from dataclasses import dataclass, field

from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.demand import RequestShape
from firsttoken.planning.timing.step import Decodes, StepModel


@dataclass
class Request:
    """Tokens, and seconds of the simulated clock."""

    arrival: float
    prompt: int
    output: int
    done: int  # prompt tokens in the KV cache
    made: int = 0
    first: float = 0.0
    last: float = 0.0


@dataclass
class Measured:
    """Sorted times of the requests after warm-up, seconds."""

    ttft: list[float] = field(default_factory=list)
    tpot: list[float] = field(default_factory=list)
    running: float = 0.0


def arrivals(shape: RequestShape, rate: float, count: int) -> list[Request]:
    """Poisson, with exactly `rate` on average and exactly the lengths of the shape: less noise for few requests."""
    source = random.Random(1)  # noqa: S311
    shares = [(i + 0.5) / count for i in range(count)]
    prompts = [max(1, round(shape.prompts.quantile(s))) for s in shares]
    outputs = [max(1, round(shape.outputs.quantile(s))) for s in shares]
    source.shuffle(prompts)
    source.shuffle(outputs)
    gaps = [source.expovariate(1) for _ in range(count)]
    scale, now, found = count / sum(gaps) / rate, 0.0, []
    for gap, prompt, output in zip(gaps, prompts, outputs, strict=True):
        now += gap * scale
        found.append(Request(now, prompt, output, shape.prompt_class(1.0, prompt).cached))
    return found


def run(model: StepModel, shape: RequestShape, limits: EngineLimits, rate: float, count: int) -> Measured:
    """`count` requests; the first seventh is warm-up. KV is taken as it is needed, a shared prefix once."""
    requests = arrivals(shape, rate, count)
    waiting: deque[Request] = deque()
    prefilling: list[Request] = []
    decoding: list[Request] = []
    now, busy, coming = 0.0, 0.0, deque(requests)
    while coming or waiting or prefilling or decoding:
        while coming and coming[0].arrival <= now:
            waiting.append(coming.popleft())
        if not (waiting or prefilling or decoding):
            now = coming[0].arrival
            continue
        used = sum(r.prompt + r.made - shape.cached_tokens for r in (*decoding, *prefilling))
        room, chunks = limits.token_budget - len(decoding), []
        while room > 0 and ((prefilling and prefilling[-1].done < prefilling[-1].prompt) or waiting):
            if not prefilling or prefilling[-1].done == prefilling[-1].prompt:
                used += waiting[0].prompt - shape.cached_tokens
                if used > limits.kv_tokens or len(decoding) + len(prefilling) >= limits.max_running:
                    break
                prefilling.append(waiting.popleft())
            one = prefilling[-1]
            size = min(room, one.prompt - one.done)
            chunks.append((one.done, size))
            one.done, room = one.done + size, room - size
        contexts = [r.prompt + r.made for r in decoding]
        step = model.step_seconds(chunks, Decodes(len(contexts), sum(contexts), max(contexts, default=0))).seconds
        now, busy = now + step, busy + step * len(decoding)
        for r in decoding:
            r.made, r.last = r.made + 1, now
        for r in (r for r in prefilling if r.done == r.prompt):
            r.made, r.first, r.last = 1, now, now
        decoding = [r for r in (*decoding, *(p for p in prefilling if p.made)) if r.made < r.output]
        prefilling = [r for r in prefilling if not r.made]
    counted = requests[count // 7 :]
    return Measured(
        sorted(r.first - r.arrival + model.api_seconds(r.prompt) for r in counted),
        sorted((r.last - r.first) / (r.output - 1) for r in counted if r.output > 1),
        busy / now,
    )


def percentile(ordered: list[float], share: float) -> float:
    """Of sorted values."""
    return ordered[int(share * len(ordered))]
