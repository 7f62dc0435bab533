"""`make bench-load`: the planner's load model against the simulated engine, one replica, at parts of its capacity.

Both have the same step times, so what is compared is queueing alone: the closed form (planning/load) against an engine
that is stepped. Predicted / simulated of TTFT P50 and P95 and TPOT P95, as a Markdown table; the last line is JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.demand import RequestShape
from firsttoken.planning.load.goodput import largest_rate
from firsttoken.planning.load.lengths import LengthDistribution
from firsttoken.planning.load.replica import LoadModel
from firsttoken.planning.models import model_facts
from firsttoken.planning.timing.device import device_from_profile
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import Infeasible
from firsttoken.simulation.arrivals import Arrivals
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.step_table import step_table
from firsttoken.simulation.workload import LogNormal, SharedPrefixes, Workload

LOADS = (0.3, 0.5, 0.7, 0.85)
COUNT, FIRST, SEEDS = 6000, 1000, 3  # requests of a run, those left out while it fills, runs
LONGEST = 16384


@dataclass(frozen=True)
class Case:
    """A replica and its requests: (P50, P95) of prompt and output tokens."""

    model: str
    device: str
    ranks: int
    limits: EngineLimits
    prompt: tuple[int, int]
    output: tuple[int, int]
    shared: int = 0


CASES = {
    "8B, A100-40, chat, budget 2048": Case(
        "Llama-3.1-8B-Instruct", "nvidia-a100-40gb", 1, EngineLimits(2048, 256, 150_000), (1024, 4096), (128, 451), 256
    ),
    "8B, A100-40, chat, budget 512": Case(
        "Llama-3.1-8B-Instruct", "nvidia-a100-40gb", 1, EngineLimits(512, 256, 150_000), (1024, 4096), (128, 451), 256
    ),
    "8B, A100-40, answers, budget 2048": Case(
        "Llama-3.1-8B-Instruct", "nvidia-a100-40gb", 1, EngineLimits(2048, 256, 150_000), (1150, 1500), (400, 500), 448
    ),
    "70B, 4 x H100, chat, budget 8192": Case(
        "Llama-3.1-70B-Instruct",
        "nvidia-h100-80gb",
        4,
        EngineLimits(8192, 1024, 400_000),
        (1024, 4096),
        (128, 451),
        256,
    ),
    "8B, H100, code, budget 2048": Case(
        "Llama-3.1-8B-Instruct", "nvidia-h100-80gb", 1, EngineLimits(2048, 256, 400_000), (1469, 7315), (13, 90)
    ),
}

Times = tuple[float, float, float]  # TTFT P50 and P95, TPOT P95, seconds


class Both:
    """One case in the closed form and in the simulator."""

    def __init__(self, case: Case) -> None:
        self._case, limits = case, case.limits
        prompts, outputs = (LengthDistribution(*x, LONGEST) for x in (case.prompt, case.output))
        device = device_from_profile(catalogue()[case.device])
        facts = model_facts(ModelSpec(uri=f"hf://meta-llama/{case.model}"))
        assert not isinstance(facts, Infeasible)  # noqa: S101 - it is in the catalogue
        model = StepModel(facts, device, tensor_parallel=case.ranks)
        self.load = LoadModel(model, RequestShape(prompts, outputs, case.shared), limits)
        self.table = step_table(model, limits.token_budget, min(limits.max_running, limits.token_budget))
        self.settings = EngineSettings(
            limits.token_budget,
            min(limits.max_running, limits.token_budget),
            limits.kv_tokens // 16,
            stages=self.table.stages(),
        )
        self.capacity = largest_rate(self.load, ()).rate

    def predicted(self, rate: float) -> Times:
        """By the closed form."""
        state = self.load.state(rate)
        return state.ttft.p50, state.ttft.p95, state.tpot.p95

    def simulated(self, rate: float) -> Times:
        """The mean over runs with other seeds."""
        return tuple(np.mean([self._run(rate, seed) for seed in range(SEEDS)], axis=0).tolist())  # type: ignore[return-value]

    def work(self, rate: float) -> Workload:
        """Its requests at `rate` a second."""
        case = self._case
        prefixes = SharedPrefixes(case.shared) if case.shared else None
        return Workload(LogNormal(*case.prompt, LONGEST), LogNormal(*case.output, LONGEST), Arrivals(rate), prefixes)

    def _run(self, rate: float, seed: int) -> Times:
        outcome = FastEngine(self.work(rate).requests(seed, count=COUNT), self.settings, self.table).run()
        ttft, tpot = outcome.ttft[FIRST:], outcome.tpot[FIRST:]
        return float(np.quantile(ttft, 0.5)), float(np.quantile(ttft, 0.95)), float(np.nanquantile(tpot, 0.95))


def main() -> None:
    """Print the table, then the figures."""
    figures = {}
    print("| Case | Requests/s at most | " + " | ".join(f"{load * 100:.0f} %" for load in LOADS) + " |")
    print("| --- | --- | " + " | ".join("---" for _ in LOADS) + " |")
    for name, case in CASES.items():
        both, cells = Both(case), []
        for load in LOADS:
            predicted, simulated = both.predicted(load * both.capacity), both.simulated(load * both.capacity)
            ratios = [p / s for p, s in zip(predicted, simulated, strict=True)]
            figures[f"{name}, {load}"] = {"predicted": predicted, "simulated": simulated}
            cells.append(" / ".join(f"{r:.2f}" for r in ratios))
        print(f"| {name} | {both.capacity:.3g} | " + " | ".join(cells) + " |")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
