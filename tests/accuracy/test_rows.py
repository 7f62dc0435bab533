"""A row of e2e_vllm is one run, whichever program predicts it."""

from functools import partial

import pytest

from firsttoken.planning.timing.efficiency import build, table
from firsttoken.simulation.measured_runs import MEAN_LENGTH, MeasuredRun, engine_of, read_runs
from firsttoken.simulation.replay import Replay
from firsttoken_accuracy.served import served, tpot, ttft
from firsttoken_accuracy.tables import DATA
from firsttoken_accuracy.whole import Run


def runs() -> list[MeasuredRun]:
    return read_runs((DATA / "e2e_vllm.csv").read_text().splitlines(), "e2e_vllm.csv")[0]


def rows_of(run: Run) -> list[MeasuredRun]:
    """Those that a run of the fit may stand for."""
    return [r for r in runs() if f"TP{r.tensor_parallel} {r.prompt}+{r.output}, {r.clients} clients" in run.label]


def test_the_fit_has_the_engine_of_the_replay() -> None:
    """Model, KV format and CUDA graphs are those that `engine_of` says, lengths the mean of what the replay draws."""
    seen = set()
    for run in served():
        candidates = [r for r in rows_of(run) if r.system == run.system and (r.ttft, r.tpot)[run.phase == "decode"]]
        formula = ttft if run.phase == "prefill" else tpot
        expected = set()
        for row in candidates:
            engine = engine_of(row)
            if engine.facts.name in run.label:
                lengths = (round(MEAN_LENGTH * row.prompt), round(MEAN_LENGTH * row.output))
                expected.add(formula(engine.model, *lengths, row.clients))
                seen.add((engine.facts.name, row.kv_cache_dtype, engine.facts.attention_sinks))
        assert run.predict(table()) in expected, run.label
    assert seen >= {("gpt-oss-120b", "fp8", True), ("gpt-oss-120b", "auto", True), ("minimax-m2.5", "fp8", False)}


def test_the_formula_of_a_closed_loop_is_near_the_simulator_that_plays_it() -> None:
    """With few clients both describe the same requests, so what they differ by is the formula's own error."""
    replay = Replay(partial(build, table()))
    for model, prompt in (("openai/gpt-oss-120b", 1024), ("MiniMaxAI/MiniMax-M2.5", 8192)):
        run = next(r for r in runs() if r.model == model and r.clients == 4 and r.prompt == prompt)
        found, lengths = engine_of(run), (round(MEAN_LENGTH * run.prompt), round(MEAN_LENGTH * run.output))
        played = replay(run)
        assert tpot(found.model, *lengths, run.clients) == pytest.approx(played.tpot, rel=0.05)
        assert ttft(found.model, *lengths, run.clients) == pytest.approx(played.ttft, rel=0.15)
