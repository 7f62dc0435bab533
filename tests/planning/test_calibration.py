"""What the live fleet has shown of the time model: which measurement counts for which plan, and how it is said."""

import json
import math
import re
from collections import defaultdict
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from firsttoken.api.base import ApiModel
from firsttoken.api.engine import EnginePins
from firsttoken.api.records import CalibrationEntry
from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.calibration import OTHER_PARALLELISM, Calibration, Measured, Ratio, calibration_from
from firsttoken.planning.forecast import measured_kind
from firsttoken.planning.output import plan_from_json, plan_to_json
from firsttoken.planning.parallelism import Candidate
from firsttoken.planning.plan import make_plan
from firsttoken.planning.timing.efficiency import table
from firsttoken.planning.timing.step import replica_steps
from firsttoken.planning.types import CalibratedStage, Plan
from firsttoken_accuracy.errors import quantile
from firsttoken_accuracy.evaluate import whole_runs
from planning.specs import QWEN_7B, reason, service
from planning.timing.models import LLAMA_8B, device, facts, step_model

QA = {"profile": "KnowledgeQA", "requestsPerSecond": 20}
PREFILL = Measured("nvidia-a100-40gb", "qwen2.5-7b", "", "auto", 1, "prefill")
DECODE = replace(PREFILL, stage="decode")


def ratio(value: float, band: float = 0.05, tensor_parallel: int = 1) -> Ratio:
    return Ratio(value, band, 5000, tensor_parallel)


def known(*measured: Measured, value: float = 1.3, band: float = 0.05) -> Calibration:
    return Calibration({m: ratio(value, band, m.tensor_parallel) for m in measured})


def plan_with(calibration: Calibration, **changes: Any) -> Plan:
    pins = {"tensorParallel": 1, **changes.pop("pins", {})}
    spec = service(QWEN_7B, "nvidia-a100-40gb", 8, workload=QA, engine={"pins": pins}, **changes)
    found = make_plan(spec, catalogue(), calibration)
    assert isinstance(found, Plan), found
    return found


def test_a_calibrated_plan_follows_the_measurement_and_says_so_with_its_numbers() -> None:
    plain, calibrated = plan_with(Calibration()), plan_with(known(PREFILL, DECODE))
    assert plain.prediction is not None
    assert calibrated.prediction is not None
    assert calibrated.prediction.calibrated == (
        CalibratedStage("prefill", 1.3, 0.05, 5000, 1), CalibratedStage("decode", 1.3, 0.05, 5000, 1),
    )  # fmt: skip
    assert calibrated.prediction.relative_interval == 0.05 < plain.prediction.relative_interval
    assert (calibrated.roles[0].capacity or 0) < (plain.roles[0].capacity or 0)
    assert "prefill x1.3 +-5 % (5000 requests, tensor parallel 1)" in reason(calibrated, "Predicted")
    assert "calibrated" not in reason(plain, "Predicted")


def test_the_plan_as_json_names_ratio_band_and_requests_of_each_stage_and_is_read_back() -> None:
    plan = plan_with(known(PREFILL, DECODE))
    wire = json.loads(json.dumps(plan_to_json(plan)))
    assert wire["predicted"]["calibrated"] == [
        {"stage": stage, "ratio": 1.3, "band": 0.05, "requests": 5000, "tensor": 1} for stage in ("prefill", "decode")
    ]
    assert plan_from_json(wire) == plan


@pytest.mark.parametrize(
    "other",
    [
        {"accelerator": "nvidia-a100-80gb"},
        {"model": "mixtral-8x7b"},
        {"quantization": "fp8"},
        {"kv_cache_dtype": "fp8"},
    ],
)
def test_what_was_measured_of_something_else_is_not_used(other: dict[str, Any]) -> None:
    found = plan_with(known(replace(PREFILL, **other), replace(DECODE, **other)))
    assert found.prediction is not None
    assert found.prediction.calibrated == ()
    assert found == plan_with(Calibration())


