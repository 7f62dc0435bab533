"""LLMServingSim's records of a real vLLM, request by request: its steps with prompts, and its decodes."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from firsttoken_accuracy.tables import DATA, device
from firsttoken_accuracy.whole import LLAMA_8B, Run, Table, facts, model


@dataclass(frozen=True)
class Request:
    """A request of LLMServingSim's record of a real vLLM 0.19; seconds of one clock."""

    prompt: int
    output: int
    arrival: float  # left the client; a wall clock that `requests` moves to the engine's
    scheduled: float
    first: float
    last: float

    def context_at(self, now: float) -> int:
        """Tokens of context of this decoding request, its tokens spread evenly over its time."""
        share = (now - self.first) / max(1e-9, self.last - self.first)
        return self.prompt + 1 + int(share * (self.output - 1))


RECORDS = {"rtx4090": "RTX4090", "rtx_pro_6000_server": "RTXPRO6000"}
BUDGET = 2048  # max_num_batched_tokens of both runs


NOT_LISTED = (
    "a consumer card, in no catalogue: half the FP32-accumulating rate of the L40S's chip, and no power limit near"
)
MAY_HIT = (
    "LLMServingSim's replay of the same tokens counts hits of the prefix cache around then, and the record does not "
    "say in which request"
)
# Prompts are turns of conversations (ShareGPT), and 7.6 % of their tokens were in the prefix cache. Seconds from the
# first arrival in which that replay counts hits (bench/examples/RTXPRO6000/Llama-3.1-8B/outputs/sim.log of its
# repository), each named by its end; its clock is behind the record's by half a second at most.
HIT_SECONDS = {
    "rtx_pro_6000_server": frozenset((5, 7, 8, 9, 11, 15, 20, 23, 24, 26, 27, 28, 30, 31, 32, 33, 34, 41, 45, 46, 48))
}
CLOCKS_APART = 0.5
SAME_CALL = 5e-3  # seconds: one call of the scheduler stamps all requests it takes within this


def requests(system: str) -> list[Request]:
    """In the order of their first schedule."""
    name = f"llmservingsim_vllm0.19_{RECORDS[system]}_Llama-3.1-8B_requests.jsonl"
    given = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
    # The clocks differ by a constant, and no request reaches the engine before it has left: the least difference is it.
    offset = min(r["queued_ts"] - r["arrival_time"] for r in given)
    found = [
        Request(
            r["input_toks"], r["output_toks"], r["arrival_time"] + offset, r["scheduled_ts"], r["first_token_ts"],
            r["last_token_ts"],
        )
        for r in given
    ]  # fmt: skip
    return sorted(found, key=lambda r: (r.scheduled, r.first))


def recorded() -> Iterator[Run]:
    """LLMServingSim's runs: steps with prompts, and how long decodes took between them."""
    for system in RECORDS:
        everyone = requests(system)
        yield from _steps_with_prompts(system, everyone)
        yield from _decodes(system, everyone)


def _steps_with_prompts(system: str, everyone: list[Request]) -> Iterator[Run]:
    """Steps with whole prompts, each directly after another step with prompts, so both of its ends are known.

    First tokens come out at the end of a step. With asynchronous scheduling a prompt is scheduled while the step before
    runs: scheduled before that step's end means that no other step lies between.
    """
    shape = facts(LLAMA_8B)
    ends, start = sorted({r.first for r in everyone}), min(r.arrival for r in everyone)
    for begin, end in pairwise(ends):
        prompts = [r for r in everyone if r.first == end]
        running = [r for r in everyone if r.first <= begin and r.last > begin]
        total = sum(r.prompt for r in prompts) + len(running)
        called = min(r.scheduled for r in prompts)
        direct = max(r.scheduled for r in prompts) - called < SAME_CALL and called < begin - SAME_CALL
        # Scheduled by the same call of the scheduler, but with its first token later: a part of it was in the step too.
        # Scheduled by the call before: a part of it, or of these prompts, was in the step before.
        partial = any(r.first > end and r.scheduled < called + SAME_CALL for r in everyone)
        if not direct or partial or total > BUDGET or _may_overflow(begin, called, everyone):
            continue
        contexts = tuple(r.context_at(begin) for r in running)
        chunks = tuple((0, r.prompt) for r in prompts)

        def step(
            table: Table, chunks: tuple[tuple[int, int], ...] = chunks, contexts: tuple[int, ...] = contexts
        ) -> float:
            return model(shape, system, table).step_seconds(chunks, contexts).seconds

        label = f"{sum(c for _, c in chunks)} prompt tokens beside {len(contexts)} decodes"
        # Faster than the peak allows: its prompt was partly in the prefix cache, whatever the replay says.
        flops = 2 * (shape.parameters - shape.embedding_parameters) * sum(c for _, c in chunks)
        if flops / (end - begin) < device(system).flops:
            note = NOT_LISTED if system == "rtx4090" else MAY_HIT if _may_hit(system, end - start) else ""
            yield Run(
                "LLMServingSim record, steps with prompts", "prefill", system, label, end - begin, step, note=note
            )


def _may_hit(system: str, seconds: float) -> bool:
    """Whether a step that ended then, after the first arrival, may have found a part of its prompts in the cache."""
    return bool({ceil(seconds - CLOCKS_APART), ceil(seconds)} & HIT_SECONDS.get(system, frozenset()))


def _may_overflow(end: float, called: float, everyone: list[Request]) -> bool:
    """Whether the step that ended at `end` may hold a part of prompts that were scheduled at `called`.

    It holds none if all its own prompts are whole, came by one call before `called`, and left room in the budget.
    """
    prompts = [r for r in everyone if r.first == end]
    calls = [r.scheduled for r in prompts]
    running = sum(r.first < end < r.last for r in everyone)
    whole = max(calls) - min(calls) < SAME_CALL and sum(r.prompt for r in prompts) + running < BUDGET
    return not whole or max(calls) > called - SAME_CALL


def _decodes(system: str, everyone: list[Request]) -> Iterator[Run]:
    """Mean step of the tail in which nothing is scheduled any more, from one finish to a later one."""
    shape = facts(LLAMA_8B)
    start = max(r.first for r in everyone)
    tail = sorted((r for r in everyone if r.last > start), key=lambda r: r.last)
    edges = [start, *(r.last for r in tail)]
    # A request that got its first token at `start` gets one more each step: it counts the steps to its end.
    for request in (r for r in tail if r.first == start and r.output > 1):
        pieces = [(a, b) for a, b in pairwise(edges) if a < b <= request.last]
        steps = request.output - 1

        def mean(table: Table, pieces: list[tuple[float, float]] = pieces) -> float:
            found, predicted = model(shape, system, table), 0.0
            for a, b in pieces:
                middle = (a + b) / 2
                contexts = [r.context_at(middle) for r in tail if r.last > middle]
                predicted += (b - a) / found.step_seconds((), contexts).seconds
            return (pieces[-1][1] - start) / predicted

        seconds = (request.last - start) / steps
        note = NOT_LISTED if system == "rtx4090" else ""
        yield Run("LLMServingSim record, decode tail", "decode", system, f"{steps:.0f} steps", seconds, mean, note=note)
