"""Measured runs played again: the closed loop of the benchmark, on the compiled engine."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from firsttoken.planning.timing.device import Device
from firsttoken.planning.timing.efficiency import Efficiencies, efficiencies
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.measured_runs import (
    MAX_NUM_SEQS,
    REQUESTS_A_CLIENT,
    SHORTEST,
    TOKEN_BUDGET,
    MeasuredEngine,
    MeasuredRun,
    engine_of,
)
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.step_table import StepTable, step_table
from firsttoken.simulation.workload import Between, Workload

# Runs with few clients have few requests: they are repeated with other lengths until the mean rests on this many.
# Then the mean TTFT under other seeds differs by 1.0 % on average, by 2.8 % at most (151 configurations).
LEAST_REQUESTS = 200


@dataclass(frozen=True)
class Replayed:
    """Mean TTFT and TPOT as predicted, seconds."""

    ttft: float
    tpot: float


class Replay:
    """Predicts runs; tables of equal engines and results of equal configurations are kept."""

    def __init__(self, found: Callable[[Device], Efficiencies] = efficiencies) -> None:
        """`found`: efficiencies other than the shipped ones, for the fit."""
        self._efficiencies = found
        self._tables: dict[tuple[object, ...], StepTable] = {}
        self._found: dict[tuple[object, ...], Replayed] = {}

    def __call__(self, run: MeasuredRun) -> Replayed:
        """The means of one run. Raises SimulationInputError: it can't be predicted, and why."""
        key = run.configuration
        if key not in self._found:
            self._found[key] = self._predict(run)
        return self._found[key]

    def _predict(self, run: MeasuredRun) -> Replayed:
        engine = engine_of(run, self._efficiencies)
        table = self._table(engine)
        settings = EngineSettings(
            token_budget=TOKEN_BUDGET,
            max_num_seqs=engine.max_num_seqs,
            kv_blocks=engine.kv_blocks(),
            prefix_caching=False,  # as in the scripts; the prompts are random anyway
            stages=table.stages(),
        )
        repeats = -(-LEAST_REQUESTS // (REQUESTS_A_CLIENT * run.clients))
        means = [_means(run, settings, table, seed) for seed in range(repeats)]
        ttft, tpot = np.mean(means, axis=0)
        return Replayed(float(ttft), float(tpot))

    def _table(self, engine: MeasuredEngine) -> StepTable:
        run = engine.run
        seqs = max(MAX_NUM_SEQS, engine.max_num_seqs)
        graphs = engine.model.parts().largest_graph
        key = (run.model, run.precision, run.system, run.tensor_parallel, run.kv_cache_dtype, seqs, graphs)
        if key not in self._tables:
            self._tables[key] = step_table(engine.model, TOKEN_BUDGET, seqs)
        return self._tables[key]


def _means(run: MeasuredRun, settings: EngineSettings, table: StepTable, seed: int) -> tuple[float, float]:
    prompts, outputs = (Between(max(1, int(SHORTEST * n)), n) for n in (run.prompt, run.output))
    given = Workload(prompts, outputs).requests(seed, count=REQUESTS_A_CLIENT * run.clients)
    outcome = FastEngine(given, settings, table).run_closed(run.clients)
    return float(outcome.ttft.mean()), float(np.nanmean(outcome.tpot)) if run.output > 1 else float("nan")
