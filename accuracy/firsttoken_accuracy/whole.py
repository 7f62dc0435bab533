"""Whole prefills and decode steps that were measured on real engines, each with how to predict it."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.models import model_facts
from firsttoken.planning.timing.device import Device
from firsttoken.planning.timing.efficiency import build
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import ModelFacts
from firsttoken_accuracy.tables import DATA, device, rows

Table = Mapping[str, Any]  # a parsed efficiency.yaml


@dataclass(frozen=True)
class Run:
    """One measured time. `predict` gives seconds for a table of efficiencies."""

    source: str
    phase: str  # prefill, decode
    system: str
    label: str
    seconds: float
    predict: Callable[[Table], float]
    fold: int = 0  # part that is kept out together; 0 is kept out of the shipped fit
    note: str = ""  # why it is shown but not counted

    @property
    def out(self) -> bool:
        """Whether the shipped fit never saw it."""
        return self.fold == 0


def facts(uri: str) -> ModelFacts:
    """Of a model in the product's catalogue."""
    found = model_facts(ModelSpec.model_validate({"uri": f"hf://{uri}"}))
    if not isinstance(found, ModelFacts):
        raise TypeError(found.message)
    return found


def model(shape: ModelFacts, system: str, table: Table, **options: Any) -> StepModel:
    """A StepModel with the efficiencies of `table`; kept as long as the same table is asked for."""
    if _CACHE.table is not table:
        _CACHE.table, _CACHE.models = table, {}
    key = (shape, system, tuple(sorted(options.items())))
    if key not in _CACHE.models:
        gpu: Device = device(system)
        _CACHE.models[key] = StepModel(shape, gpu, found=build(table, gpu), **options)
    return _CACHE.models[key]


class _Cache:
    """Models of the last table: a fit asks for thousands of tables, one after another."""

    def __init__(self) -> None:
        self.table: Table | None = None
        self.models: dict[object, StepModel] = {}


_CACHE = _Cache()
LLAMA_8B = "meta-llama/Llama-3.1-8B"


def dense(
    name: str, parameters: int, *, hidden: int, layers: int, heads: int, width: int, vocabulary: int
) -> ModelFacts:
    """A decoder with as many KV heads as heads and a plain feed-forward layer (OPT, BLOOM)."""
    return ModelFacts(
        name,
        parameters,
        hidden,
        layers,
        heads,
        heads,
        hidden // heads,
        width,
        vocabulary,
        2048,
        tie_word_embeddings=True,
    )


OPT_13B = dense("opt-13b", 12_853_473_280, hidden=5120, layers=40, heads=40, width=20480, vocabulary=50272)
OPT_66B = dense("opt-66b", 65_718_000_000, hidden=9216, layers=64, heads=72, width=36864, vocabulary=50272)
BLOOM = dense("bloom-176b", 176_247_271_424, hidden=14336, layers=70, heads=112, width=57344, vocabulary=250880)


def published() -> Iterator[Run]:
    """published.csv: what a paper or post says of one prefill or one decode step alone."""
    source = "vLLM blog 2026-04-22, Llama-3.1-8B, batch 1"
    shape = facts(LLAMA_8B)
    lines = (
        ("h100_sxm", "auto", 6.44, 4.37e-5),
        ("h100_sxm", "fp8", 6.58, 2.37e-5),
        ("b200_sxm", "auto", 3.93, 1.8e-5),
    )
    for system, kv, start, slope in lines:
        for context in (1024, 16384, 65536):

            def decode(table: Table, system: str = system, kv: str = kv, context: int = context) -> float:
                return model(shape, system, table, kv_cache_dtype=kv).decode_seconds(1, context)

            seconds = (start + slope * context) / 1e3
            yield Run(source, "decode", system, f"KV {kv}, context {context}", seconds, decode)
    source = "vLLM blog 2026-04-22, Llama-3.1-8B, 8 clients"
    for kv, ms in (("auto", 15.18), ("fp8", 12.93)):

        def median(table: Table, kv: str = kv) -> float:
            return model(shape, "h100_sxm", table, kv_cache_dtype=kv).decode_seconds(8, 21_000)

        yield Run(source, "decode", "h100_sxm", f"KV {kv}, 20k+2k, median ITL", ms / 1e3, median)


