"""Numbers in sentences, and that no sentence of a plan writes them otherwise."""

import re

import pytest

from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import Plan
from firsttoken.planning.words import at_rate, count, device_noun, milliseconds, number
from planning.specs import QWEN_7B, planned, reason, service

SMALL = "hf://Qwen/Qwen2.5-0.5B-Instruct"


@pytest.mark.parametrize(
    ("value", "text"),
    [(1130.4, "1130"), (1_234_567, "1230000"), (25.13, "25.1"), (0.605, "0.605"), (0.0000405, "0.0000405"), (0, "0")],
)
def test_a_number_has_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


def test_one_is_singular() -> None:
    assert (count(1, "GPU"), count(2, "GPU"), count(0, "replica")) == ("1 GPU", "2 GPUs", "0 replicas")
    assert (device_noun(["cpu"]), device_noun(["nvidia-t4"])) == ("device", "GPU")


@pytest.mark.parametrize(
    ("seconds", "text"), [(1130, "1130 s"), (1.5, "1.5 s"), (0.9999, "1 s"), (0.0123, "12.3 ms"), (0.9994, "999 ms")]
)
def test_a_time_is_in_seconds_from_one_second_on(seconds: float, text: str) -> None:
    assert milliseconds(seconds) == text


def test_nothing_is_predicted_at_no_requests() -> None:
    assert at_rate(0.0) == "for an idle replica"
    assert at_rate(0.25) == "at 0.25 requests/s"


# A slow device, so that times and rates are far from one; two devices, one, and a split.
PLANS = [
    service(SMALL, "cpu", scaling={"replicas": 2}),
    service(SMALL, "cpu", workload={"profile": "Summarization"}),
    service(QWEN_7B, "nvidia-h100-80gb", 4, workload={"requestsPerSecond": 2000}),
    service(QWEN_7B, "nvidia-h100-80gb", 2, layout={"mode": "Disaggregated"}),
]


@pytest.mark.parametrize("spec", PLANS, ids=["cpu", "slow", "fast", "split"])
def test_no_sentence_of_a_plan_has_an_exponent_or_a_plural_in_brackets(spec: object) -> None:
    plan = make_plan(spec, catalogue())  # type: ignore[arg-type]
    assert isinstance(plan, Plan)
    for said in plan.reasons:
        assert not re.search(r"\d[eE][+-]?\d\d|\(s\)|\b1 (GPUs|replicas|devices|requests)\b", said.message), said


def test_replicas_of_one_role_are_not_counted_for_each_role() -> None:
    one = planned(service(SMALL, "cpu", scaling={"replicas": 2}))
    assert reason(one, "Replicas").startswith("2 replicas, as spec.scaling.replicas says")
    two = planned(service(QWEN_7B, "nvidia-h100-80gb", layout={"mode": "Disaggregated"}, scaling={"replicas": 2}))
    assert reason(two, "Replicas").startswith("2 for each role, as spec.scaling.replicas says")


def test_a_promise_that_is_the_profile_s_default_is_called_so_wherever_it_is_spoken_of() -> None:
    plan = planned(service(SMALL, "cpu"))
    for code in ("TensorParallel", "SLOMissed"):
        assert "TTFT P95 within 1 s (the profile's default)" in reason(plan, code)
    own = planned(service(SMALL, "cpu", slos=[{"metric": "TTFT", "target": "1s"}]))
    assert "TTFT P95 within 1 s: " in reason(own, "SLOMissed")
