"""Requests for the tests of the load model: drawn once, and the same for formulas, engines and fleets."""

import random
from typing import NamedTuple

from firsttoken.planning.load.demand import RequestShape
from firsttoken.simulation.requests import Requests, requests


class Drawn(NamedTuple):
    """One request. Seconds and tokens."""

    arrival: float
    prompt: int
    output: int
    cached: int  # prompt tokens that are in the prefix cache


def arrivals(shape: RequestShape, rate: float, count: int) -> list[Drawn]:
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
        found.append(Drawn(now, prompt, output, shape.prompt_class(1.0, prompt).cached))
    return found


def simulated(shape: RequestShape, rate: float, count: int) -> Requests:
    """The same for the simulator, where a shared prefix is computed by the first that has it."""
    drawn = arrivals(shape, rate, count)
    shared = [list(range(r.cached // 16)) for r in drawn]
    return requests(
        [r.arrival for r in drawn], [r.prompt for r in drawn], [r.output for r in drawn], block_hashes=shared
    )
