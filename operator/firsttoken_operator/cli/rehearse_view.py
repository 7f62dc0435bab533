"""A rehearsal for people and for programs: the timeline, and what users saw window by window."""

import math
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from firsttoken.planning.words import count, number
from firsttoken.rehearsal.result import Rehearsal
from firsttoken.rehearsal.serving import Fate
from firsttoken.rehearsal.windows import ALL, Cell
from firsttoken_operator.cli.console import bullets, columns, heading, printable
from firsttoken_operator.cli.simulate_view import milliseconds

NOBODY = "(none)"  # where no revision took a request
_LOST = {
    Fate.UNSERVED: "answered 503, with no pod to send them to",
    Fate.BROKEN: "lost with pods that were lost",
    Fate.CUT_OFF: "cut off when the time to drain was up",
    Fate.ERROR: "answered 500 by a bad version",
}
_CAMEL = {
    Fate.UNSENT: "unsent", Fate.SENT: "served", Fate.REFUSED: "refused", Fate.UNSERVED: "unserved",
    Fate.BROKEN: "broken", Fate.CUT_OFF: "cutOff", Fate.ERROR: "errors",
}  # fmt: skip


def view(found: Rehearsal) -> list[RenderableType]:
    """Headline, timeline, windows, and how it ended."""
    rate = f"{number(found.rate)} requests/s" + (" (assumed: 70 % of what the plan carries)" * found.assumed_rate)
    head = f"{printable(found.service)}: {clock(found.seconds)} of virtual time, {rate}, seed {found.seed}"
    return [
        Text(head, style="bold"),
        heading("Timeline"),
        _indented(_timeline(found)),
        heading("What users saw (TTFT P95 by prompt tokens)"),
        _indented(_windows(found)),
        heading("At the end"),
        bullets(list(conclusions(found))),
    ]


def conclusions(found: Rehearsal) -> Iterator[str]:
    """How it ended, in sentences."""
    ready = next((c for c in found.status.get("conditions", ()) if c["type"] == "Ready"), None)
    if ready is None:
        yield "the operator has said nothing about Ready"
    else:
        yield f"{'Ready' if found.ready else 'not Ready'} ({ready['reason']}): {printable(ready['message'])}"
    yield f"{found.fates[Fate.SENT]:,} requests served, {found.lost:,} lost"
    for fate, how in _LOST.items():
        if found.fates[fate]:
            yield f"{found.fates[fate]:,} {how}"
    if found.fates[Fate.REFUSED]:
        yield f"{count(found.fates[Fate.REFUSED], 'prompt')} refused (400): longer than the revision's maximum length"
    if found.pods_lost:
        yield f"the world took {count(found.pods_lost, 'pod')}"
    if found.kills_to_come:
        yield f"{count(found.kills_to_come, 'killOperator event')} never came: the operator wrote less than afterWrites"
    if found.bad_events and not found.bad:
        yield "badVersion met no revision that requests went to: its `where` fits none that was made since"
    for name in found.bad:
        yield (
            f"revision {printable(name)} is bad, and got all requests as soon as it was complete: this version of the "
            "operator compares nothing before it moves requests; canaries come later"
        )
    yield f"the operator looked {count(found.passes, 'time')} and wrote {count(found.writes, 'time')}"


def _timeline(found: Rehearsal) -> RenderableType:
    table = columns("TIME", "WHO", "REASON", "WHAT")
    for entry in found.entries:
        table.add_row(clock(entry.at), entry.who, entry.reason, printable(entry.message))
    return table


def _windows(found: Rehearsal) -> RenderableType:
    seen = {cell.bucket for cell in found.cells}
    buckets = [name for name in found.buckets if name in seen]
    names = ("FROM", "REVISION", "REQUESTS", "LOST", "TTFT P50", "P95", *buckets)
    table = columns(*names, right=frozenset(range(2, len(names))))
    by_place: dict[tuple[float, str], dict[str, Cell]] = {}
    for cell in found.cells:
        by_place.setdefault((cell.start, cell.revision), {})[cell.bucket] = cell
    last = math.nan
    for (start, revision), mine in by_place.items():
        everything = mine[ALL]
        table.add_row(
            clock(start) if start != last else "",
            printable(revision.removeprefix(f"{found.service}-")) or NOBODY,
            f"{everything.requests:,}",
            f"{everything.lost:,}" if everything.lost else "",
            milliseconds(everything.ttft_p50),
            milliseconds(everything.ttft_p95),
            *(milliseconds(mine[name].ttft_p95) if name in mine else "" for name in buckets),
        )
        last = start
    return table


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def document(found: Rehearsal) -> dict[str, Any]:
    """For programs, in a fixed order of keys; seconds, null where there is nothing to say."""
    return {
        "service": found.service,
        "seconds": found.seconds,
        "seed": found.seed,
        "requestsPerSecond": found.rate,
        "assumedRate": found.assumed_rate,
        "passed": found.passed,
        "ready": found.ready,
        "requests": {_CAMEL[fate]: found.fates[fate] for fate in Fate},
        "podsLost": found.pods_lost,
        "badRevisions": list(found.bad),
        "operator": {"passes": found.passes, "writes": found.writes},
        "timeline": [vars(entry) for entry in found.entries],
        "windows": [_cell(cell) for cell in found.cells],
        "status": dict(found.status),
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "from": cell.start,
        "to": cell.end,
        "revision": cell.revision or None,
        "promptTokens": cell.bucket,
        "requests": cell.requests,
        "served": cell.served,
        "refused": cell.refused,
        "lost": cell.lost,
        "ttftSeconds": {"p50": _known(cell.ttft_p50), "p95": _known(cell.ttft_p95)},
    }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _indented(table: RenderableType) -> RenderableType:
    return Padding(table, (0, 0, 0, 2))
