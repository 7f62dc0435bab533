"""Measurements in a rehearsal: the calibration arrives in the timeline, and an outage of Prometheus is told."""

from functools import cache

import pytest

from firsttoken.rehearsal.result import Rehearsal
from rehearsal.cases import at, play, reasons

HOUR = {"duration": "1h", "window": "10m"}


@cache
def quiet() -> Rehearsal:
    return play(**HOUR)


def test_a_calibration_arrives_after_half_an_hour_and_is_written_once() -> None:
    found = quiet()
    assert reasons(found).count("Calibrated") == 1
    assert at(found, "Calibrated") == 1800.0
    assert at(found, "Measured") == 300.0
    (said,) = (e.message for e in found.entries if e.reason == "Calibrated")
    assert "prefill x" in said
    assert "decode x" in said
    assert reasons(found).count("RevisionCreated") == 1, "nothing is rolled out for it"


def test_a_fleet_whose_prefill_is_slower_than_predicted_is_calibrated_so() -> None:
    found = play({"at": "0s", "badVersion": {"prefill": 1.5}}, **HOUR)
    (said,) = (e.message for e in found.entries if e.reason == "Calibrated")
    ratios = {part.split()[0]: float(part.split()[1][1:]) for part in said.partition(": ")[2].split(", ")}
    assert ratios["prefill"] == pytest.approx(1.5, rel=0.08)
    assert ratios["decode"] == pytest.approx(1.0, rel=0.08)


def test_an_outage_is_told_and_nothing_is_written_for_it_but_the_condition() -> None:
    found = play({"at": "31m", "metricsOutage": {"for": "12m"}}, **HOUR)
    assert at(found, "PrometheusError") == 2400.0, "the second round that failed"
    assert at(found, "Measured", "is measured") == 300.0
    after = [e.reason for e in found.entries if e.at > 2400.0]
    assert after == ["Measured"]
    assert found.ready


def test_a_short_outage_between_two_rounds_is_nothing_to_tell() -> None:
    found = play({"at": "34m", "metricsOutage": {"for": "2m"}}, **HOUR)
    assert "PrometheusError" not in reasons(found)
