"""Rules beside the code that relies on them, and rules whose edges are easy to get wrong."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firsttoken.api import cel_rules
from firsttoken.api.base import matches
from firsttoken.api.documents import read
from firsttoken.api.example import BASES, field
from firsttoken.api.go_text import number, quoted
from firsttoken.api.kubernetes import QUANTITY_PATTERN
from firsttoken.api.quantities import DURATION_PATTERN, duration_seconds, quantity
from firsttoken.api.validation import check_object
from firsttoken.api.validation_examples import merge


def verdict(path: str, value: str) -> list[str]:
    """Messages for the smallest service with one field set to a YAML value."""
    (base,), (patch,) = read(BASES["InferenceService"]), read(field(path, value))
    return [cause.message for cause in check_object(merge(base.value, patch.value))]


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("0123456789.mshd"), max_size=10))
def test_a_duration_that_the_api_takes_is_one_that_we_parse(text: str) -> None:
    try:
        duration_seconds(text)
        parsed = True
    except ValueError:
        parsed = False
    assert cel_rules.run(matches(DURATION_PATTERN), text) is parsed


@settings(max_examples=300, deadline=None)
@given(st.from_regex(QUANTITY_PATTERN.replace("$", r"\Z")))
def test_a_quantity_that_the_api_takes_is_one_that_we_parse(text: str) -> None:
    assert quantity(text) >= 0


@pytest.mark.parametrize("unit", ["ms", "s", "m", "h", "d"])
def test_the_longest_duration_stays_inside_the_calendar(unit: str) -> None:
    part = ("9999" if unit == "d" else "999999") + unit
    text = part * (32 // len(part))
    assert cel_rules.run(matches(DURATION_PATTERN), text) is True
    assert datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=duration_seconds(text)) < datetime(
        2600, 1, 1, tzinfo=UTC
    )


@pytest.mark.parametrize("text", ["9999999999999d", "10000d", "1000000s", "1.1234567s", "1m" * 17, "1s\n", ""])
def test_a_number_without_bound_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="at most 6 digits"):
        duration_seconds(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1E", 10**18), ("1e3", 1000), ("1E3", 1000), ("1.5e3", 1500), ("5e-1", 0.5), ("+2", 2), ("-1", -1), (".5", 0.5),
     ("5.", 5), ("2Ei", 2**61), ("100u", 1e-4)],
)  # fmt: skip
def test_quantities_as_kubernetes_writes_them(text: str, number: float) -> None:
    assert math.isclose(quantity(text), number)


@pytest.mark.parametrize("text", ["", "E", "e3", "1e", "1e3Ki", "1e999999999", "1 Gi", "1GB", "--1", "1e3\n"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity(text)


@pytest.mark.parametrize(
    ("path", "value"),
    [("spec.engine.pins.attentionBackend", v) for v in ("FLASH_ATTN_MLA", "FLASHINFER_MLA", "CUTLASS_MLA")]
    + [("spec.engine.pins.kvCacheDtype", v) for v in ("nvfp4", "int8_per_token_head", "int4_per_token_head")]
    + [("spec.model.quantization", v) for v in ("modelopt", "mxfp4")]
    + [("spec.rollout.analysis", "{onInconclusive: Rollback, deadline: 24h}")]
    + [("spec.podTemplate.engine.resources.limits", v) for v in ("{memory: 1e9}", "{memory: '1E3'}", "{memory: 1E}")],
)
def test_values_that_are_let_through(path: str, value: str) -> None:
    assert verdict(path, value) == []


@pytest.mark.parametrize(
    "schedule",
    ["@monthly", "@Daily", "0 6 1 * *", "*/15 * * * *", "0 0 1,15 * MON-FRI", "5/10 0-23/2 1-31 JAN-DEC sun",
     "0  6 * * 7",
     "59 23 31 12 0"],
)  # fmt: skip
def test_schedules(schedule: str) -> None:
    assert verdict("spec.inspection.schedule", f"'{schedule}'") == []


@pytest.mark.parametrize(
    "schedule",
    ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *", "* * * * 8",
     "*/0 * * * *", "a * * * *", "@every 5m", "@reboot", "* * * * MONDAY", "1- * * * *", "1,,2 * * * *", "? * * * *",
     "30-10 * * * *", "* * * DEC-JAN *", "* * * * SAT-MON", " 0 6 1 * *", "0 6 1 * *\\n"],
)  # fmt: skip
def test_what_is_no_schedule(schedule: str) -> None:
    assert len(verdict("spec.inspection.schedule", f'"{schedule}"')) == 1


@pytest.mark.parametrize(
    ("bucket", "good"),
    [("all", True), ("0-64", True), ("64-256", True), ("4096-16384", True), ("16384+", True),
     ("0-256", False), ("64-512", False), ("4096+", False), ("256-64", False), ("064-256", False), ("63-256", False),
     ("99999999999999999999-5", False), ("99999999999+", False)],
)  # fmt: skip
def test_an_slo_is_about_a_measured_bucket(bucket: str, good: bool) -> None:
    found = verdict("spec.slos", f"[{{metric: TTFT, target: 1s, promptTokens: '{bucket}'}}]")
    assert (found == []) is good
    assert all("bucket" in message for message in found)


def test_an_slo_follows_changed_buckets() -> None:
    slos = "[{metric: TTFT, target: 1s, promptTokens: 0-2048}, {metric: TTFT, target: 1s, promptTokens: 2048+}]"
    value = f"{{slos: {slos}, measurement: {{promptTokenBuckets: [2048]}}}}"
    assert verdict("spec", value) == []


@pytest.mark.parametrize(
    ("target", "good"), [("1ms", True), ("0.5s", True), ("0s", False), ("0.00s", False), ("0h0m", False)]
)
def test_a_target_is_above_zero(target: str, good: bool) -> None:
    assert (verdict("spec.slos", f"[{{metric: TTFT, target: {target}}}]") == []) is good


@pytest.mark.parametrize("value", ["0", "1", "0.05", "0.995"])
def test_whole_numbers_do_not_slip_through_a_fractional_bound(value: str) -> None:
    assert len(verdict("spec.engine.pins.gpuMemoryUtilization", value)) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), (0.5, "0.5"), (1e6, "1e+06"), (123456789.5, "1.234567895e+08"), (1e-5, "1e-05"), (0.0001, "0.0001"),
     (100000.0, "100000"), (999999.0, "999999"), (2.5, "2.5"), (1e22, "1e+22"), (-1.5e-7, "-1.5e-07"), (0.0, "0")],
)  # fmt: skip
def test_numbers_are_printed_as_go_does(value: float, text: str) -> None:
    assert number(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_printed_number_is_exact(value: float) -> None:
    assert math.isclose(float(number(value)), value, rel_tol=0, abs_tol=0)


@pytest.mark.parametrize(
    ("text", "printed"),
    [("a", '"a"'), ('"\\', '"\\"\\\\"'), ("\n\t", '"\\n\\t"'), ("\x00\x7f", '"\\x00\\x7f"'), ("é😀", '"é😀"'),
     ("\u200b", '"\\u200b"'), ("\U000e0001", '"\\U000e0001"'), ("\u00a0", '"\\u00a0"')],
)  # fmt: skip
def test_texts_are_quoted_as_go_does(text: str, printed: str) -> None:
    assert quoted(text) == printed


def test_cel_counts_characters_as_kubernetes_does() -> None:
    assert cel_rules.run("self.size()", "é😀") == 2


def test_a_rule_that_fails_says_so_instead_of_raising() -> None:
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": "self.a == 1", "message": "a is 1"}]}
    (cause,) = cel_rules.check({}, schema)
    assert cause.message.startswith('Invalid value: "object": KeyError')
    assert cause.message.endswith("evaluating rule: a is 1")


def test_a_rule_about_a_change_waits_for_one() -> None:
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed"}]}
    assert list(cel_rules.check({}, schema)) == []


def test_functions_of_kubernetes() -> None:
    assert cel_rules.run("self.upperAscii()", "azé") == "AZé"
    assert cel_rules.run("self.findAll('[0-9]+')", "a1b22") == ["1", "22"]
    assert cel_rules.run("[1, 2, 2].isSorted() && ![2, 1].isSorted() && [].isSorted()", None) is True
    assert cel_rules.run("[1, 2].sum() + [3, 1].max()", None) == 6
    assert cel_rules.run("quantity('1Gi').compareTo(quantity('1024Mi'))", None) == 0


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.model.architecture.inline.numAttentionHeads", "0"),
        ("spec.model.architecture.inline.numKeyValueHeads", "0"),
        ("spec.podTemplate.engine.resources", "{limits: {cpu: x}, requests: {cpu: 1}}"),
        ("spec.inspection.schedule", "'99999999999999999999-1 * * * *'"),
    ],
)
def test_a_rule_can_be_evaluated_although_a_value_is_out_of_bounds(path: str, value: str) -> None:
    """The API server evaluates rules then, and would tell of a division by zero or an overflow instead."""
    found = verdict(path, value)
    assert found
    assert not any("evaluating rule" in message for message in found)