OLD = "an engine of 2023 or early 2024: other kernels (no FlashAttention 2 or 3, first CUDA libraries for H100)"


def distserve() -> Iterator[Run]:
    source = "DistServe repo, prefill of one prompt (C++ engine)"
    figures = (
        (OPT_13B, 1, 512, 72.15), (OPT_13B, 1, 1024, 129.93), (OPT_13B, 1, 2048, 256.69), (OPT_13B, 2, 512, 50.5),
        (OPT_13B, 2, 1024, 87.53), (OPT_13B, 2, 2048, 165.46), (OPT_13B, 4, 1024, 51.61), (OPT_66B, 4, 2048, 374.3),
        (OPT_66B, 8, 512, 80.95),
    )  # fmt: skip
    for shape, ranks, tokens, ms in figures:

        def prefill(table: Table, shape: ModelFacts = shape, ranks: int = ranks, tokens: int = tokens) -> float:
            return model(shape, "a100_sxm", table, tensor_parallel=ranks).prefill_seconds(tokens)

        yield Run(source, "prefill", "a100_sxm", f"{shape.name} TP{ranks} {tokens}", ms / 1e3, prefill, 0, OLD)


# A prefill no longer than this times the shortest of its configuration is the host's time, not the GPU's.
ABOVE_HOST = 1.25


def splitwise() -> Iterator[Run]:
    """Prefills of one prompt. Decode is CPU-bound in this stack, and so are short prompts: left out by rule."""
    table = [r for r in rows("splitwise_perf_median") if r["batch_size"] == "1" and r["token_size"] == "128"]  # noqa: S105
    table = [r for r in table if not r["hardware"].endswith("-pcap")]  # GPUs with a power cap: another device
    shapes = {"llama2-70b": facts("meta-llama/Llama-2-70b-hf"), "bloom-176b": BLOOM}
    systems = {"a100-80gb": "a100_sxm", "h100-80gb": "h100_sxm"}
    shortest: dict[tuple[str, ...], float] = {}
    for r in table:
        key = (r["model"], r["hardware"], r["tensor_parallel"])
        shortest[key] = min(shortest.get(key, 1e9), float(r["prompt_time"]))
    for r in table:
        key = (r["model"], r["hardware"], r["tensor_parallel"])
        if float(r["prompt_time"]) < ABOVE_HOST * shortest[key]:
            continue
        shape, system, ranks, tokens = shapes[key[0]], systems[key[1]], int(key[2]), int(r["prompt_size"])

        def prefill(
            table: Table, shape: ModelFacts = shape, system: str = system, ranks: int = ranks, tokens: int = tokens
        ) -> float:
            return model(shape, system, table, tensor_parallel=ranks, tiled=shape is not BLOOM).prefill_seconds(
                tokens, token_budget=tokens
            )

        label = f"{shape.name} TP{ranks} {tokens}"
        yield Run("splitwise-sim, one prompt", "prefill", system, label, float(r["prompt_time"]) / 1e3, prefill, 0, OLD)


@dataclass(frozen=True)
class Request:
    """A request of LLMServingSim's record of a real vLLM 0.19; seconds of one clock."""

    prompt: int
    output: int
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
SAME_CALL = 5e-3  # seconds: one call of the scheduler stamps all requests it takes within this


def requests(system: str) -> list[Request]:
    """In the order of their first schedule."""
    name = f"llmservingsim_vllm0.19_{RECORDS[system]}_Llama-3.1-8B_requests.jsonl"
    found = []
    for line in (DATA / name).read_text().splitlines():
        r = json.loads(line)
        found.append(
            Request(r["input_toks"], r["output_toks"], r["scheduled_ts"], r["first_token_ts"], r["last_token_ts"])
        )
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
    ends = sorted({r.first for r in everyone})
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
        # Faster than the peak allows: its prompt was partly in the prefix cache, which the record does not say.
        flops = 2 * (shape.parameters - shape.embedding_parameters) * sum(c for _, c in chunks)
        if flops / (end - begin) < device(system).flops:
            note = NOT_LISTED if system == "rtx4090" else ""
            yield Run("LLMServingSim record, steps with prompts", "prefill", system, label, end - begin, step, 0, note)


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
        yield Run("LLMServingSim record, decode tail", "decode", system, f"{steps:.0f} steps", seconds, mean, 0, note)
