"""`make bench-plan`: how long a plan takes, against the same work without predictions in the same run.

The yardstick takes the same decisions by what fits alone, so the ratio is what predictions cost. A refusal looks for
what would be feasible instead on both sides, and predicts nothing on either: its ratio is about 1. Then what it takes
to simulate a plan's candidates besides, after the simulator is compiled. Times are of the CPU: other processes on the
machine change them less. `cold` is the first plan of a process, imports excluded: it reads the catalogues. `of the
refusal`: the median over that of the plan that predicts nothing, which tells machines apart. The last line is JSON.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.models import model_facts
from firsttoken.planning.nearest import with_nearest
from firsttoken.planning.plan import fits, make_plan
from firsttoken.planning.types import Infeasible, Plan
from firsttoken.simulation.candidates import Comparison, compare_candidates
from firsttoken_operator.cli.simulator import compiled

ROUNDS, SIMULATED_ROUNDS, COLD_ROUNDS = 15, 3, 3
REFUSAL = "70B on 4 x A100-40"
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
QWEN_7B, LLAMA_8B, LLAMA_70B = (
    "Qwen/Qwen2.5-7B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A spec as a user writes it, and what planning it has to do."""

    does: str
    model: str
    device: str
    count: int
    workload: dict[str, Any]
    layout: dict[str, Any] = field(default_factory=dict)
    feasible: bool = True

    @property
    def spec(self) -> InferenceServiceSpec:
        """With everything else by default."""
        return InferenceServiceSpec.model_validate(
            {
                "model": {"uri": f"hf://{self.model}"},
                "accelerator": {"type": self.device, "maxCount": self.count},
                "workload": self.workload,
                "layout": self.layout,
            }
        )


CASES = {
    "7B on 8 x A100-40": Case("shapes and replicas for 20 requests/s", QWEN_7B, "nvidia-a100-40gb", 8, QA),
    "70B on 8 x H100": Case("shapes for a whole budget", LLAMA_70B, "nvidia-h100-80gb", 8, CHAT),
    "DeepSeek-V3 on 16 x H200": Case(
        "latent attention and experts, one shape a node", "deepseek-ai/DeepSeek-V3", "nvidia-h200", 16, CHAT
    ),
    "8B on 8 x H100": Case("long prompts, and whether to split", LLAMA_8B, "nvidia-h100-80gb", 8, LONG),
    "8B on 8 x H100, split": Case(
        "both roles of a split", LLAMA_8B, "nvidia-h100-80gb", 8, LONG, {"mode": "Disaggregated"}
    ),
    REFUSAL: Case("a refusal, and what would fit instead", LLAMA_70B, "nvidia-a100-40gb", 4, CHAT, feasible=False),
}


def milliseconds(work: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Times of single runs, the first left out: it fills caches that a running operator has."""
    work()
    found = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        found.append((time.process_time() - started) * 1000)
    return found


def measured(name: str, case: Case) -> dict[str, float]:
    """Figures of one case. Ends the run where it is not what it says: its figures would be of other work."""
    profiles, spec = catalogue(), case.spec

    def without_predictions() -> Plan | Infeasible:
        found = fits(spec, profiles)
        return with_nearest(found, spec, profiles, fits) if isinstance(found, Infeasible) else found

    for outcome in (make_plan(spec, profiles), without_predictions()):
        if isinstance(outcome, Plan) != case.feasible:
            raise SystemExit(f"{name}: no longer {'feasible' if case.feasible else 'infeasible'}: {outcome}")
    whole, bare = milliseconds(lambda: make_plan(spec, profiles)), milliseconds(without_predictions)
    median, yardstick = statistics.median(whole), statistics.median(bare)
    return {
        "median_ms": round(median, 1),
        "cold_ms": round(cold(name), 1),
        "worst_ms": round(max(whole), 1),
        "without_ms": round(yardstick, 2),
        "ratio": round(median / yardstick, 1),
        **simulated(spec),
    }


def cold(name: str) -> float:
    """Milliseconds of the first plan of a process, in new processes; the median of a few."""
    run = [sys.executable, __file__, "--first", name]
    return statistics.median(float(subprocess.check_output(run)) for _ in range(COLD_ROUNDS))


def first(name: str) -> None:
    """Print the milliseconds of one plan, the first of this process."""
    spec, started = CASES[name].spec, time.process_time()
    make_plan(spec, catalogue())
    print((time.process_time() - started) * 1000)


def simulated(spec: InferenceServiceSpec) -> dict[str, float]:
    """Milliseconds for the candidates of a plan, planned in full and simulated, and how many there are."""
    profiles, facts = catalogue(), model_facts(spec.model)
    plan = make_plan(spec, profiles)
    if not isinstance(plan, Plan) or isinstance(facts, Infeasible):
        return {}

    def work() -> Comparison | None:
        return compare_candidates(spec, plan, facts, profiles, lambda s, shapes: make_plan(s, profiles, shapes=shapes))

    found = work()
    count = 0 if found is None else len(found.simulated)
    return {"candidates": count, "simulated_ms": round(statistics.median(milliseconds(work, SIMULATED_ROUNDS)))}


def main() -> None:
    """Print the table, then the figures."""
    figures = {}
    compiled()
    print(
        f"{'plan':26}{'what it does':48}{'median ms':>10}{'worst ms':>10}{'cold ms':>9}{'without predictions':>21}"
        f"{'ratio':>8}{'simulated ms':>16}"
    )
    for name, case in CASES.items():
        row = figures[name] = measured(name, case)
        numbers = f"{row['median_ms']:10.1f}{row['worst_ms']:10.1f}{row['cold_ms']:9.1f}{row['without_ms']:21.2f}"
        numbers += f"{row['ratio']:8.1f}"
        more = f"{row['simulated_ms']:9.0f} for {row['candidates']}" if "candidates" in row else ""
        print(f"{name:26}{case.does:48}{numbers}  {more}")
    for row in figures.values():
        row["of_the_refusal"] = round(row["median_ms"] / figures[REFUSAL]["median_ms"], 2)
    print("of the refusal:", ", ".join(f"{name} {row['of_the_refusal']}" for name, row in figures.items()))
    slowest = {
        f"slowest_{name}": max(f.get(name, 0) for f in figures.values()) for name in ("median_ms", "simulated_ms")
    }
    print(json.dumps({"plans": figures, **slowest}))


if __name__ == "__main__":
    first(sys.argv[2]) if sys.argv[1:2] == ["--first"] else main()