def test_formats_of_the_spec_find_their_own_measurement() -> None:
    fp8 = {"quantization": "fp8", "kv_cache_dtype": "fp8"}
    found = plan_with(
        known(replace(PREFILL, **fp8), replace(DECODE, **fp8)),
        model={"quantization": "fp8"}, pins={"kvCacheDtype": "fp8"},
    )  # fmt: skip
    assert found.prediction is not None
    assert [c.stage for c in found.prediction.calibrated] == ["prefill", "decode"]


def test_of_other_tensor_parallelisms_the_nearest_counts_with_a_wider_band() -> None:
    wanted = replace(PREFILL, tensor_parallel=4)
    others = {
        replace(PREFILL, tensor_parallel=1): ratio(1.1, tensor_parallel=1),
        replace(PREFILL, tensor_parallel=2): ratio(1.2, tensor_parallel=2),
        replace(PREFILL, tensor_parallel=8): ratio(1.8, tensor_parallel=8),
        replace(DECODE, tensor_parallel=4): ratio(3.0, tensor_parallel=4),
    }
    found = Calibration(others).of(wanted)
    assert found is not None
    assert (found.value, found.tensor_parallel) == (1.2, 2), "2 and 8 are as near: the smaller"
    assert found.band == pytest.approx(0.05 + OTHER_PARALLELISM)
    exact = Calibration({**others, wanted: ratio(1.4, tensor_parallel=4)}).of(wanted)
    assert exact == ratio(1.4, tensor_parallel=4)
    plan = plan_with(known(*(replace(m, tensor_parallel=2) for m in (PREFILL, DECODE)), value=1.6))
    assert plan.prediction is not None
    assert plan.prediction.relative_interval == pytest.approx(0.05 + OTHER_PARALLELISM)
    assert "+-19 % (5000 requests, tensor parallel 2)" in reason(plan, "Predicted")


def test_a_measurement_that_says_less_than_the_model_changes_nothing() -> None:
    """With a ratio near 1 and a band wider than the model's own, a plan would be less sure and buy more."""
    plain = plan_with(Calibration())
    assert plain.prediction is not None
    wide = 1.01 * plain.prediction.relative_interval
    assert plan_with(known(PREFILL, DECODE, value=1.0, band=wide)) == plain
    assert plan_with(known(PREFILL, DECODE, value=1.0, band=0.1)) != plain
    contrary = plan_with(known(PREFILL, DECODE, value=2.0, band=0.3))
    assert contrary.prediction is not None
    assert [c.ratio for c in contrary.prediction.calibrated] == [2.0, 2.0]


def test_the_wider_band_is_what_measured_runs_differ_by_between_tensor_parallelisms() -> None:
    """Measured over predicted of the same GPU, model, lengths and clients (accuracy/data)."""
    groups: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    for run in whole_runs():
        model, _, rest = run.label.partition(" TP")
        if rest and not run.note:
            ranks, _, what = rest.partition(" ")
            groups[run.source, run.phase, run.system, model, what][int(ranks)] = run.seconds / run.predict(table())
    pairs = [(g[a], g[b]) for g in groups.values() for a, b in combinations(sorted(g), 2)]
    assert len(pairs) > 100
    differences = sorted(abs(b / a - 1) for a, b in pairs)
    assert quantile(differences, 0.9) <= OTHER_PARALLELISM < 1.3 * quantile(differences, 0.9)


def test_half_of_what_an_engine_does_is_not_all() -> None:
    """TTFT is as sure as the prompts that were measured, TPOT and what is carried are not."""
    plain, half = plan_with(Calibration()), plan_with(known(PREFILL, band=0.02))
    assert plain.prediction is not None
    assert half.prediction is not None
    assert half.prediction.ttft_interval == 0.02
    assert half.prediction.tpot_interval == plain.prediction.tpot_interval == half.prediction.relative_interval
    assert [c.stage for c in half.prediction.calibrated] == ["prefill"]


