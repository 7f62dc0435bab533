"""Prometheus' answers, read; and what of them is refused."""

from typing import Any

import pytest

from firsttoken.measurement.answers import AnswerError, measurements_of, series_of, time_of
from firsttoken.measurement.contract import SERIES
from firsttoken.measurement.questions import QUESTIONS

LABELS = {"namespace": "apps", "firsttoken_service": "chat", "firsttoken_revision": "chat-1", "role": "serve"}
NONE: dict[str, list[Any]] = {q.name: [] for q in QUESTIONS}


def one(labels: dict[str, str], *values: tuple[float, str]) -> dict[str, Any]:
    return {"metric": {**LABELS, **labels}, "values": [list(v) for v in values]}


def test_values_come_to_their_block_and_label() -> None:
    answers = {
        **NONE,
        "prefills": [one({"prompt_tokens": "64-256"}, (40.0, "7"), (100.0, "9"))],
        "most_budget": [one({}, (100.004, "512"))],
    }
    (found,) = measurements_of(answers, 100.0, 30.0, 3).values()
    window = found.windows["chat-1", "serve"]
    assert window.blocks == (
        {("prefills", "64-256"): 7.0},
        {},
        {("prefills", "64-256"): 9.0, ("most_budget", ""): 512.0},
    )
    assert window.total("prefills", "64-256") == 16


def test_services_revisions_and_roles_are_kept_apart_and_series_of_others_left_out() -> None:
    series = [
        one({"firsttoken_revision": "chat-2"}, (100.0, "1")),
        one({"role": "decode"}, (100.0, "2")),
        one({"namespace": "other"}, (100.0, "3")),
        {"metric": {"namespace": "apps"}, "values": [[100.0, "4"]]},
        one({"firsttoken_service": ""}, (100.0, "5")),
    ]
    found = measurements_of({**NONE, "resets": series}, 100.0, 30.0, 2)
    assert set(found) == {("apps", "chat"), ("other", "chat")}
    assert set(found["apps", "chat"].windows) == {("chat-2", "serve"), ("chat-1", "decode")}


def test_values_outside_the_window_are_left_out_and_nan_is_kept_as_such() -> None:
    found = measurements_of({**NONE, "resets": [one({}, (10.0, "1"), (100.0, "NaN"), (160.0, "1"))]}, 100.0, 30.0, 2)
    window = found["apps", "chat"].windows["chat-1", "serve"]
    assert window.blocks[0] == {}
    assert window.unsound


@pytest.mark.parametrize(
    "answer",
    [
        None, [], "text", {"status": "error", "error": "bad"}, {"status": "success"},
        {"status": "success", "data": {"resultType": "vector", "result": []}},
        {"status": "success", "data": {"resultType": "matrix", "result": None}},
    ],
)  # fmt: skip
def test_what_is_no_answer_of_prometheus_is_refused_in_one_phrase(answer: Any) -> None:
    with pytest.raises(AnswerError) as refused:
        series_of(answer)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("series", [None, 1, {}, {"metric": 1, "values": []}, one({}, (1.0, "x")), one({}, ("y", "1"))])  # type: ignore[arg-type]
def test_a_garbled_series_is_refused(series: Any) -> None:
    with pytest.raises(AnswerError):
        measurements_of({**NONE, "resets": [series]}, 100.0, 30.0, 2)


def test_questions_ask_for_series_of_the_contract_with_their_labels() -> None:
    assert len({q.name for q in QUESTIONS}) == len(QUESTIONS)
    for question in QUESTIONS:
        (series,) = (s for s in SERIES.values() if s.name in question.text)
        assert question.label in ("", *series.labels), question
        assert ("[180000ms]" if question.whole else "[30000ms]") in question.over(30.0, 6)
        assert "$" not in question.over(30.0, 6)


def test_what_is_told_once_is_asked_of_the_whole_window() -> None:
    assert [q.name for q in QUESTIONS if q.whole] == ["resets"], "one between two blocks is in neither of them"


@pytest.mark.parametrize("more", [{"warnings": ["store 10.0.0.7 gave no answer"]}, {"isPartial": True}])
def test_an_answer_of_some_stores_only_is_none(more: dict[str, Any]) -> None:
    whole = {"status": "success", "data": {"resultType": "matrix", "result": []}}
    assert series_of({**whole, "warnings": ["PromQL info: metric might not be a counter"]}) == []
    with pytest.raises(AnswerError) as refused:
        series_of({**whole, **more})
    assert refused.value.kind == "partial"


def test_the_time_is_a_scalar_or_a_vector() -> None:
    scalar = {"status": "success", "data": {"resultType": "scalar", "result": [1.0, "7.5"]}}
    vector = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "7.5"]}]}}
    assert time_of(scalar) == time_of(vector) == 7.5
    for bad in (None, {}, {"data": {"resultType": "vector", "result": []}}, {"data": {"resultType": "scalar"}}):
        with pytest.raises(AnswerError):
            time_of(bad)
