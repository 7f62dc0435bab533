"""Traces of requests, as CSV with a header or one JSON object a line: times of arrival, lengths, shared blocks.

Known by their column names: Azure's public trace of 2023, Mooncake's, and our own form (`arrival` in seconds,
`prompt_tokens`, `output_tokens`; optional `priority` and `block_hashes`).
"""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.requests import MOST_TOKENS, Requests, requests

EXCERPTS = ("azure_conversation_2023.csv", "azure_code_2023.csv", "mooncake_conversation.jsonl")


# Of a time and between two: more is milliseconds or microseconds, and floats no longer tell tokens apart.
MOST_TIME = 1e11  # seconds, about 3,000 years
MOST_SPAN = 10 * 366 * 86_400.0  # seconds
_ECHOED = 60  # characters of a wrong cell in a message


@dataclass(frozen=True)
class TraceFormat:
    """Names of the columns. `seconds`: from a cell to a time; `zoned`: whether the cell says its offset from UTC."""

    name: str
    arrival: str
    prompt: str
    output: str
    seconds: Callable[[Any], float]
    hashes: str = ""
    hash_tokens: int = 16
    priority: str = ""
    zoned: Callable[[Any], bool] = lambda _: False

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns that must be there."""
        return self.arrival, self.prompt, self.output


def _moment(cell: Any) -> datetime:
    return datetime.fromisoformat(str(cell).strip())


def _clock_time(cell: Any) -> float:
    """Seconds since some day, in UTC if the cell has an offset; Azure's seven decimals are cut to microseconds."""
    moment = _moment(cell)
    return (moment - datetime(2000, 1, 1, tzinfo=None if moment.tzinfo is None else UTC)).total_seconds()


def _has_offset(cell: Any) -> bool:
    return _moment(cell).tzinfo is not None


FORMATS = (
    TraceFormat(
        "Azure 2023", "TIMESTAMP", "ContextTokens", "GeneratedTokens", _clock_time, zoned=_has_offset
    ),
    TraceFormat("Mooncake", "timestamp", "input_length", "output_length", lambda c: float(c) / 1e3, "hash_ids", 512),
    TraceFormat(
        "Firsttoken", "arrival", "prompt_tokens", "output_tokens", float, "block_hashes", 16, "priority"
    ),
)  # fmt: skip


class _Row(NamedTuple):
    """One request, and where it is written."""

    line: int
    arrival: float
    prompt: int
    output: int
    hashes: Sequence[int]
    priority: int
    zoned: bool


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
    tokens = hash_tokens or form.hash_tokens
    found = [_request(form, first[1], name, first[0], tokens)]
    found += [_request(form, cells, name, number, tokens) for number, cells in rows]
    start = _start(form, found, name)
    shared = any(one.hashes for one in found)
    if shared:
        _check_places(form, found, name)
    return requests(
        [one.arrival - start for one in found],
        [one.prompt for one in found],
        [one.output for one in found],
        priority=[one.priority for one in found],
        block_hashes=[one.hashes for one in found] if shared else None,
        hash_tokens=tokens,
    )


def _start(form: TraceFormat, found: Sequence[_Row], name: str) -> float:
    """When the first request arrives. Raises SimulationInputError: times can't be of one trace."""
    other = next((one for one in found if one.zoned != found[0].zoned), None)
    if other is not None:
        raise SimulationInputError(
            f"{name}:{other.line}: {form.arrival} {'has an' if other.zoned else 'has no'} offset from UTC, unlike that "
            f"of line {found[0].line}: give all of them one, or none"
        )
    start = min(one.arrival for one in found)
    late = next((one for one in found if one.arrival - start > MOST_SPAN), None)
    if late is not None:
        raise SimulationInputError(
            f"{name}:{late.line}: {form.arrival} is {late.arrival - start:.3g} s after the first request: a trace "
            "spans at most ten years; check the column's unit"
        )
    return start


def _check_places(form: TraceFormat, found: Sequence[_Row], name: str) -> None:
    """A hash stands for a block and all before it, so it has one place. Raises SimulationInputError: one has two."""
    sizes = np.fromiter((len(one.hashes) for one in found), np.int64, len(found))
    ends = np.cumsum(sizes)
    flat = np.fromiter((h for one in found for h in one.hashes), np.int64, int(ends[-1]))
    places = np.arange(len(flat)) - np.repeat(ends - sizes, sizes)
    order = np.argsort(flat, kind="stable")
    before, after = order[:-1], order[1:]
    wrong = np.flatnonzero((flat[before] == flat[after]) & (places[before] != places[after]))
    if not len(wrong):
        return
    pair = wrong[np.argmin(after[wrong])]
    one, two = int(before[pair]), int(after[pair])
    lines = [found[int(np.searchsorted(ends, index, side="right"))].line for index in (one, two)]
    raise SimulationInputError(
        f"{name}:{lines[1]}: {form.hashes} has {flat[two]} as block {places[two] + 1}, and in line {lines[0]} it is "
        f"block {places[one] + 1}: a hash stands for a block and all before it"
    )


def excerpt(name: str) -> Requests:
    """One of the EXCERPTS that ship with the package: the first 1,000 requests (data/README.md: sources, licences)."""
    text = files("firsttoken.simulation").joinpath("data", name).read_text(encoding="utf-8")
    return read_trace(text.splitlines(), name)


