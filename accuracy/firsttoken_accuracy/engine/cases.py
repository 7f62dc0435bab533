"""The cases: two token budgets, prefix caching on and off, three loads; each played for real and simulated."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firsttoken.planning.timing.step import StepModel
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.outcome import Outcome
from firsttoken.simulation.quantiles import quantile
from firsttoken.simulation.requests import Requests, requests
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.step_table import StepTable, step_table
from firsttoken_accuracy.engine.client import Answer, Ask, play
from firsttoken_accuracy.engine.idle import Row, pace, text
from firsttoken_accuracy.engine.server import BLOCK_TOKENS, KV_GIB, MODEL, ServerSettings

BUDGETS = (64, 256)
LOADS = (0.3, 0.55, 0.75)  # of what the simulated engine carries
REQUESTS = 100
MAX_NUM_SEQS = 16
# Prompts begin with one of four texts, which is a third of them on average; outputs as in a short chat.
FAMILIES, SHARED = 4, 192
PROMPTS, OUTPUTS = (200, 900), (8, 64)
KV_TOKEN_BYTES = 4096  # four layers of two KV heads of 64 wide, keys and values in FP32


@dataclass(frozen=True)
class Case:
    """One server under one load."""

    server: ServerSettings
    load: float
    rate: float  # requests/s


@dataclass(frozen=True)
class Work:
    """The same requests as clients send them and as the simulator reads them."""

    asks: tuple[Ask, ...]
    requests: Requests


@dataclass(frozen=True)
class Quantiles:
    """P50 and P95 of one metric, seconds, measured and predicted."""

    metric: str
    percentile: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Result:
    """What a case showed."""

    case: Case
    quantiles: tuple[Quantiles, ...]
    hit_rate: float  # simulated: part of the prompt tokens found in the prefix cache
    pace: float  # of the idle engine around the case: times as long as when it was calibrated


def servers() -> list[ServerSettings]:
    """Every engine that is started; the first is calibrated."""
    return [ServerSettings(budget, MAX_NUM_SEQS, caching) for caching in (False, True) for budget in reversed(BUDGETS)]


def work(rate: float, seed: int, count: int = REQUESTS) -> Work:
    """Poisson arrivals at `rate` a second."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    at, asks, hashes = 0.0, [], []
    for number in range(count):
        at += chance.expovariate(rate)
        length, family = chance.randint(*PROMPTS), chance.randrange(FAMILIES)
        prompt = text(SHARED, family) + text(length - SHARED, 1000 * (seed + 1) + number)
        asks.append(Ask(at, prompt, chance.randint(*OUTPUTS)))
        # Blocks that others share; what no other prompt has needs no hash.
        hashes.append([family * 1000 + i for i in range(SHARED // BLOCK_TOKENS)])
    lengths = [len(a.prompt) for a in asks], [a.tokens for a in asks]
    return Work(tuple(asks), requests([a.at for a in asks], *lengths, block_hashes=hashes, hash_tokens=BLOCK_TOKENS))


def engine(server: ServerSettings, table: StepTable) -> EngineSettings:
    """The server as the simulator starts it."""
    return EngineSettings(
        token_budget=server.token_budget,
        max_num_seqs=server.max_num_seqs,
        kv_blocks=KV_GIB * 2**30 // (KV_TOKEN_BYTES * BLOCK_TOKENS),
        block_tokens=BLOCK_TOKENS,
        prefix_caching=server.prefix_caching,
        schedule_ahead=False,
        stages=table.stages(),
    )


def capacity(server: ServerSettings, model: StepModel) -> float:
    """Requests/s that the simulated engine serves while more wait than it can run."""
    given = work(1e6, 0)
    done = simulate(server, model, given.requests)
    return len(given.asks) / float(np.max(done.finish))


def simulate(server: ServerSettings, model: StepModel, given: Requests) -> Outcome:
    """All of them on one engine."""
    table = step_table(model, server.token_budget, server.max_num_seqs)
    return FastEngine(given, engine(server, table), table).run()


def run(case: Case, port: int, model: StepModel, rows: Sequence[Row], seed: int) -> Result:
    """Play a case for real, and predict it at the pace that the idle engine has before and after."""
    given = work(case.rate, seed)
    before = pace(port, rows, _unseen(seed))
    answers = asyncio.run(play(port, MODEL, given.asks))
    at = (before + pace(port, rows, _unseen(seed) + 1000)) / 2
    # An engine at half the pace is the same engine of which everything is asked twice as fast.
    found = simulate(case.server, model, work(case.rate * at, seed).requests)
    hit = float(found.cached.sum() / given.requests.prompt_tokens.sum())
    return Result(case, tuple(_compare(answers, found, at)), hit, at)


def _unseen(seed: int) -> int:
    """Where the seeds of prompts begin that no case and no other engine's idle run has."""
    return 10_000_000 * (seed + 1)


def _compare(answers: Sequence[Answer], found: Outcome, at: float) -> list[Quantiles]:
    ttft = at * (found.first + found.stages.delivery_seconds - found.arrival)
    tpot = at * (found.finish - found.first) / (found.requests.output_tokens - 1)
    pairs = {"TTFT": ([a.ttft for a in answers], ttft), "TPOT": ([a.tpot for a in answers], tpot)}
    return [
        Quantiles(metric, p, quantile(np.array(measured), p / 100), quantile(predicted, p / 100))
        for metric, (measured, predicted) in pairs.items()
        for p in (50, 95)
    ]
