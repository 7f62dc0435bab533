"""Small random workloads and engines, and running both engines on them."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from firsttoken.planning.timing.step import StepModel
from firsttoken.simulation.engine import Engine
from firsttoken.simulation.engine_rows import Served, Step
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.outcome import Outcome
from firsttoken.simulation.requests import Requests, requests
from firsttoken.simulation.settings import EngineSettings, Stages
from firsttoken.simulation.step_table import StepTable, step_table
from planning.timing.models import DEEPSEEK_LITE, LLAMA_8B, device, facts, step_model

TABLE = step_table(step_model(LLAMA_8B, "nvidia-a100-80gb"), 512, 32)
WINDOWED = StepModel(facts(LLAMA_8B, sliding_window=70), device("nvidia-a100-40gb"), windowed_layers=16)
# Clocks with what the sums of a step can go wrong in: a sliding window, attention without tiles, latent vectors.
TABLES = (
    TABLE,
    step_table(WINDOWED, 512, 32),
    step_table(step_model(LLAMA_8B, "nvidia-a100-40gb", tiled=False, score_bytes=24, async_scheduling=False), 512, 32),
    step_table(step_model(DEEPSEEK_LITE, "nvidia-h200"), 512, 32),
)
COLUMNS = ("arrival", "ready", "queued", "first", "finish", "preempted", "cached")


@st.composite
def workloads(draw: Any, most: int = 40) -> Requests:
    """Up to `most` requests of up to 300 + 120 tokens, in bursts, some with shared prefixes."""
    count = draw(st.integers(1, most))
    source = np.random.Generator(np.random.PCG64(draw(st.integers(0, 2**32))))
    gaps = source.exponential(draw(st.sampled_from([0.001, 0.03, 0.3])), count)
    arrival = np.cumsum(np.where(source.random(count) < draw(st.sampled_from([0.0, 0.5])), 0, gaps))
    prompts = source.integers(1, draw(st.sampled_from([20, 300])), count)
    outputs = source.integers(1, draw(st.sampled_from([2, 30, 120])), count)
    hash_tokens = draw(st.sampled_from([16, 64]))
    hashes = None
    if draw(st.booleans()):
        # Requests of one family share as much of their prompts as both have.
        families = source.integers(0, draw(st.integers(1, 6)), count)
        hashes = [
            [int(f) * 1000 + j for j in range(source.integers(0, -(-int(p) // hash_tokens) + 1))]
            for f, p in zip(families, prompts, strict=True)
        ]
    priority = source.integers(-2, 3, count)
    return requests(arrival, prompts, outputs, priority=priority, block_hashes=hashes, hash_tokens=hash_tokens)


@st.composite
def engines(draw: Any, whole: bool = True) -> EngineSettings:
    """Engines that can serve all of them, most of them short of KV. `whole`: static batches among them."""
    static = whole and draw(st.sampled_from([False, False, True]))
    chunked = not static and draw(st.booleans())
    budget = draw(st.sampled_from([17, 64, 512])) if chunked else 512
    return EngineSettings(
        token_budget=budget,
        max_num_seqs=draw(st.integers(1, min(32, budget))),
        kv_blocks=draw(st.sampled_from([27, 40, 80, 1000])),
        decode_cap=draw(st.sampled_from([0, 3])),
        prefill_share=draw(st.sampled_from([0.0, 0.5])),
        chunked_prefill=chunked,
        long_prefill_threshold=draw(st.sampled_from([0, 0, 10, 50])),
        prefix_caching=not static and draw(st.booleans()),
        priorities=draw(st.booleans()),
        reserved_tokens=420 if static else draw(st.sampled_from([0, 0, 420])),
        full_prompt_fits=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.1])),
        schedule_ahead=draw(st.booleans()),
        static_batching=static,
        stages=draw(st.sampled_from([Stages(), Stages(0.001, 0.002, 1e-4, 0.003)])),
    )


def both(
    given: Requests, settings: EngineSettings, clients: int = 0, table: StepTable = TABLE
) -> tuple[Engine, FastEngine, Outcome]:
    """The exact engine and the compiled one, run to the end, open or closed loop."""
    exact = Engine(given, settings, table)
    fast = FastEngine(given, settings, table, log=100_000, bins=64, bin_seconds=0.05)
    if clients:
        exact.run_closed(clients, 0.01)
        return exact, fast, fast.run_closed(clients, 0.01)
    exact.run()
    return exact, fast, fast.run()


def column(rows: list[Served], name: str) -> list[Any]:
    """Of the exact engine's requests."""
    return [getattr(row, name) for row in rows]


def steps_of(exact: Engine) -> list[tuple[Any, ...]]:
    """What the compiled engine's log keeps of a step."""
    return [_kept(step) for step in exact.steps]


def _kept(step: Step) -> tuple[Any, ...]:
    return (*step[:2], *step[3:])