def _rows(lines: Iterable[str], name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line numbers from 1 and cells by column, of CSV or of JSON objects, whichever comes first."""
    numbered = ((number, line.strip().removeprefix("\ufeff")) for number, line in enumerate(lines, 1))
    header: list[str] | None = None
    as_json: bool | None = None
    for number, line in numbered:
        where = f"{name}:{number}"
        if not line:
            continue
        if as_json is None:
            as_json = line.startswith("{")
            if line.startswith("["):
                raise SimulationInputError(f"{where}: a JSON list: write one object a line instead")
        if as_json:
            yield number, _object(line, where)
            continue
        cells = _cells(line, where)
        if header is None:
            header = [cell.strip() for cell in cells]
            _check_names(header, where)
            continue
        if len(cells) != len(header):
            raise SimulationInputError(f"{where}: {len(cells)} cells where the header has {len(header)}")
        yield number, dict(zip(header, cells, strict=True))


def _cells(line: str, where: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error as error:
        raise SimulationInputError(f"{where}: no CSV: {error}") from error


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        pairs = json.loads(line, object_pairs_hook=list)  # that a name comes twice shows only here
    except json.JSONDecodeError as error:
        raise SimulationInputError(f"{where}: no JSON object: {error.msg}") from error
    except ValueError as error:  # an integer of thousands of digits
        raise SimulationInputError(f"{where}: no JSON object: a number has too many digits") from error
    except RecursionError as error:
        raise SimulationInputError(f"{where}: no JSON object: nested too deep") from error
    if not line.startswith("{"):
        raise SimulationInputError(f"{where}: no JSON object: write one on every line")
    _check_names([key for key, _ in pairs], where)
    return dict(pairs)


def _check_names(names: Sequence[str], where: str) -> None:
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise SimulationInputError(f"{where}: column {_shown(twice)} is there twice: leave one out")


def _format(cells: Mapping[str, Any], where: str) -> TraceFormat:
    for form in FORMATS:
        if all(name in cells for name in form.needed):
            return form
    known = "; ".join(f"{form.name}: {', '.join(form.needed)}" for form in FORMATS)
    there = ", ".join(cells)
    there = there if len(there) <= 2 * _ECHOED else there[: 2 * _ECHOED] + "…"
    raise SimulationInputError(f"{where}: columns {there} are of no known trace: rename them ({known})")


def _request(form: TraceFormat, cells: Mapping[str, Any], name: str, line: int, hash_tokens: int) -> _Row:
    where = f"{name}:{line}"
    missing = [column for column in form.needed if cells.get(column) in (None, "")]
    if missing:
        raise SimulationInputError(f"{where}: {missing[0]} is missing: every request needs one")
    cell = cells[form.arrival]
    arrival, zoned = _time(form, cell, where)
    prompt, output = (_whole(cells[column], column, where, 1, MOST_TOKENS) for column in (form.prompt, form.output))
    given = cells.get(form.priority) if form.priority else None
    priority = 0 if given in (None, "") else _whole(given, form.priority, where, -128, 127)
    hashes = _hashes(form, cells, where)
    if len(hashes) > -(-prompt // hash_tokens):
        raise SimulationInputError(
            f"{where}: {form.hashes} has {len(hashes)} blocks: {prompt} prompt tokens are "
            f"{-(-prompt // hash_tokens)} blocks of {hash_tokens}"
        )
    return _Row(line, arrival, prompt, output, hashes, priority, zoned)


def _time(form: TraceFormat, cell: Any, where: str) -> tuple[float, bool]:
    """Seconds, and whether the cell says an offset from UTC."""
    try:
        if isinstance(cell, bool | list):
            raise TypeError("no time")
        arrival, zoned = form.seconds(cell), form.zoned(cell)
    except (ValueError, TypeError, OverflowError) as error:
        raise SimulationInputError(f"{where}: {form.arrival} is {_shown(cell)}: no time") from error
    if not abs(arrival) < float("inf"):
        raise SimulationInputError(f"{where}: {form.arrival} is {_shown(cell)}: no time")
    if abs(arrival) > MOST_TIME:
        raise SimulationInputError(f"{where}: {form.arrival} is {_shown(cell)}: too large; check the column's unit")
    return arrival, zoned


def _whole(cell: Any, name: str, where: str, low: int, high: int) -> int:
    try:
        value = low - 1 if isinstance(cell, bool | list) else int(str(cell))
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise SimulationInputError(f"{where}: {name} is {_shown(cell)}: give a whole number from {low} to {high}")
    return value


def _hashes(form: TraceFormat, cells: Mapping[str, Any], where: str) -> list[int]:
    """A list of numbers, in CSV separated by spaces."""
    given = cells.get(form.hashes) if form.hashes else None
    if given is None:
        return []
    parts = given.split() if isinstance(given, str) else given
    if not isinstance(parts, list):
        raise SimulationInputError(f"{where}: {form.hashes} is {_shown(given)}: give a list of whole numbers")
    return [_whole(part, form.hashes, where, -(2**63), 2**63 - 1) for part in parts]


def _shown(cell: Any) -> str:
    """A wrong cell as far as it helps. What is nested is not: it may be endless."""
    if isinstance(cell, list | dict):
        return "a list or an object"
    text = repr(cell[:_ECHOED] if isinstance(cell, str) else cell)
    cut = (isinstance(cell, str) and len(cell) > _ECHOED) or len(text) > _ECHOED + 2
    return text[: _ECHOED + 2] + "…" if cut else text
