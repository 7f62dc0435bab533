"""`make bench-plan`: how long a plan takes, with predictions and (as the yardstick of the same run) without.

No simulation yet: every figure is of the analytic model. The last line is JSON.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.plan import fits, make_plan

ROUNDS = 15
CHAT = {"profile": "Chat"}
LONG = {
    "profile": "Summarization",
    "promptTokens": {"p50": 24000, "p95": 32000},
    "outputTokens": {"p50": 150, "p95": 200},
}
QA = {
    "profile": "KnowledgeQA",
    "promptTokens": {"p50": 1150, "p95": 1500},
    "outputTokens": {"p50": 400, "p95": 500},
    "requestsPerSecond": 20,
}
CASES: dict[str, dict[str, Any]] = {
    "7B on 8 x A100-40, 20 requests/s": {
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "on": ("nvidia-a100-40gb", 8),
        "workload": QA,
    },
    "70B on 8 x H100": {"model": "meta-llama/Llama-3.1-70B-Instruct", "on": ("nvidia-h100-80gb", 8), "workload": CHAT},
    "DeepSeek-V3 on 16 x H200": {"model": "deepseek-ai/DeepSeek-V3", "on": ("nvidia-h200", 16), "workload": CHAT},
    "8B on 8 x H100, 32k prompts": {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "on": ("nvidia-h100-80gb", 8),
        "workload": LONG,
    },
    "the same, split": {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "on": ("nvidia-h100-80gb", 8),
        "workload": LONG,
        "layout": {"mode": "Disaggregated"},
    },
    "70B on 4 x A100-40 (infeasible)": {
        "model": "meta-llama/Llama-3.1-70B-Instruct",
        "on": ("nvidia-a100-40gb", 4),
        "workload": CHAT,
    },
}


def spec_of(case: dict[str, Any]) -> InferenceServiceSpec:
    """The case as a user writes it."""
    device, count = case["on"]
    document = {"model": {"uri": f"hf://{case['model']}"}, "accelerator": {"type": device, "maxCount": count}}
    return InferenceServiceSpec.model_validate(
        {**document, "workload": case["workload"], "layout": case.get("layout", {})}
    )


def milliseconds(work: Callable[[], object]) -> list[float]:
    """Times of single runs, the first left out: it fills caches that a running operator has."""
    work()
    found = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        found.append((time.perf_counter() - started) * 1000)
    return found


def main() -> None:
    """Print the table, then the figures."""
    profiles, figures = catalogue(), {}
    print(f"{'plan':36}{'median ms':>10}{'worst ms':>10}{'without predictions':>21}{'ratio':>8}")
    for name, case in CASES.items():
        spec = spec_of(case)
        with_them, without = (
            milliseconds(lambda spec=spec: make_plan(spec, profiles)),
            milliseconds(lambda spec=spec: fits(spec, profiles)),
        )  # type: ignore[misc]
        median, bare = statistics.median(with_them), statistics.median(without)
        print(f"{name:36}{median:10.1f}{max(with_them):10.1f}{bare:21.1f}{median / bare:8.1f}")
        figures[name] = {
            "median_ms": round(median, 1),
            "worst_ms": round(max(with_them), 1),
            "ratio": round(median / bare, 1),
        }
    print(json.dumps({"plans": figures, "slowest_median_ms": max(f["median_ms"] for f in figures.values())}))


if __name__ == "__main__":
    main()
