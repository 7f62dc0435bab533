"""Other simulators on the same requests, each in an environment of its own below the cache directory.

Whole processes are timed, and apart from that the same with ten requests: their start. Vidur's kernel times are a
straight line (vidur_runner.py). What can't be installed or run is named with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from firsttoken.simulation.requests import Requests

# The releases of aisimulate without a date are placeholders that fetch a wheel from elsewhere.
AISIMULATE = "aisimulate==0.13.0.dev202610270000000085"
VIDUR = "vidur==0.0.26"
LIMIT = 900  # seconds
# The model of the bench, by the name under which each ships its shape; Vidur fetches kernel times from a hub besides.
NAMES = {"aisimulate": "meta-llama/Meta-Llama-3.1-8B", "vidur": "meta-llama/Llama-3-8B"}


Run = Callable[[Path, Requests, int, int], None]  # home, requests, token budget, running requests at most


class NotRunError(Exception):
    """Why a peer has no figure, in one line."""


def peers(work: Requests, budget: int, seqs: int) -> dict[str, Any]:
    """Requests a second of each, or why not."""
    runs: dict[str, tuple[str, Run]] = {
        "aisimulate": (AISIMULATE, _aisimulate),
        "vidur": (VIDUR, _vidur),
    }
    found: dict[str, Any] = {}
    for name, (package, run) in runs.items():
        try:
            home = _installed(name, package)
            few = work.take(np.arange(10))
            run(home, few, budget, seqs)  # fills its caches
            start, whole = (_seconds(run, home, some, budget, seqs) for some in (few, work))
            found[name] = {
                "package": package,
                "s": round(whole, 1),
                "start_s": round(start, 1),
                "requests_per_s": round(len(work) / whole),
                "requests_per_s_after_start": round(len(work) / max(whole - start, 1e-3)),
            }
        except NotRunError as reason:
            found[name] = {"package": package, "not_run": str(reason)}
    return found


def _seconds(run: Run, home: Path, work: Requests, budget: int, seqs: int) -> float:
    started = time.perf_counter()
    run(home, work, budget, seqs)
    return time.perf_counter() - started


def _installed(name: str, package: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "firsttoken" / "peers" / name
    stamp = home / ".installed"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != package:
        venv.create(home, with_pip=True)
        _run([str(home / "bin" / "pip"), "install", "--quiet", package], home)
        stamp.write_text(package, encoding="utf-8")
    return home


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise NotRunError(f"{Path(command[0]).name} took more than {LIMIT} s") from None
    if done.returncode:
        words = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise NotRunError(
            f"{Path(command[0]).name} ended with {done.returncode}: {words[-1] if words else 'no output'}"[:300]
        )


def _aisimulate(home: Path, work: Requests, budget: int, seqs: int) -> None:
    """Its vLLM engine, no prefix shared, at the trace's own times."""
    trace, block = home / "trace.jsonl", 512
    number = 0
    with trace.open("w", encoding="utf-8") as file:
        for arrival, prompt, output in zip(work.arrival, work.prompt_tokens, work.output_tokens, strict=True):
            blocks = -(-int(prompt) // block)
            row = {"timestamp": round(1e3 * float(arrival)), "input_length": int(prompt), "output_length": int(output)}
            file.write(json.dumps({**row, "hash_ids": list(range(number, number + blocks))}) + "\n")
            number += blocks
    config = {
        "traffic": {
            "source": {"type": "trace", "paths": [str(trace)], "format": "mooncake"},
            "load": {"type": "trace_timestamps"},
        },
        "engine": {
            "mode": "aggregated",
            "model": NAMES["aisimulate"],
            "hardware": "a100_sxm",
            "backend": "vllm",
            "workers": {"aggregated": {"scheduler": {"max_batched_tokens": budget, "max_sequences": seqs}}},
        },
    }
    (home / "prediction.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    words = ["predict", "--config", "prediction.yaml", "--output-dir", "prediction", "--overwrite"]
    _run([str(home / "bin" / "aisimulate"), *words], home)


def _vidur(home: Path, work: Requests, budget: int, seqs: int) -> None:
    """Sarathi's scheduler, which fills steps up to the budget as vLLM does; see vidur_runner.py for its times."""
    trace = home / "trace.csv"
    rows = zip(work.arrival, work.prompt_tokens, work.output_tokens, strict=True)
    lines = [f"today,{float(a)},{int(p)},{int(o)}" for a, p, o in rows]
    header = "Date,Time,PromptTokenCount,CompletionTokenCount"
    trace.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    options = {
        "replica_config_model_name": NAMES["vidur"],
        "replica_config_device": "a100",
        "replica_scheduler_config_type": "sarathi",
        "sarathi_scheduler_config_batch_size_cap": seqs,
        "sarathi_scheduler_config_chunk_size": budget,
        "request_generator_config_type": "trace_replay",
        "trace_request_generator_config_trace_file": trace,
        "trace_request_generator_config_date": "today",
        "trace_request_generator_config_max_tokens": 16384,
        "execution_time_predictor_config_type": "random_forrest",
        "metrics_config_output_dir": home / "output",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    runner = Path(__file__).with_name("vidur_runner.py")
    switches = ["--no-random_forrest_execution_time_predictor_config_use_native_execution_time_predictor"]
    switches.append("--no-metrics_config_write_metrics")
    _run([str(home / "bin" / "python"), str(runner), *words, *switches], home)


if __name__ == "__main__":
    sys.exit("run bench/simulator.py")
