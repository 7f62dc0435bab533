"""Measured runs: how a file is read, which engine each row gets, and what is played again."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from firsttoken.simulation import replay as replay_module
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.measured_models import measured_facts
from firsttoken.simulation.measured_runs import NEEDED, MeasuredRun, engine_of, read_runs
from firsttoken.simulation.replay import Replay, Replayed
from firsttoken.simulation.replay_report import Errors, report

COLUMNS = (*NEEDED, "backend_version", "pp_size", "attention_dp_size", "moe_ep_size")
LLAMA = {
    "system": "h200_sxm", "model_path": "meta-llama/Llama-3.1-70B", "precision": "fp8", "isl": "1024", "osl": "1024",
    "concurrency": "4.0", "tp_size": "4.0", "silicon_ttft_ms": "91.2", "silicon_tpot_ms": "9.9",
    "backend_version": "", "pp_size": "1.0", "attention_dp_size": "1.0", "moe_ep_size": "1.0",
}  # fmt: skip


def table(*changes: dict[str, str]) -> list[str]:
    """Lines of a CSV with one row for each dictionary of changes to LLAMA."""
    return [",".join(COLUMNS), *(",".join({**LLAMA, **change}[c] for c in COLUMNS) for change in changes)]


def run(**changes: str) -> MeasuredRun:
    runs, refused = read_runs(table(changes), "f.csv")
    assert not refused
    return runs[0]


def test_a_row_is_read_in_seconds_and_tokens() -> None:
    found = run()
    assert (found.line, found.prompt, found.output, found.clients, found.tensor_parallel) == (2, 1024, 1024, 4, 4)
    assert (found.ttft, found.tpot) == pytest.approx((0.0912, 0.0099))


def test_clients_of_a_row_with_attention_ranks_are_those_of_one_rank() -> None:
    found = run(concurrency="16.0", attention_dp_size="4.0")
    assert (found.clients, found.attention_ranks) == (64, 4)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"isl": "0"}, "isl is '0': give a number above 0"),
        ({"isl": "10.5"}, "isl is 10.5: give a whole number"),
        ({"silicon_ttft_ms": "fast"}, "silicon_ttft_ms is 'fast'"),
        ({"silicon_tpot_ms": "nan"}, "silicon_tpot_ms is 'nan'"),
        ({"model_path": " "}, "model_path is empty"),
        ({"concurrency": "1e9"}, "concurrency is 1e+09"),
        ({"concurrency": "20000"}, "concurrency is 20000: more than"),
    ],
)
def test_a_row_that_says_nonsense_is_listed_with_its_line_and_the_others_are_read(
    change: dict[str, str], why: str
) -> None:
    runs, refused = read_runs(table({}, change, {}), "f.csv")
    assert [one.line for one in runs] == [2, 4]
    assert list(refused) == [3]
    assert refused[3].startswith(why)


def test_a_file_of_another_form_is_refused_by_its_missing_columns() -> None:
    with pytest.raises(SimulationInputError, match=r"f\.csv: no column system, model_path"):
        read_runs(["a,b", "1,2"], "f.csv")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"system": "abacus"}, "system 'abacus' is not known"),
        ({"model_path": "nobody/nothing"}, "is not in the model catalogue"),
        ({"precision": "int3"}, "precision 'int3' is not known"),
        ({"pp_size": "2"}, "pp_size: "),
        ({"tp_size": "3"}, "tp_size is 3"),
        ({"tp_size": "1", "system": "l40s"}, "room for 0 tokens of KV"),
    ],
)
def test_what_is_not_modelled_is_said(change: dict[str, str], why: str) -> None:
    with pytest.raises(SimulationInputError, match=why):
        engine_of(run(**change)).kv_blocks()


def test_gpus_go_by_the_names_of_the_table_and_by_those_of_profiles() -> None:
    assert engine_of(run(system="nvidia-h200")).profile == engine_of(run()).profile


@pytest.mark.parametrize(("precision", "low", "high"), [("fp4", 0.5, 0.6), ("int4", 0.5, 0.6), ("fp8", 1.0, 1.0)])
def test_weights_have_the_bytes_of_their_precision(precision: str, low: float, high: float) -> None:
    facts = measured_facts("moonshotai/Kimi-K2.5", precision)
    assert not isinstance(facts, str)
    assert low <= facts.weight_bytes_per_parameter <= high


def test_published_weights_stay_as_they_are() -> None:
    facts = measured_facts("openai/gpt-oss-120b", "fp4")
    assert not isinstance(facts, str)
    assert facts.quantization == "mxfp4"


def test_fp8_kv_holds_twice_as_much() -> None:
    """Same memory: what NVIDIA's checkpoint for H200 names against what is the default elsewhere."""
    half, whole = engine_of(run()), engine_of(run(precision="fp8", system="nvidia-h200"))
    assert (half.run.kv_cache_dtype, whole.run.kv_cache_dtype) == ("fp8", "auto")
    assert half.kv_blocks() == pytest.approx(2 * whole.kv_blocks(), rel=0.01)