def test_each_stage_is_held_against_what_the_model_knows_of_it() -> None:
    """A band between both intervals says more of prompts than the model does, and less of tokens."""
    plain = plan_with(Calibration()).prediction
    assert plain is not None
    assert plain.ttft_interval > plain.tpot_interval
    between = (plain.ttft_interval + plain.tpot_interval) / 2
    found = plan_with(known(PREFILL, DECODE, value=1.0, band=between)).prediction
    assert found is not None
    assert [c.stage for c in found.calibrated] == ["prefill"]


def test_each_role_of_a_split_has_the_band_of_its_own_stage() -> None:
    split = {"layout": {"mode": "Disaggregated"}}
    plain = plan_with(Calibration(), **split)
    both = plan_with(Calibration({PREFILL: ratio(1.3, 0.02), DECODE: ratio(1.1, 0.04)}), **split)
    first = plan_with(Calibration({PREFILL: ratio(1.3, 0.02)}), **split)
    for plan, interval, stages in (
        (both, 0.04, ["prefill", "decode"]),
        (first, plain.prediction and plain.prediction.tpot_interval, ["prefill"]),
    ):
        assert plan.prediction is not None
        assert plan.prediction.relative_interval == interval
        assert [c.stage for c in plan.prediction.calibrated] == stages
    assert (first.roles[0].capacity or 0) < (plain.roles[0].capacity or 0)
    assert first.roles[1].capacity == plain.roles[1].capacity, "a decode engine makes no prefill steps"


def entry(**changes: object) -> dict[str, object]:
    good = {"stage": "prefill", "accelerator": "nvidia-l4", "model": "llama-3.1-8b", "tensorParallel": 1, "ratio": 1.2,
            "low": 1.1, "high": 1.3, "requests": 500}  # fmt: skip
    return {**good, **changes}


def record(name: str, created: str, *entries: object) -> dict[str, Any]:
    return {"metadata": {"name": name, "creationTimestamp": created}, "status": {"calibration": list(entries)}}


ENTRY = Measured("nvidia-l4", "llama-3.1-8b", "", "auto", 1, "prefill")


def test_it_is_read_from_revisions_the_youngest_first_and_only_if_it_can_be_trusted() -> None:
    old, new = record("a", "2026-01-01T00:00:00Z", entry()), record("b", "2026-02-01T00:00:00Z", entry(ratio=1.25))
    found = calibration_from([old, new]).of(ENTRY)
    assert found is not None
    assert found.value == 1.25
    nameless = {k: v for k, v in entry().items() if k != "model"}
    for bad in (
        entry(requests=10), entry(low=0.5, high=2.0), entry(ratio=9.0, high=9.5, low=8.5), nameless, entry(model=""),
        {"stage": 1}, "text", None,
    ):  # fmt: skip
        assert calibration_from([record("c", "2026-03-01T00:00:00Z", bad)]).of(ENTRY) is None
    assert calibration_from([{"metadata": {"name": "d"}}]).of(ENTRY) is None


def test_formats_of_an_entry_are_part_of_what_was_measured() -> None:
    said = entry(quantization="fp8", kvCacheDtype="fp8_e4m3")
    found = calibration_from([record("a", "2026-01-01T00:00:00Z", said)])
    assert found.of(ENTRY) is None
    assert found.of(replace(ENTRY, quantization="fp8", kv_cache_dtype="fp8_e4m3")) is not None


def test_a_plan_is_the_same_whatever_the_order_of_the_records() -> None:
    records = [record(n, "2026-01-01T00:00:00Z", entry(ratio=r)) for n, r in (("a", 1.15), ("b", 1.25))]
    assert calibration_from(records) == calibration_from(records[::-1])
    assert hash(calibration_from(records)) == hash(calibration_from(records[::-1]))
    assert math.isclose(calibration_from(records).ratios[ENTRY].value, 1.25), "of the same second the last name"


