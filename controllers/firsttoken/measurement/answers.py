"""Prometheus' answers to `questions.QUESTIONS` as what was measured of each service."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from firsttoken.measurement.blocks import Measurements, Part, Window
from firsttoken.measurement.questions import NAMESPACE, QUESTIONS, REVISION, ROLE, SERVICE

Key = tuple[str, str]  # namespace, name of the service
_Blocks = list[dict[tuple[str, str], float]]


class AnswerError(ValueError):
    """An answer is not what Prometheus' HTTP API says: one phrase."""


def series_of(answer: Any) -> list[Any]:
    """The series of an answer of `/api/v1/query_range`. Raises AnswerError."""
    if not isinstance(answer, Mapping):
        raise AnswerError("an answer is no JSON object")
    if answer.get("status") != "success":
        raise AnswerError(f"it refuses a question: {str(answer.get('error') or 'without a reason')[:200]}")
    data = answer.get("data")
    if not isinstance(data, Mapping) or data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        raise AnswerError("an answer is no matrix")
    return list(data["result"])


def measurements_of(
    answers: Mapping[str, Sequence[Any]], end: float, seconds: float, blocks: int
) -> dict[Key, Measurements]:
    """By service. `answers`: the series by question; `end` of the last of the `blocks` of `seconds`, epoch seconds.

    Series without the labels of the telemetry contract are left out. Raises AnswerError.
    """
    found: dict[Key, dict[Part, _Blocks]] = defaultdict(dict)
    for question in QUESTIONS:
        for one in answers[question.name]:
            try:
                labels, values = one["metric"], one["values"]
                known = [labels.get(name) for name in (NAMESPACE, SERVICE, REVISION, ROLE)]
                told = labels.get(question.label) if question.label else ""
                if not all(known) or told is None:
                    continue
                namespace, service, revision, role = known
                window = found[namespace, service].setdefault((revision, role), [{} for _ in range(blocks)])
                for time, value in values:
                    at, number = blocks - 1 - round((end - float(time)) / seconds), float(value)
                    if 0 <= at < blocks:
                        window[at][question.name, told] = number
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                raise AnswerError(f"a series of an answer can't be read ({error!r})") from error
    return {
        key: Measurements({part: Window(seconds, tuple(window)) for part, window in parts.items()})
        for key, parts in found.items()
    }
