"""What was measured is kept on its revision, once; it restarts nothing, and the next plan uses it and says so."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from firsttoken.measurement.blocks import Measurements, Window
from firsttoken.measurement.stages import NotMeasured
from firsttoken.reconcile import decide
from firsttoken.reconcile.calibrating import metrics_aspect
from firsttoken.reconcile.ratios import Ratios
from firsttoken.rehearsal.storing import Object
from measurement.engines import Case, window
from reconcile.world import World, ready

Entries = list[dict[str, Any]]


@cache
def seen(budget: int, slow: float = 1.3, seed: int = 1) -> Window:
    """Of the engines of `reconcile.services.spec`, whose prefill is slowed."""
    return window(Case(budget=budget, rate=2.0), 1050.0, seed, prefill=slow)


def served() -> tuple[World, str, int]:
    """A service that serves, its revision, and its token budget."""
    world = ready()
    name = world.revision["stable"]
    return world, name, int(world.get("InferenceRevision", name)["spec"]["plan"]["settings"]["tokenBudget"])


def tell(world: World, revision: str, window: Window, role: str = "serve") -> None:
    world.measured = lambda: Measurements({(revision, role): window})


def entries(world: World, revision: str) -> Entries:
    found: Entries = (world.get("InferenceRevision", revision).get("status") or {}).get("calibration", [])
    return found


def by_stage(world: World, revision: str) -> dict[str, dict[str, Any]]:
    return {entry["stage"]: entry for entry in entries(world, revision)}


def passes(world: World) -> int:
    """Writes of one pass."""
    before = world.writes
    world.reconcile()
    return world.writes - before


def calibrated() -> tuple[World, str, int]:
    world, name, budget = served()
    tell(world, name, seen(budget))
    world.reconcile()
    return world, name, budget


def test_ratio_band_and_requests_of_each_stage_are_kept_on_the_revision_that_was_measured() -> None:
    world, name, _ = calibrated()
    found = by_stage(world, name)
    assert found["prefill"]["ratio"] == pytest.approx(1.3, rel=0.06)
    assert found["decode"]["ratio"] == pytest.approx(1.0, rel=0.08)
    for entry in found.values():
        assert entry["low"] < entry["ratio"] < entry["high"]
        assert entry["requests"] > 1000
        assert (entry["accelerator"], entry["tensorParallel"]) == ("nvidia-a100-40gb", 1)
    assert world.says("MetricsAvailable") == ("True", "Measured")


def test_what_says_nothing_new_is_not_written() -> None:
    world, name, budget = calibrated()
    assert passes(world) == 0
    tell(world, name, seen(budget, seed=2))
    assert passes(world) == 0, "the same engine, another quarter of an hour"
    tell(world, name, seen(budget, slow=1.6))
    assert passes(world) == 1
    assert by_stage(world, name)["prefill"]["ratio"] == pytest.approx(1.6, rel=0.06)


def test_the_luckiest_half_hour_is_not_kept_and_after_a_day_the_latest_is() -> None:
    """A window whose band is narrower by chance, within what is known: the first would stay till another is luckier."""
    world, name, budget = served()
    wide, narrow = uneven(seen(budget)), seen(budget)
    tell(world, name, wide)
    world.reconcile()
    before = by_stage(world, name)
    tell(world, name, narrow)
    assert passes(world) == 0
    world.wait(86_000)
    assert "measuredAt" in before["prefill"]
    world.reconcile()
    assert by_stage(world, name) == before
    world.wait(500)
    world.reconcile()
    after = by_stage(world, name)
    assert width(after["prefill"]) < 0.7 * width(before["prefill"])
    world.wait(86_500)
    tell(world, name, wide)
    world.reconcile()
    assert width(by_stage(world, name)["prefill"]) == width(before["prefill"]), "nor is the narrowest kept for ever"
    assert passes(world) == 0


def uneven(window: Window) -> Window:
    """The same engines, whose prefills scatter more between blocks."""
    blocks = tuple(
        {k: v * ((0.8, 1.2)[n % 2] if k[0] == "prefill_seconds" else 1.0) for k, v in block.items()}
        for n, block in enumerate(window.blocks)
    )
    return replace(window, blocks=blocks)


def width(entry: dict[str, Any]) -> float:
    return float((entry["high"] - entry["low"]) / entry["ratio"])


@pytest.mark.parametrize("stamp", ["2999-01-01T00:00:00Z", "text", None])
def test_an_entry_of_a_time_to_come_or_none_is_measured_anew(stamp: str | None) -> None:
    world, name, _ = calibrated()
    good = by_stage(world, name)
    record = world.get("InferenceRevision", name)
    world.put({**record, "status": {"calibration": [{**e, "measuredAt": stamp} for e in good.values()]}})
    assert passes(world) == 1
    assert by_stage(world, name) == good


def test_why_a_measured_service_is_never_calibrated_is_in_the_condition_unless_it_comes_and_goes() -> None:
    world, name, budget = served()
    found = seen(budget)
    few = replace(
        found, blocks=tuple({k: v / 30 if "budget" not in k[0] else v for k, v in b.items()} for b in found.blocks)
    )
    tell(world, name, few)
    world.reconcile()
    assert note(world) == f"revision {name} is measured"
    measured = Measurements({(name, "serve"): found})
    stages = Ratios("", "", (NotMeasured("", "PipelineStages", "batches overlap in pipeline stages"),))
    aspect = metrics_aspect(measured, {(name, "serve"): stages}, name, settled=True)
    assert aspect is not None
    assert aspect.message.endswith("no calibration from them: batches overlap in pipeline stages")
    odd = replace(found, blocks=tuple({**b, ("kv_tokens", "256-512"): 1e308} for b in found.blocks))
    tell(world, name, odd)
    world.reconcile()
    assert "numbers that no engine has" in note(world)
    assert entries(world, name) == []


def note(world: World) -> str:
    condition = world.condition("MetricsAvailable")
    assert condition is not None
    return str(condition["message"])


def test_D24_a_calibration_makes_no_rollout_and_changes_no_pinned_plan() -> None:
    world, name, _ = served()
    quiet = world.look()[1]
    before = world.revision, world.status["plan"]
    tell(world, name, seen(int(world.get("InferenceRevision", name)["spec"]["plan"]["settings"]["tokenBudget"])))
    world.settle()
    assert not quiet.writes
    assert (world.revision, world.status["plan"]) == before
    assert len(world.names("InferenceRevision")) == 1


def test_the_next_plan_uses_it_and_says_so() -> None:
    world, _, _ = calibrated()
    world.edit(model={"maxModelLength": 8192}, engine={"pins": {"tensorParallel": 1}})
    world.reconcile()
    plan = world.get("InferenceRevision", world.revision["desired"])["spec"]["plan"]
    assert {c["stage"] for c in plan["predicted"]["calibrated"]} >= {"prefill"}
    said = next(r["message"] for r in world.status["plan"]["reasons"] if r["code"] == "Predicted")
    assert "calibrated" in said
    assert "prefill x1." in said


def test_a_status_edited_by_somebody_else_is_put_right_and_the_rest_of_it_left_alone() -> None:
    world, name, _ = calibrated()
    good = entries(world, name)
    for bad in ([{"stage": 1}], "text", None, [{**good[0], "ratio": 9.0, "low": 8.0, "high": 10.0}], []):
        record = world.get("InferenceRevision", name)
        world.put({**record, "status": {"verdict": "Pass", "calibration": bad}})
        world.reconcile()
        assert entries(world, name) == sorted(good, key=lambda e: e["stage"])
        assert world.get("InferenceRevision", name)["status"]["verdict"] == "Pass"
        assert passes(world) == 0


def test_two_operators_write_the_same() -> None:
    world, _, _ = calibrated()
    again = decide(world.observe())
    assert again == decide(world.observe())
    assert not again.writes


@pytest.mark.parametrize("steps", range(3))
def test_an_operator_that_dies_while_it_writes_is_made_up_for(steps: int) -> None:
    world, name, budget = served()
    tell(world, name, seen(budget))
    world.reconcile(steps)
    world.reconcile()
    assert set(by_stage(world, name)) == {"prefill", "decode"}
    assert passes(world) == 0


def test_settings_that_changed_leave_no_entry_and_the_condition_says_why() -> None:
    world, name, budget = served()
    found = seen(budget)
    first = {**found.blocks[0], ("least_generation", ""): 0.0}
    tell(world, name, replace(found, blocks=(first, *found.blocks[1:])))
    world.reconcile()
    assert entries(world, name) == []
    condition = world.condition("MetricsAvailable")
    assert condition is not None
    assert condition["status"] == "True"
    assert "settings changed" in condition["message"]


def test_an_outage_is_a_condition_and_no_reason_to_be_less_ready() -> None:
    world, name, budget = calibrated()
    world.measured = lambda: Measurements(
        fault="Prometheus at http://p can't be reached (refused): see that it answers"
    )
    assert passes(world) == 2, "a status and an event"
    assert world.says("MetricsAvailable") == ("False", "PrometheusError")
    assert world.says("Ready") == ("True", "Serving")
    assert set(by_stage(world, name)) == {"prefill", "decode"}, "what was measured stays"
    assert passes(world) == 0
    tell(world, name, seen(budget))
    world.reconcile()
    assert world.says("MetricsAvailable") == ("True", "Measured")


def test_who_is_not_measured_is_missed_only_after_a_while() -> None:
    world, _, _ = served()
    world.measured = Measurements
    assert passes(world) == 0
    world.wait(601)
    world.reconcile()
    assert world.says("MetricsAvailable") == ("False", "MetricsMissing")
    world.measured = lambda: None
    world.reconcile()
    assert world.condition("MetricsAvailable") is None, "nobody is asked"


def test_measurements_that_stopped_are_old() -> None:
    world, name, budget = served()
    found = seen(budget)
    tell(world, name, replace(found, blocks=(*found.blocks[:-1], {})))
    world.reconcile()
    assert world.says("MetricsAvailable") == ("False", "MetricsStale")
    assert entries(world, name) == []


def test_windows_of_revisions_and_roles_that_nobody_knows_are_left_alone() -> None:
    world, name, budget = served()
    tell(world, "chat-ffffffff", seen(budget))
    assert passes(world) == 0
    tell(world, name, seen(budget), role="other")
    world.reconcile()
    assert entries(world, name) == []


def test_a_record_that_is_gone_meanwhile_is_not_made_again() -> None:
    world, name, budget = served()
    tell(world, name, seen(budget))
    _, decision = world.look()
    (written,) = decision.calibrate
    record: Object = world.get("InferenceRevision", name)
    assert written["metadata"]["uid"] == record["metadata"]["uid"]
    assert set(written) == {"apiVersion", "kind", "metadata", "status"}
