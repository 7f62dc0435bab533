"""The reference case (M8) as simulator settings: one set of parameters, five steps that change what they name.

A 7B model on eight A100-40GB, prompts of 800 to 1500 tokens, outputs of 300 to 500. docs/reference-case.md says why
each parameter is what it is; bench/reference_case.py sets the results beside the published ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.memory import BLOCK_TOKENS, EngineLoad, memory_budget
from firsttoken.planning.timing.device import device_from_profile
from firsttoken.planning.timing.efficiency import efficiencies
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import ModelFacts
from firsttoken.simulation.arrivals import Arrivals
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.fleet import Fleet
from firsttoken.simulation.fleet_outcome import FleetOutcome
from firsttoken.simulation.fleet_shape import colocated
from firsttoken.simulation.outcome import Outcome
from firsttoken.simulation.quantiles import quantile
from firsttoken.simulation.results import BucketSummary, summarize
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.step_table import StepTable, step_table
from firsttoken.simulation.workload import Between, SharedPrefixes, Workload

MODEL, ACCELERATOR, REPLICAS = "meta-llama/Llama-2-7b-hf", "nvidia-a100-40gb", 8
LONGEST = 4096  # the model's own maximum; what each request's KV is reserved at before step 4
PROMPTS, OUTPUTS = Between(800, 1500), Between(300, 500)
# System prompt and document blocks; 512 of 1150 tokens on average leave a little above 40 % of a prompt to the cache.
PREFIXES = SharedPrefixes(512, count=16)
# The one parameter that was set by a published figure, since the article names no load: with it the GPUs are busy 75 %
# of the time at the end.
REQUESTS_PER_SECOND = 1.2
SECONDS, SEED = 3600.0, 1
CHUNK, MOST_RUNNING = 256, 64
# Eager PyTorch: Llama-7B makes 25.5 tokens a second on an A100 whatever it computes, bound by the CPU that launches
# kernels one by one (pytorch.org/blog/accelerating-generative-ai-2).
EAGER_STEP_US = 1e6 / 25.5
# transformers' eager attention, bytes moved for one score: product written (2); scaled (2 + 2); mask added (2 + 2);
# softmax to FP32 (2 + 4); back to 16 bits (4 + 2); read for the product with the values (2).
EAGER_SCORE_BYTES = 24
# At full load: this many clients a replica, each sending its next request at once. More than fit at any step.
CLIENTS, EACH = 64, 12
SAWTOOTH_SECONDS = 1.0


@dataclass(frozen=True)
class Step:
    """What is in place after one step of the case."""

    name: str
    tiled: bool = False
    continuous: bool = False  # and chunks of 256 tokens, on an engine made for it
    prefix_caching: bool = False
    kv_by_need: bool = False


STEPS = (
    Step("baseline"),
    Step("FlashAttention-class kernel", tiled=True),
    Step("chunk 256, continuous batching", tiled=True, continuous=True),
    Step("prefix caching", tiled=True, continuous=True, prefix_caching=True),
    Step("KV by need", tiled=True, continuous=True, prefix_caching=True, kv_by_need=True),
)


@dataclass(frozen=True)
class Built:
    """One step's engine, its clock, and its times, seconds. `places`: requests whose KV fits at the maximum length."""

    settings: EngineSettings
    table: StepTable
    places: int
    attention: float  # part of the prefill of a prompt of the shortest length
    decode_seconds: float  # a step of as many decodes as there are places
    prompts_seconds: float  # the prefill of as many prompts of the longest length, in one step
    chunk_seconds: float  # a step of those decodes and a chunk


@dataclass(frozen=True, eq=False)
class StepResult:
    """Users at the given rate, and one replica at full load."""

    step: Step
    built: Built
    users: BucketSummary
    waiting: float  # part of all TTFT that is queue
    decode_p95: float  # seconds from first to last token
    busy: float  # part of the time with a kernel on a GPU, mean of the replicas
    running: float  # requests at once on a replica at full load, mean
    most_running: int
    rate: float  # requests a second of all replicas at full load
    full_busy: float
    full_ttft_p95: float
    full_compute: NDArray[np.float64]  # part of the dense peak in each second at full load

    @property
    def ttft(self) -> float:
        """P95, seconds."""
        return self.users.ttft.p95

    @property
    def prefill(self) -> float:
        """P95, seconds from the start of a request's first step to its first token."""
        return self.users.times["prefill"].percentiles.p95

    @property
    def swing(self) -> float:
        """Coefficient of variation of matrix-unit utilisation from second to second at full load: the sawtooth."""
        return float(self.full_compute.std() / self.full_compute.mean())


