"""Prometheus' answers to `questions.QUESTIONS` as what was measured of each service."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from sys import intern
from typing import Any

from firsttoken.measurement.blocks import Measurements, Part, Window
from firsttoken.measurement.questions import NAMESPACE, QUESTIONS, REVISION, ROLE, SERVICE, Question

Key = tuple[str, str]  # namespace, name of the service
_Blocks = list[dict[tuple[str, str], float]]


class AnswerError(ValueError):
    """An answer is not what Prometheus' API says: one phrase. `kind`: garbled, refused, partial, large or failing."""

    def __init__(self, what: str, kind: str = "garbled") -> None:
        super().__init__(what)
        self.kind = kind


def series_of(answer: Any) -> list[Any]:
    """The series of an answer of `/api/v1/query_range`. Raises AnswerError."""
    if not isinstance(answer, Mapping):
        raise AnswerError("an answer is no JSON object")
    if answer.get("status") != "success":
        why = str(answer.get("error") or "without a reason")[:200]
        raise AnswerError(f"it refuses a question: {why}", "refused")
    data = answer.get("data")
    if not isinstance(data, Mapping) or data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        raise AnswerError("an answer is no matrix")
    _whole(answer)
    return list(data["result"])


def _whole(answer: Mapping[str, Any]) -> None:
    """Raises AnswerError where a store behind it gave nothing: Thanos and Mimir warn, VictoriaMetrics has a flag."""
    warnings = answer.get("warnings")
    # Remarks on the question's own text are no missing data.
    missing = [w for w in warnings if not str(w).startswith("PromQL")] if isinstance(warnings, list) else []
    if missing or answer.get("isPartial") is True:
        raise AnswerError(f"an answer is not whole: {str(missing[0] if missing else 'isPartial')[:200]}", "partial")


def time_of(answer: Any) -> float:
    """Of an answer to `time()`, epoch seconds: a scalar by Prometheus, a vector by others. Raises AnswerError."""
    try:
        data = answer["data"]
        value = data["result"][0]["value"] if data["resultType"] == "vector" else data["result"]
        return float(value[1])
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise AnswerError("it does not tell the time") from error


class Folded:
    """Answers one after the other, each made small before the next is asked for."""

    def __init__(self, end: float, seconds: float, blocks: int) -> None:
        """`end` of the last of the `blocks` of `seconds`, epoch seconds."""
        self._end, self._seconds, self._count = end, seconds, blocks
        self._found: dict[Key, dict[Part, _Blocks]] = defaultdict(dict)

    def add(self, question: Question, series: Iterable[Any]) -> None:
        """Of one question. Series without the labels of the telemetry contract are left out. Raises AnswerError."""
        for one in series:
            try:
                self._add(question, one["metric"], one["values"])
            except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
                raise AnswerError(f"a series of an answer can't be read ({error!r})") from error

    def _add(self, question: Question, labels: Mapping[str, str], values: Iterable[tuple[float, str]]) -> None:
        known = [labels.get(name) for name in (NAMESPACE, SERVICE, REVISION, ROLE)]
        told = labels.get(question.label) if question.label else ""
        if not all(known) or told is None:
            return
        # Names come with every series of every answer: one copy of each is kept.
        namespace, service, revision, role, told = (intern(str(name)) for name in (*known, told))
        parts = self._found[namespace, service]
        window = parts.setdefault((revision, role), [{} for _ in range(self._count)])
        for time, value in values:
            at, number = self._count - 1 - round((self._end - float(time)) / self._seconds), float(value)
            if 0 <= at < self._count:
                window[at][question.name, told] = number

    def found(self) -> dict[Key, Measurements]:
        """By service."""
        return {
            key: Measurements({part: Window(self._seconds, tuple(window)) for part, window in parts.items()})
            for key, parts in self._found.items()
        }


def measurements_of(
    answers: Mapping[str, Sequence[Any]], end: float, seconds: float, blocks: int
) -> dict[Key, Measurements]:
    """By service, of all answers: the series by question. Raises AnswerError."""
    folded = Folded(end, seconds, blocks)
    for question in QUESTIONS:
        folded.add(question, answers[question.name])
    return folded.found()