def enum(model: type[ApiModel], name: str) -> list[str]:
    extra = model.model_fields[name].json_schema_extra
    assert isinstance(extra, dict)
    return list(extra["enum"])  # type: ignore[arg-type]


def test_an_entry_knows_the_formats_that_a_spec_may_name() -> None:
    assert enum(CalibrationEntry, "quantization") == ["", *enum(ModelSpec, "quantization")]
    assert enum(CalibrationEntry, "kv_cache_dtype") == enum(EnginePins, "kv_cache_dtype")


def test_what_was_measured_on_one_node_is_not_used_for_replicas_on_several_nor_for_pipeline_stages() -> None:
    found = known(PREFILL, DECODE)
    wide = replace(PREFILL, tensor_parallel=8)
    assert found.of(wide) is not None, "the nearest tensor parallelism"
    assert found.of(replace(wide, nodes=2)) is None
    assert found.of(replace(PREFILL, pipeline_parallel=2)) is None
    over_two = calibration_from([record("a", "2026-01-01T00:00:00Z", entry(tensorParallel=16, nodes=2))])
    assert over_two.of(replace(ENTRY, tensor_parallel=16, nodes=2)) is not None
    assert over_two.of(replace(ENTRY, tensor_parallel=8)) is None


def test_a_forecast_over_nodes_asks_for_a_measurement_of_its_own_kind() -> None:
    plan = make_plan(service(QWEN_7B, "nvidia-a100-40gb", 8), catalogue())
    assert isinstance(plan, Plan)
    kind = measured_kind(facts(LLAMA_8B), "nvidia-l4", Candidate(8, 2, plan.memory, nodes=2), "auto")
    assert (kind.tensor_parallel, kind.pipeline_parallel, kind.nodes) == (8, 2, 2)
    near, far = (replica_steps(facts(LLAMA_8B), device("nvidia-h100-80gb"), ranks, 1, "auto") for ranks in (8, 16))
    inside = replica_steps(facts(LLAMA_8B), replace(device("nvidia-h100-80gb"), node=16), 16, 1, "auto")
    chunk = ((0, 2048),)
    assert near.step_seconds(chunk) == step_model(LLAMA_8B, tensor_parallel=8).step_seconds(chunk)
    assert far.step_seconds(chunk).seconds > inside.step_seconds(chunk).seconds, "its all-reduces go over the network"


def test_a_measurement_faster_than_the_data_sheet_allows_is_left_out_and_named() -> None:
    """Whatever was measured: weights can't be read, nor prompts multiplied, faster than at the peak."""
    plain, fast = plan_with(Calibration()), plan_with(known(PREFILL, DECODE, value=0.26))
    assert plain.prediction is not None
    assert fast.prediction == plain.prediction
    said = reason(fast, "Predicted")
    assert "measured times that no such GPU can reach are left out: prefill x0.26 (x0." in said
    assert "decode x0.26 (x0." in said
    assert "left out" not in reason(plan_with(known(PREFILL, DECODE, value=0.9)), "Predicted")


def test_a_band_that_reaches_what_is_possible_is_cut_there() -> None:
    peak = re.search(r"decode x0.26 \(x([\d.]+) is", reason(plan_with(known(DECODE, value=0.26)), "Predicted"))
    assert peak is not None
    found = plan_with(known(DECODE, value=0.95 * float(peak[1]), band=0.15)).prediction
    assert found is not None
    assert [c.ratio for c in found.calibrated] == [pytest.approx(float(peak[1]), rel=0.01)]


def test_a_window_without_a_spread_is_not_exact() -> None:
    entry = {
        "accelerator": "nvidia-a100-40gb", "model": "qwen2.5-7b", "tensorParallel": 1, "stage": "decode",
        "ratio": 1.3, "low": 1.3, "high": 1.3, "requests": 500,
    }  # fmt: skip
    record = {
        "metadata": {"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"calibration": [entry]},
    }
    (found,) = calibration_from([record]).ratios.values()
    assert found.band == 0.05
