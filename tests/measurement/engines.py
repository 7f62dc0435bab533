"""Simulated engines whose true ratio is known, and the blocks that Prometheus would have of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firsttoken.measurement.blocks import Window
from firsttoken.measurement.contract import bucket_of
from firsttoken.planning.timing.step import StepModel
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.live_fleet import slowed
from firsttoken.simulation.outcome import Outcome
from firsttoken.simulation.requests import Requests, requests
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.step_table import StepTable, step_table
from planning.timing.models import LLAMA_8B, step_model

BOUNDS = (64, 256, 512, 1024, 4096, 16384)
BLOCKS, WARM = 6, 1


@dataclass(frozen=True)
class Case:
    """An engine and its traffic: P50 and P95 of log-normal lengths, a rate, tokens of a prefix that all share."""

    uri: str = LLAMA_8B
    gpu: str = "nvidia-a100-40gb"
    tensor_parallel: int = 1
    budget: int = 2048
    seqs: int = 256
    kv_tokens: int = 150_000
    prompt: tuple[int, int] = (1024, 4096)
    output: tuple[int, int] = (128, 451)
    rate: float = 2.0
    shared: int = 0

    @property
    def model(self) -> StepModel:
        return step_model(self.uri, self.gpu, tensor_parallel=self.tensor_parallel)


@cache
def table(case: Case) -> StepTable:
    return step_table(step_model(case.uri, case.gpu, tensor_parallel=case.tensor_parallel), case.budget, case.seqs)


Arrivals = Callable[[np.random.Generator, int, float], NDArray[np.float64]]  # of so many within some seconds


def at_random(source: np.random.Generator, count: int, seconds: float) -> NDArray[np.float64]:
    return np.sort(source.uniform(0, seconds, count))


def traffic(case: Case, seconds: float, seed: int, arrivals: Arrivals = at_random) -> Requests:
    source = np.random.default_rng(seed)
    count = source.poisson(case.rate * seconds)
    arrival = arrivals(source, count, seconds)

    def lengths(p50: int, p95: int, longest: int) -> Any:
        drawn = np.exp(np.log(p50) + np.log(p95 / p50) / 1.645 * source.standard_normal(count))
        return np.clip(np.rint(drawn), 2, longest).astype(int)

    prompt = np.minimum(lengths(*case.prompt, 16384) + case.shared, 16384)
    hashes = [[*range(case.shared // 16), 1000 + i] for i in range(count)] if case.shared else None
    return requests(arrival, prompt, lengths(*case.output, 8192), block_hashes=hashes)


def simulated(
    case: Case, seconds: float, seed: int, *, prefill: float = 1.0, steps: float = 1.0, arrivals: Arrivals = at_random
) -> Outcome:
    settings = EngineSettings(case.budget, case.seqs, case.kv_tokens // 16)
    clock = slowed(table(case), steps=steps, prefill=prefill)
    return FastEngine(traffic(case, seconds, seed, arrivals), settings, clock, log=2_000_000).run()


def window(case: Case, seconds: float, seed: int, *, arrivals: Arrivals = at_random, **slow: float) -> Window:
    """The last six of seven blocks of `seconds` in all."""
    outcome = simulated(case, seconds, seed, arrivals=arrivals, **slow)
    ends = np.linspace(0, seconds, BLOCKS + WARM + 1)
    blocks = [block(case, outcome, a, b) for a, b in zip(ends[WARM:-1], ends[WARM + 1 :], strict=True)]
    return Window(float(ends[1]), tuple(blocks))


def block(case: Case, outcome: Outcome, start: float, end: float) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}

    def add(name: str, label: str, value: float) -> None:
        found[name, label] = found.get((name, label), 0.0) + float(value)

    given, times = outcome.requests, outcome.times()
    for i in np.flatnonzero((outcome.first > start) & (outcome.first <= end)):
        bucket = bucket_of(int(given.prompt_tokens[i]), BOUNDS)
        add("prefill_seconds", bucket, times["prefill"][i])
        add("prefills", bucket, 1)
        add("prompts", bucket, 1)
        add("prompt_tokens", bucket, given.prompt_tokens[i])
        add("cached_tokens", bucket, outcome.cached[i])
    for i in np.flatnonzero((outcome.finish > start) & (outcome.finish <= end)):
        bucket = bucket_of(int(given.prompt_tokens[i]), BOUNDS)
        if given.output_tokens[i] > 1:
            add("tpot_seconds", bucket, times["tpot"][i])
            add("tpots", bucket, 1)
        add("kv_tokens", bucket, given.prompt_tokens[i] + given.output_tokens[i] - 1)
        add("kv_requests", bucket, 1)
    ended = outcome.steps["start"] + outcome.steps["seconds"]
    log = outcome.steps[(ended > start) & (ended <= end)]
    for phase in ("prefill", "decode"):
        tokens = log[f"{phase}_tokens"]
        add("step_tokens", phase, tokens.sum())
        add("steps", phase, (tokens > 0).sum())
    # As scraped: the state at moments of the clock, not of the steps.
    moments = np.linspace(start, end, 60, endpoint=False)
    first, last = outcome.first[:, None], outcome.finish[:, None]
    add("running", "decode", ((first <= moments) & (last > moments)).sum() / len(moments))
    add("preemptions", "", 0)
    for name, value in (("budget", case.budget), ("generation", 1)):
        add(f"least_{name}", "", value)
        add(f"most_{name}", "", value)
    add("resets", "", 0)
    add("engines", "", 1)
    return found
