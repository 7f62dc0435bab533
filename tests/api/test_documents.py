"""YAML as Kubernetes reads it, with lines. The same scalars are asked from a real API server in e2e/validation."""

from typing import Any

import pytest

from firsttoken.api.documents import plain, read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True), ("y", True), ("Off", False), ("N", False), ("tRue", "tRue"),
        ("~", None), ("Null", None), ("", None),
        ("1", 1), ("+1", 1), ("-1", -1), ("010", 8), ("08", 8), ("0o10", 8), ("0x1F", 31), ("0b11", 3), ("-0b11", -3),
        ("1_000", 1000), ("_1", "_1"), ("-", "-"), ("1:30", "1:30"), ("2026-01-01", "2026-01-01"), ("1.2.3", "1.2.3"),
        ("1e3", 1000), ("1.0", 1), ("1.5e3", 1500), (".5", 0.5), ("1e400", "1e400"), ("1e-7", 1e-7),
        ("9223372036854775807", 2**63 - 1), ("9223372036854775808", float(2**63)), ("9" * 5000, "9" * 5000),
    ],
)  # fmt: skip
def test_plain_scalars(text: str, value: Any) -> None:
    found = plain(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", [".inf", "-.Inf", ".nan"])
def test_numbers_that_json_lacks_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="JSON has no such number"):
        plain(text)
    (document,) = read(f"a: {text}")
    assert document.causes[0].at == ("a",)


def test_quotes_and_tags_make_text() -> None:
    (document,) = read("a: '1'\nb: \"yes\"\nc: !!str 2\nd: !own 3\n")
    assert document.value == {"a": "1", "b": "yes", "c": "2", "d": "3"}


def test_each_value_has_its_line() -> None:
    (document,) = read("\na:\n  - b: 1\n  -\n    c: 2\n")
    assert document.line == 2
    assert document.line_of(("a",)) == 2
    assert document.line_of(("a", 0, "b")) == 3
    assert document.line_of(("a", 1, "c")) == 5
    assert document.line_of(("a", 1, "missing", "deeper")) == 5


def test_documents_are_counted_without_empty_ones() -> None:
    documents = list(read("---\n---\na: 1\n---\n# nothing\n---\nb: 2\n"))
    assert [d.index for d in documents] == [0, 1]
    assert [d.line for d in documents] == [3, 7]


def test_a_key_given_twice_is_a_fault_at_the_second_place() -> None:
    (document,) = read("a:\n  b: 1\n  b: 2\n")
    (cause,) = document.causes
    assert (cause.path, cause.message, cause.line) == ("a.b", 'key "b" already set in map', 3)


def test_merge_keys_give_way_to_own_keys() -> None:
    (document,) = read("base: &base {p: 1, q: 2}\nown:\n  <<: *base\n  q: 3\nboth:\n  <<: [*base, {r: 4, p: 9}]\n")
    assert document.value["own"] == {"p": 1, "q": 3}
    assert document.value["both"] == {"p": 1, "q": 2, "r": 4}


def test_keys_are_text() -> None:
    (document,) = read("{1: a, true: b, 1.5: c, null: d}")
    assert document.value == {"1": "a", "true": "b", "1.5": "c", "null": "d"}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: [1, 2\n", 3, "not YAML"),
        ("a:\n\tb: 1\n", 2, "indent with spaces, not tabs"),
        ("a: 1\nb: \x07\n", 2, "not allowed"),
        ("? [a, b]\n: 1\n", 1, "a key must be text"),
        ("a: *nowhere\n", 1, "undefined alias"),
        ("[" * 3000, 1, "nested too deeply"),
        ('a: "\\UFFFFFFFF"\n', 1, "not YAML"),
        ("a: {<<: 1}\n", 1, "map merge requires map"),
    ],
)
def test_what_is_not_yaml_is_said_with_its_line(text: str, line: int, message: str) -> None:
    *_, document = read(text)
    assert any(message in cause.message for cause in document.causes), document.causes
    assert (document.causes[0].line or document.line_of(document.causes[0].at)) == line


def test_documents_before_an_error_are_read() -> None:
    good, bad = read("a: 1\n---\nb: [\n")
    assert good.value == {"a": 1}
    assert bad.index == 1
    assert bad.causes
