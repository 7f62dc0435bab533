"""Experts' efficiencies by runs under load."""

import csv

from firsttoken.planning.timing.efficiency import Accuracy, table
from firsttoken.planning.timing.step import StepModel
from firsttoken.simulation.measured_models import measured_facts
from firsttoken.simulation.measured_runs import read_runs
from firsttoken.simulation.replay import Replay
from firsttoken_accuracy.loaded import Measured, contradicts, format_of, measured, refit
from firsttoken_accuracy.served import part
from firsttoken_accuracy.tables import DATA, fold
from planning.timing.models import device

LINES = (DATA / "e2e_vllm.csv").read_text().splitlines()


def test_a_run_is_kept_out_by_the_rule_of_the_first_fit() -> None:
    runs, _ = read_runs(LINES, "e2e")
    rows = list(csv.DictReader(LINES))
    assert len(runs) == len(rows) == 923
    for run, row in zip(runs, rows, strict=True):
        assert part(run) == fold("served", row["system"], row["model_path"], row["tp_size"], row["isl"])


def test_nine_rows_contradict_themselves_and_are_in_no_fit() -> None:
    runs, _ = read_runs(LINES, "e2e")
    found = [run for run in runs if contradicts(run)]
    assert len(found) == 9
    assert {(run.model, run.system, run.clients) for run in found} == {("openai/gpt-oss-120b", "h100_sxm", 512)}
    lines = {run.line for run in found}
    assert not [m for m in measured() if m.run.line in lines]


def test_a_fit_brings_predictions_near_what_it_is_given() -> None:
    runs, _ = read_runs(LINES, "e2e")
    chosen = [r for r in runs if format_of(r) == "int4" and r.clients in (4, 16)][:3]
    wanted = Replay()
    truth = [Measured(r, ("blackwell", "int4"), 1, (wanted(r).ttft, wanted(r).tpot)) for r in chosen]
    experts = table()["generations"]["blackwell"]["experts"]
    off = {
        **experts,
        "int4": {**experts["int4"], "mfu": experts["int4"]["mfu"] * 1.5, "mbu": experts["int4"]["mbu"] * 0.8},
    }
    generations = {**table()["generations"], "blackwell": {**table()["generations"]["blackwell"], "experts": off}}
    changed = {**table(), "generations": generations}
    found = refit(changed, truth, changed)["generations"]["blackwell"]["experts"]["int4"]
    assert abs(found["mbu"] / experts["int4"]["mbu"] - 1) < 0.1


def test_four_bit_experts_have_efficiencies_where_rows_are_and_a_wide_interval_everywhere() -> None:
    for precision, key in (("fp4", "nvfp4"), ("int4", "int4")):
        facts = measured_facts("moonshotai/Kimi-K2.5", precision)
        assert not isinstance(facts, str)
        on = {gpu: StepModel(facts, device(gpu), tensor_parallel=8) for gpu in ("nvidia-b200", "nvidia-h200")}
        assert key in table()["generations"]["blackwell"]["experts"]
        assert key not in table()["generations"]["hopper"]["experts"]
        assert {m.interval for m in on.values()} == {Accuracy(**table()["intervals"]["unmeasured"])}
