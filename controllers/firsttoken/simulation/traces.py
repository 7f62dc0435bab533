"""Traces of requests, as CSV with a header or one JSON object a line: times of arrival, lengths, shared blocks.

Known by their column names: Azure's public trace of 2023, Mooncake's, and our own form (`arrival` in seconds,
`prompt_tokens`, `output_tokens`; optional `priority` and `block_hashes`).
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import Any

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.requests import MOST_TOKENS, Requests, requests

EXCERPTS = ("azure_conversation_2023.csv", "azure_code_2023.csv", "mooncake_conversation.jsonl")


@dataclass(frozen=True)
class TraceFormat:
    """Names of the columns. `seconds`: from a cell to a time."""

    name: str
    arrival: str
    prompt: str
    output: str
    seconds: Callable[[Any], float]
    hashes: str = ""
    hash_tokens: int = 16
    priority: str = ""

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns that must be there."""
        return self.arrival, self.prompt, self.output


def _clock_time(cell: Any) -> float:
    """Seconds since some day; Azure's seven decimals are cut to microseconds."""
    moment = datetime.fromisoformat(str(cell).strip())
    return (moment - datetime(2000, 1, 1, tzinfo=moment.tzinfo)).total_seconds()


FORMATS = (
    TraceFormat("Azure 2023", "TIMESTAMP", "ContextTokens", "GeneratedTokens", _clock_time),
    TraceFormat("Mooncake", "timestamp", "input_length", "output_length", lambda c: float(c) / 1e3, "hash_ids", 512),
    TraceFormat(
        "Firsttoken", "arrival", "prompt_tokens", "output_tokens", float, "block_hashes", 16, "priority"
    ),
)  # fmt: skip


def read_trace(lines: Iterable[str], name: str, *, hash_tokens: int | None = None) -> Requests:
    """The requests of a trace; the first arrives at 0. `name` of the file, for messages.

    `hash_tokens`: prompt tokens of a hashed block where the format does not say it (512 in Mooncake's, else 16).
    Raises SimulationInputError, one line with file and line number, at the first row that is wrong.
    """
    rows = _rows(lines, name)
    first = next(rows, None)
    if first is None:
        raise SimulationInputError(f"{name}: the trace is empty: give a header and at least one request")
    form = _format(first[1], f"{name}:{first[0]}")
    found = [_request(form, first[1], f"{name}:{first[0]}")]
    found += [_request(form, cells, f"{name}:{number}") for number, cells in rows]
    start = min(one[0] for one in found)
    hashes = [one[3] for one in found]
    return requests(
        [one[0] - start for one in found],
        [one[1] for one in found],
        [one[2] for one in found],
        priority=[one[4] for one in found],
        block_hashes=hashes if any(hashes) else None,
        hash_tokens=hash_tokens or form.hash_tokens,
    )


def excerpt(name: str) -> Requests:
    """One of the EXCERPTS that ship with the package: the first 1,000 requests (data/README.md: sources, licences)."""
    text = files("firsttoken.simulation").joinpath("data", name).read_text(encoding="utf-8")
    return read_trace(text.splitlines(), name)


def _rows(lines: Iterable[str], name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line numbers from 1 and cells by column."""
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    header: list[str] | None = None
    for number, line in numbered:
        if line.lstrip().startswith("{"):
            yield number, _object(line, f"{name}:{number}")
            continue
        cells = next(csv.reader([line.strip().removeprefix("\ufeff")]))
        if header is None:
            header = [cell.strip() for cell in cells]
            continue
        if len(cells) != len(header):
            raise SimulationInputError(f"{name}:{number}: {len(cells)} cells where the header has {len(header)}")
        yield number, dict(zip(header, cells, strict=True))


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise SimulationInputError(f"{where}: no JSON object: {error.msg}") from error
    assert isinstance(found, dict)  # noqa: S101  # it begins with a brace
    return found


def _format(cells: Mapping[str, Any], where: str) -> TraceFormat:
    for form in FORMATS:
        if all(name in cells for name in form.needed):
            return form
    known = "; ".join(f"{form.name}: {', '.join(form.needed)}" for form in FORMATS)
    raise SimulationInputError(f"{where}: columns {', '.join(cells)} are of no known trace: rename them ({known})")


def _request(form: TraceFormat, cells: Mapping[str, Any], where: str) -> tuple[float, int, int, list[int], int]:
    missing = [name for name in form.needed if cells.get(name) in (None, "")]
    if missing:
        raise SimulationInputError(f"{where}: {missing[0]} is missing: every request needs one")
    try:
        arrival = form.seconds(cells[form.arrival])
    except (ValueError, TypeError, OverflowError) as error:
        raise SimulationInputError(f"{where}: {form.arrival} is {cells[form.arrival]!r}: no time") from error
    if not abs(arrival) < float("inf"):
        raise SimulationInputError(f"{where}: {form.arrival} is {cells[form.arrival]!r}: no time")
    lengths = [_whole(cells[name], name, where, 1, MOST_TOKENS) for name in (form.prompt, form.output)]
    given = cells.get(form.priority) if form.priority else None
    priority = 0 if given in (None, "") else _whole(given, form.priority, where, -128, 127)
    return arrival, lengths[0], lengths[1], _hashes(form, cells, where), priority


def _whole(cell: Any, name: str, where: str, low: int, high: int) -> int:
    try:
        value = int(str(cell))
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise SimulationInputError(f"{where}: {name} is {cell!r}: give a whole number from {low} to {high}")
    return value


def _hashes(form: TraceFormat, cells: Mapping[str, Any], where: str) -> list[int]:
    """A list of numbers, in CSV separated by spaces."""
    given = cells.get(form.hashes) if form.hashes else None
    if given is None:
        return []
    parts = given.split() if isinstance(given, str) else given
    if not isinstance(parts, list):
        raise SimulationInputError(f"{where}: {form.hashes} is {given!r}: give a list of whole numbers")
    return [_whole(part, form.hashes, where, -(2**63), 2**63 - 1) for part in parts]
