"""What an idle engine is asked before it is predicted: single prompts of rising length, decodes of rising batch."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken_accuracy.engine.client import Ask, one_by_one, play
from firsttoken_accuracy.engine.server import MODEL
from firsttoken_local.images.tiny_model import LETTERS

PROMPTS = (1, 16, 64, 128, 256, 384, 512, 768, 1024, 1536)
BATCHES = ((1, 64), (1, 512), (1, 1536), (2, 256), (4, 64), (4, 512), (8, 64), (8, 512), (16, 256))  # requests, context
REPEATS = 9
BATCH_REPEATS = 3
DECODED = 48  # tokens of each request of a batch
# What is measured again around each case: rows of the idle run whose times no token budget of the cases changes.
PACED_PROMPTS, PACED_BATCHES = (64,), ((1, 512), (4, 64))


@dataclass(frozen=True)
class Row:
    """One idle measurement: the median over repeats, seconds.

    `first`: time to the first token of a prompt of `tokens`. Else a decode step of `requests` with `tokens` of context.
    """

    first: bool
    requests: int
    tokens: int
    seconds: float


def text(tokens: int, seed: int) -> str:
    """A prompt of that many tokens; another for each seed."""
    letters = LETTERS.decode()
    return "".join(random.Random(seed).choices(letters, k=tokens))  # noqa: S311 - no secret


def warm_up(port: int) -> None:
    """Every length once alone and all at once: what is loaded and compiled on first use is there afterwards."""
    asyncio.run(_warm(port))


def measure(port: int) -> list[Row]:
    """All rows of a warm engine, whose token budget must let the largest batch come together while all decode."""
    return asyncio.run(_rows(port, PROMPTS, BATCHES))


def pace(port: int, rows: Sequence[Row], seed: int) -> float:
    """How many times as long the idle engine takes now as when `rows` were measured; the mean over `PACED_...`.

    A machine that is shared, or that gets hot, has not the same speed for ten minutes. `seed`: prompts not yet seen.
    """
    then = {(r.first, r.requests, r.tokens): r.seconds for r in rows}
    now = asyncio.run(_rows(port, PACED_PROMPTS, PACED_BATCHES, seed))
    return statistics.fmean(r.seconds / then[r.first, r.requests, r.tokens] for r in now)


async def _warm(port: int) -> None:
    asks = [Ask(0.0, text(n, 1_000_000 + n), 4) for n in PROMPTS]
    await one_by_one(port, MODEL, asks)
    await play(port, MODEL, asks * 2)


async def _rows(port: int, lengths: Sequence[int], batches: Sequence[tuple[int, int]], seed: int = 0) -> list[Row]:
    rows = []
    for length in lengths:
        seed += REPEATS
        asks = [Ask(0.0, text(length, seed + i), 1) for i in range(REPEATS)]
        answers = await one_by_one(port, MODEL, asks)
        rows.append(Row(True, 1, length, statistics.median(a.ttft for a in answers)))
    for requests, context in batches:
        seed += requests
        prompts = [text(max(1, context - DECODED // 2), seed + i) for i in range(requests)]
        rows.append(Row(False, requests, context, await _step(port, prompts)))
    return rows


async def _step(port: int, prompts: Sequence[str]) -> float:
    """Seconds of a step in which all of them decode: from the last one's first token until the first one ends.

    The mean of that time, since a client that is kept waiting sees several tokens at once; the median over repeats.
    """
    found = []
    for _ in range(BATCH_REPEATS):
        answers = await play(port, MODEL, [Ask(0.0, prompt, DECODED) for prompt in prompts])
        begin, end = max(a.came[0] for a in answers), min(a.came[-1] for a in answers)
        both = [[t for t in a.came if begin <= t <= end] for a in answers]
        found += [(times[-1] - times[0]) / (len(times) - 1) for times in both if len(times) > DECODED // 2]
    return statistics.median(found)
