"""`make bench-simulator`: how many requests a second the simulator plays, against how long they really took.

The Azure 2023 conversation trace at its own arrivals, Llama-3.1-8B on one A100, token budget 512, one replica and
four. The whole trace is read from `TRACE=path` (or `--trace`); without it the excerpt that ships with the package is
repeated, and the table says so. `PEERS=1` runs other simulators too. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.memory import BLOCK_TOKENS, EngineLoad, memory_budget
from firsttoken.planning.models import model_facts
from firsttoken.planning.timing.device import device_from_profile
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import ModelFacts
from firsttoken.simulation.compiled import compiled
from firsttoken.simulation.engine import Engine
from firsttoken.simulation.fast import FastEngine, run_until
from firsttoken.simulation.fleet import Fleet
from firsttoken.simulation.fleet_shape import Pool, Replica, Revision, colocated
from firsttoken.simulation.policies import CacheAware, LeastLoaded, PowerOfTwo, RoundRobin
from firsttoken.simulation.requests import Requests
from firsttoken.simulation.results import Summary, summarize
from firsttoken.simulation.settings import EngineSettings, Link
from firsttoken.simulation.step_table import StepTable, step_table
from firsttoken.simulation.stream import play
from firsttoken.simulation.traces import EXCERPTS, excerpt, read_trace
from simulator_peers import peers

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
GPUS = ("nvidia-a100-80gb", "nvidia-a100-40gb")
BUDGET, SEQS, LONGEST = 512, 256, 16384
WHOLE_TRACE = 19_366  # requests
ROUNDS = 5
SIZES = (10_000, 100_000, 1_000_000)
CALLS = 1_000_000
EXACT_REQUESTS = 300


def engine_for(gpu: str) -> tuple[StepTable, EngineSettings]:
    """Clock and settings as the planner would have them."""
    profile, facts = catalogue()[gpu], model_facts(ModelSpec.model_validate({"uri": f"hf://{MODEL}"}))
    assert isinstance(facts, ModelFacts), facts  # noqa: S101
    budget = memory_budget(facts, profile, 1, 1, EngineLoad(BUDGET, SEQS, LONGEST, LONGEST))
    table = step_table(StepModel(facts, device_from_profile(profile)), BUDGET, SEQS)
    blocks = budget.kv_cache_tokens // BLOCK_TOKENS
    return table, EngineSettings(BUDGET, SEQS, blocks, stages=table.stages())


def repeated(given: Requests, count: int) -> Requests:
    """The trace played again and again until there are `count` requests."""
    span = float(given.arrival[-1]) * (1 + 1 / len(given))
    rows = np.arange(count) % len(given)
    found = given.take(rows)
    return Requests(**{**vars(found), "arrival": found.arrival + np.arange(count) // len(given) * span})


def timed(work: Requests, settings: EngineSettings, table: StepTable) -> tuple[float, FastEngine]:
    """Seconds from the requests as columns to all their times, and the engine."""
    started = time.perf_counter()
    engine = FastEngine(work, settings, table)
    engine.run()
    return time.perf_counter() - started, engine


def start_seconds(cache: str) -> dict[str, float]:
    """A new process: seconds to import, and from then to the end of the first short run; `cache`: its directory."""
    code = (
        "import time; a = time.perf_counter(); import simulator as s; b = time.perf_counter(); c = time.process_time();"
        "t, e = s.engine_for(s.GPUS[0]); s.timed(s.repeated(s.excerpt(s.EXCERPTS[0]), 10), e, t);"
        "print(b - a, time.perf_counter() - b, time.process_time() - c)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parent,
        env={**os.environ, "XDG_CACHE_HOME": cache},
    )  # fmt: skip
    imports, first, cpu = (float(word) for word in done.stdout.split())
    return {"import_s": round(imports, 2), "first_run_s": round(first, 2), "first_run_cpu_s": round(cpu, 2)}


def one_replica(work: Requests, settings: EngineSettings, table: StepTable) -> dict[str, Any]:
    """Speed over a few rounds, and what it simulated."""
    cpu = time.process_time()
    rounds = [timed(work, settings, table)[0] for _ in range(ROUNDS)]
    cpu = (time.process_time() - cpu) / ROUNDS
    outcome = timed(work, settings, table)[1].outcome()
    median, found = statistics.median(rounds), summarize(outcome)["all"]
    return {
        "requests": len(work),
        "steps": outcome.totals.steps,
        "median_s": round(median, 3),
        "worst_s": round(max(rounds), 3),
        "requests_per_s": round(len(work) / median),
        "requests_per_cpu_s": round(len(work) / cpu),
        "times_real": round(outcome.totals.end / median),
        "ttft_p50_s": round(found.ttft.p50, 3),
        "ttft_p95_s": round(found.ttft.p95, 3),
        "tpot_p50_ms": round(found.tpot.p50 * 1e3, 1),
        "preemptions": outcome.totals.preemptions,
    }


def four_replicas(work: Requests, settings: EngineSettings, table: StepTable) -> dict[str, Any]:
    """Speed of fleets of four at the same arrivals: colocated by policy, and two prefill beside two decode replicas."""
    two = (Replica(settings, table),) * 2
    # 8 KV heads of 128 numbers of two bytes, keys and values, in 32 layers; 25 GB/s, 2 ms of set-up.
    apart = Revision(Pool(two, CacheAware()), Pool(two, PowerOfTwo()), Link(0.002, 8 * 128 * 2 * 2 * 32 / 25e9))
    fleets = {type(p).__name__: colocated(4, settings, table, p) for p in (RoundRobin(), LeastLoaded(), CacheAware())}
    found = {}
    for name, revision in (*fleets.items(), ("2 prefill + 2 decode", apart)):
        seconds = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            outcome = Fleet(work, [revision]).run()
            seconds.append(time.perf_counter() - started)
        seen = summarize(outcome)["all"]
        found[name] = {
            "requests_per_s": round(len(work) / statistics.median(seconds)),
            "worst_s": round(max(seconds), 3),
            "ttft_p95_s": round(seen.ttft.p95, 3),
        }
    return found


def exact_engine(work: Requests, settings: EngineSettings, table: StepTable) -> dict[str, Any]:
    """The same first requests through the engine in plain Python, for the ratio."""
    some = work.take(np.arange(min(EXACT_REQUESTS, len(work))))
    fast = min(timed(some, settings, table)[0] for _ in range(ROUNDS))
    started = time.perf_counter()
    Engine(some, settings, table).run()
    seconds = time.perf_counter() - started
    return {"requests": len(some), "requests_per_s": round(len(some) / seconds), "ratio": round(seconds / fast)}


def growth(work: Requests, settings: EngineSettings, table: StepTable) -> list[dict[str, Any]]:
    """Time and memory by the number of requests, at an arrival rate that one replica carries."""
    found = []
    for size in SIZES:
        seconds, engine = timed(repeated(work, size), settings, table)
        state = sum(array.nbytes for array in engine.state)
        found.append(
            {
                "requests": size,
                "s": round(seconds, 2),
                "us_a_request": round(1e6 * seconds / size, 1),
                "state_bytes_a_request": round(state / size),
                "process_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    return found


def streamed(work: Requests, settings: EngineSettings, table: StepTable) -> dict[str, Any]:
    """The most requests in blocks, of which only one is in memory, with quantiles within 1 %."""
    span, per_block = float(work.arrival[-1]) * (1 + 1 / len(work)), len(work)
    count = SIZES[-1] // per_block

    def blocks() -> Iterator[Requests]:
        for i in range(count):
            yield Requests(**{**vars(work), "arrival": work.arrival + i * span})

    started, summary = time.perf_counter(), Summary(exact=False)
    totals = play(blocks(), settings, table, summary)
    return {
        "requests": totals.finished,
        "us_a_request": round(1e6 * (time.perf_counter() - started) / totals.finished, 1),
        "process_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def trace(path: str | None) -> tuple[Requests, str]:
    """The whole trace, or the excerpt repeated to its length, and which."""
    if path:
        with Path(path).open(encoding="utf-8") as lines:
            return read_trace(lines, path), Path(path).name
    return repeated(excerpt(EXCERPTS[0]), WHOLE_TRACE), f"{EXCERPTS[0]}, its 1,000 requests repeated (no TRACE given)"


def main() -> None:
    """Print the tables, then the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trace", default=os.environ.get("TRACE") or None)
    work, name = trace(parser.parse_args().trace)
    with tempfile.TemporaryDirectory() as cache:
        start = {"compiling": start_seconds(cache), "compiled": start_seconds(cache)}
    print(f"trace: {name}\n{MODEL}, token budget {BUDGET}")
    print(
        f"first run of a process, after importing: compiling {start['compiling']}, compiled before {start['compiled']}"
    )
    figures: dict[str, Any] = {"trace": name, "start": start, "one_replica": {}}
    for gpu in GPUS:
        table, settings = engine_for(gpu)
        timed(work, settings, table)
        figures["one_replica"][gpu] = one_replica(work, settings, table)
        print(gpu, *(f"{k} {v}" for k, v in figures["one_replica"][gpu].items()), sep="\n  ")
    table, settings = engine_for(GPUS[0])
    figures["four_replicas"] = four_replicas(work, settings, table)
    print("four replicas:", *(f"{k} {v}" for k, v in figures["four_replicas"].items()), sep="\n  ")
    figures["exact_engine"] = exact_engine(work, settings, table)
    print(f"the exact engine in plain Python: {figures['exact_engine']}")
    figures["streamed"] = streamed(work, settings, table)
    print(f"in blocks of {len(work)}: {figures['streamed']}")
    figures["growth"] = growth(work, settings, table)
    print("by number of requests, the trace repeated:")
    for row in figures["growth"]:
        print(" ", *(f"{k} {v}" for k, v in row.items()))
    figures["call_ns"] = call_nanoseconds(settings, table)
    print(f"a call that finds nothing to do yet: {figures['call_ns']} ns from compiled code")
    figures["peers"] = peers(work, BUDGET, SEQS) if os.environ.get("PEERS") else "not asked for (PEERS=1)"
    print("peers:", figures["peers"])
    print(json.dumps(figures))


@compiled
def empty_calls(engine: Any, count: int) -> None:
    """`count` times: go on until half a second, which has passed."""
    for _ in range(count):
        run_until(engine, 0, 0.5)


def call_nanoseconds(settings: EngineSettings, table: StepTable) -> float:
    """What a router in compiled code pays to ask a replica to go on until a time that it has already passed."""
    engine = FastEngine(excerpt(EXCERPTS[0]), settings, table)
    engine.send_all()
    engine.run_until(1.0)
    empty_calls(engine.state, 1)
    started = time.perf_counter()
    empty_calls(engine.state, CALLS)
    return round((time.perf_counter() - started) / CALLS * 1e9, 1)


if __name__ == "__main__":
    main()
