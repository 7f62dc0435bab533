"""The series over time: bins that double, and the sawtooth of whole-prompt prefill."""

from typing import Any

import numpy as np
import pytest

from firsttoken.simulation.arrivals import Arrivals
from firsttoken.simulation.fast import FastEngine
from firsttoken.simulation.outcome import Outcome
from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.step_table import step_table
from firsttoken.simulation.workload import Between, Workload
from planning.timing.models import LLAMA_8B, step_model
from simulation.cases import TABLE

BUDGET = 4096


def served(**changes: Any) -> Outcome:
    """Long prompts on one A100-40, a second to a bin."""
    table = step_table(step_model(LLAMA_8B, "nvidia-a100-40gb"), BUDGET, 64)
    work = Workload(Between(1500, 3700), Between(100, 300), Arrivals(1.5, burstiness=0.5)).requests(8, count=150)
    return FastEngine(
        work, EngineSettings(**{"token_budget": BUDGET, "max_num_seqs": 64, "kv_blocks": 8000, **changes}), table
    ).run()


def test_M3_3_whole_prompts_make_a_sawtooth_and_chunks_do_not() -> None:
    """Neighbouring seconds: how far compute jumps from one to the next. The GPU is "busy" all the time either way."""
    whole, chunks = served(chunked_prefill=False), served(token_budget=256)
    jumps = [np.abs(np.diff(o.compute)).mean() / o.compute.mean() for o in (whole, chunks)]
    assert jumps[0] > 1.3 * jumps[1]
    for outcome in (whole, chunks):
        assert 0 < outcome.compute.max() < 1
        assert np.median(outcome.busy) == pytest.approx(1)
        assert outcome.busy.max() <= 1 + 1e-9
        assert outcome.compute.mean() == pytest.approx(
            (outcome.requests.prompt_tokens + outcome.requests.output_tokens - 1).sum()
            * outcome.totals.peak_token / (len(outcome.compute) * outcome.bin_seconds)
        )  # fmt: skip


def test_bins_double_when_time_runs_past_them() -> None:
    work = Workload(Between(50, 200), Between(10, 100), Arrivals(2.0)).requests(1, count=300)
    fine = FastEngine(work, EngineSettings(512, 32, 2000), TABLE, bins=4096, bin_seconds=0.1).run()
    coarse = FastEngine(work, EngineSettings(512, 32, 2000), TABLE, bins=64, bin_seconds=0.1).run()
    assert fine.bin_seconds == 0.1
    assert coarse.bin_seconds in (3.2, 6.4)
    merged = round(coarse.bin_seconds / fine.bin_seconds)
    for name in fine.timeline.dtype.names or ():
        expected = fine.timeline[name][: 64 * merged].reshape(-1, merged).sum(axis=1)
        np.testing.assert_allclose(coarse.timeline[name][: len(expected)], expected, atol=1e-9)


def test_an_idle_engine_is_not_busy() -> None:
    work = Workload(Between(100, 100), Between(2, 2), Arrivals(0.1)).requests(1, count=20)
    outcome = FastEngine(work, EngineSettings(512, 32, 2000), TABLE).run()
    assert outcome.totals.busy < 0.01
    assert np.median(outcome.busy) == 0