def build(step: Step, facts: ModelFacts, profile: AcceleratorProfileSpec) -> Built:
    """One replica on one GPU after `step`."""
    device = device_from_profile(profile)
    found = efficiencies(device)
    if not step.continuous:
        host = replace(found.host, step_us=EAGER_STEP_US, request_us=0.0, eager_layer_us=0.0)
        found = replace(found, host=host)
    model = StepModel(facts, device, tiled=step.tiled, score_bytes=EAGER_SCORE_BYTES, found=found)
    memory = memory_budget(facts, profile, 1, 1, EngineLoad(2048, MOST_RUNNING, LONGEST, LONGEST))
    places = memory.kv_cache_tokens // LONGEST
    seqs = MOST_RUNNING if step.continuous else places
    budget = CHUNK if step.continuous else places * PROMPTS.high
    table = step_table(model, budget, seqs)
    settings = EngineSettings(
        token_budget=budget, max_num_seqs=seqs, kv_blocks=memory.kv_cache_tokens // BLOCK_TOKENS,
        chunked_prefill=step.continuous, static_batching=not step.continuous, schedule_ahead=step.continuous,
        prefix_caching=step.prefix_caching, reserved_tokens=0 if step.kv_by_need else LONGEST, stages=table.stages(),
    )  # fmt: skip
    return Built(settings, table, places, *_times(model, places))


def _times(model: StepModel, places: int) -> tuple[float, float, float, float]:
    alone = model.step_seconds([(0, PROMPTS.low)])
    attention = alone.attention / (alone.linear + alone.attention + alone.head)
    contexts = [(PROMPTS.low + PROMPTS.high + OUTPUTS.low) // 2] * places
    chunk = [(PROMPTS.low // 2, CHUNK - places)]
    decode = model.step_seconds(decodes=contexts).seconds
    prompts = model.step_seconds([(0, PROMPTS.high)] * places).seconds
    both = model.step_seconds(chunk, contexts).seconds
    return attention, decode, prompts, both


def play(step: Step, built: Built, *, rate: float, seconds: float, seed: int) -> StepResult:
    """Users of the node at `rate` requests a second for `seconds`, and a replica at full load."""
    return StepResult(step, built, **_users(built, rate, seconds, seed), **_full(at_full_load(built, seed)))


def play_again(
    result: StepResult, *, rate: float = REQUESTS_PER_SECOND, seconds: float = SECONDS, seed: int = SEED
) -> StepResult:
    """The same with other users."""
    return replace(result, **_users(result.built, rate, seconds, seed))


def _users(built: Built, rate: float, seconds: float, seed: int) -> dict[str, Any]:
    outcome = at_rate(built, rate, seconds, seed)
    users = summarize(outcome)["all"]
    return {
        "users": users,
        "waiting": users.times["queue"].mean / users.times["ttft"].mean,
        "decode_p95": quantile(outcome.finish - outcome.first, 0.95),
        "busy": busy(outcome),
    }


def at_rate(built: Built, rate: float, seconds: float, seed: int) -> FleetOutcome:
    """All replicas behind a router that takes the smallest load, Poisson arrivals."""
    requests = Workload(PROMPTS, OUTPUTS, Arrivals(rate), PREFIXES).requests(seed, seconds=seconds)
    return Fleet(requests, [colocated(REPLICAS, built.settings, built.table)], seed=seed).run()


def at_full_load(built: Built, seed: int) -> Outcome:
    """One replica whose clients send their next request when the last one has ended."""
    requests = Workload(PROMPTS, OUTPUTS, prefixes=PREFIXES).requests(seed, count=CLIENTS * EACH)
    engine = FastEngine(requests, built.settings, built.table, bins=4096, bin_seconds=SAWTOOTH_SECONDS)
    return engine.run_closed(CLIENTS)


def busy(users: FleetOutcome) -> float:
    """Part of the time with a kernel on a GPU, from 0 to the last step's end, mean of the replicas."""
    end = max(one.totals.end for one in users.replicas)
    return math.fsum(one.totals.gpu_seconds for one in users.replicas) / end / len(users.replicas)


def _full(full: Outcome) -> dict[str, Any]:
    """From start to the last arrival: later nobody waits any more."""
    last = int(np.nanmax(full.arrival) / full.bin_seconds)
    bins, seconds = full.used_bins[:last], last * full.bin_seconds
    return {
        "running": float(bins["running"].sum()) / seconds,
        "most_running": full.totals.peak_running,
        "rate": REPLICAS * int((full.finish <= seconds).sum()) / seconds,
        "full_busy": float(bins["gpu"].sum()) / seconds,
        "full_ttft_p95": quantile(full.ttft, 0.95),
        "full_compute": full.compute[:last],
    }


def play_all(
    facts: ModelFacts, profile: AcceleratorProfileSpec, *, rate: float = REQUESTS_PER_SECOND, seconds: float = SECONDS,
    seed: int = SEED, steps: Sequence[Step] = STEPS,
) -> list[StepResult]:  # fmt: skip
    """Every step under the same requests."""
    return [play(step, build(step, facts, profile), rate=rate, seconds=seconds, seed=seed) for step in steps]