def test_more_clients_wait_longer_and_get_slower_tokens() -> None:
    replay = Replay()
    few, many = replay(run(osl="128")), replay(run(osl="128", concurrency="64"))
    assert many.ttft > few.ttft
    assert many.tpot > few.tpot


def test_starved_of_kv_ttft_is_the_wait_for_another_request_to_end() -> None:
    replay = Replay()
    change = {"tp_size": "1", "isl": "8192", "osl": "256", "system": "nvidia-h200"}
    fits, starved = replay(run(**change, concurrency="8")), replay(run(**change, concurrency="64"))
    # 8 requests fit, 64 don't: whoever waits does so for much of a request's whole time.
    assert starved.ttft > 0.25 * 256 * starved.tpot > fits.ttft


def test_a_single_client_sees_the_time_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "SHORTEST", 1.0)
    one = run(concurrency="1", isl="512", osl="64")
    found, model = Replay()(one), engine_of(one).model
    assert found.ttft == pytest.approx(model.api_seconds(512) + model.prefill_seconds(512), rel=1e-6)
    steps = [model.decode_seconds(1, 512 + n) for n in range(1, 64)]
    assert found.tpot == pytest.approx(float(np.mean(steps)), rel=1e-6)


def test_equal_configurations_are_played_once(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[MeasuredRun] = []
    replay = Replay()

    def predict(_: Replay, one: MeasuredRun) -> Replayed:
        played.append(one)
        return Replayed(0.1, 0.01)

    monkeypatch.setattr(Replay, "_predict", predict)
    for one in (run(), run(silicon_ttft_ms="1"), run(concurrency="8")):
        replay(one)
    assert [one.clients for one in played] == [4, 8]


def predictions(*pairs: tuple[float, float]) -> Any:
    """A predictor that answers with measured times plus these relative errors, in turn; None: it can't."""
    left: Iterator[tuple[float, float]] = iter(pairs)

    def predict(one: MeasuredRun) -> Replayed:
        ttft, tpot = next(left)
        if ttft is None:
            raise SimulationInputError("no")
        return Replayed(one.ttft * (1 + ttft), one.tpot * (1 + tpot))

    return predict


def test_errors_are_means_over_rows_by_group_and_unpredicted_rows_are_counted() -> None:
    runs, refused = read_runs(table({}, {"concurrency": "8"}, {"system": "b200_sxm"}, {"isl": "x"}, {}), "f.csv")
    found = report(runs, refused, predictions((0.1, 0.0), (-0.3, 0.2), (0.5, -0.1), (None, None)))  # type: ignore[arg-type]
    wire = found.wire()
    assert (wire["rows"], wire["predicted"]) == (5, 3)
    assert [one["line"] for one in wire["unpredicted"]] == [5, 6]
    assert wire["ttftMape"] == pytest.approx(0.3)
    assert wire["tpotMape"] == pytest.approx(0.1)
    b200, h200 = wire["groups"]
    assert (b200["system"], b200["rows"], h200["rows"]) == ("b200_sxm", 1, 2)
    assert h200["ttft"] == pytest.approx({"median": 0.2, "mean": 0.2, "worst": 0.3, "bias": -0.1})
    assert [c.run.system for c in found.worst(1)] == ["b200_sxm"]


def test_equal_configurations_are_furthest_off_once_by_their_worst_row() -> None:
    runs, _ = read_runs(table({}, {"concurrency": "8"}, {}, {"concurrency": "16"}), "f.csv")
    found = report(runs, {}, predictions((0.1, 0.0), (-0.5, 0.2), (0.1, -0.9), (0.2, 0.0)))
    assert [(c.run.line, round(c.ttft, 3), round(c.tpot, 3)) for c in found.worst(5)] == [
        (4, 0.1, -0.9),
        (3, -0.5, 0.2),
        (5, 0.2, 0.0),
    ]
    assert [c.run.line for c in found.worst(2)] == [4, 3]


def test_no_prediction_is_no_number() -> None:
    found = report([], {2: "why"}, Replay())
    assert (found.wire()["ttftMape"], found.wire()["rows"]) == (None, 1)
    assert Errors.of([float("nan")]).wire() == {"median": None, "mean": None, "worst": None, "bias": None}


def test_a_run_without_a_second_token_has_no_tpot() -> None:
    one = replace(run(osl="1"), output=1)
    found = report([one], {}, Replay())
    assert found.ttft.mean >= 0
    assert found.wire()["tpotMape"] is None


def test_first_requests_pass_the_api_server_one_after_the_other_and_wait_for_it() -> None:
    """All clients are there at 0, so the mean TTFT of the first ones grows with their number."""
    replay = Replay()
    one, many = (replay(run(isl="16", osl="512", concurrency=clients)) for clients in ("1", "64"))
    serial = engine_of(run()).model.api_seconds(16)
    # Every tenth request is a first one; on average half of the 64 are before it.
    assert many.ttft - one.ttft > 0.1 * 32 * serial * 0.9
