"""`status` for people: what runs and why, for somebody who sees Firsttoken for the first time."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from firsttoken.planning.words import count, device_noun
from firsttoken_operator.cli.console import columns, heading, pairs, printable
from firsttoken_operator.cli.status_report import Report, Revision, age, left_alone

_PARTS = {
    "serving": "has all requests",
    "starting": "starts, has no requests yet",
    "draining": "finishes its streams, then goes",
}


def view(report: Report, now: datetime) -> RenderableType:
    """One service: the answer first, then what it runs, then why."""
    parts: list[RenderableType] = [_headline(report), pairs(_facts(report, now))]
    parts += [*_revisions(report, now), *_roles(report), *_reasons(report)]
    parts += _conditions(report, now)
    parts += _events(report, now)
    hint = left_alone(report, now)
    parts += [Text(f"\n{note}", style="yellow") for note in (*report.notes, *([hint] if hint else ()))]
    return Group(*parts)


def _headline(report: Report) -> Text:
    state = Text("Ready", style="bold green") if report.ready else Text("Not ready", style="bold red")
    return Text.assemble((f"{report.namespace}/{report.name}", "bold"), ": ", state)


def _facts(report: Report, now: datetime) -> list[tuple[str, RenderableType]]:
    since = age(report.since, now)
    why = f"{report.reason}: {report.message}" if report.message else report.reason
    facts: list[tuple[str, RenderableType]] = [("Why", Text(why + (f" (for {since})" if since else "")))]
    if report.endpoint:
        facts.append(("Endpoint", Text(f"{report.endpoint} (OpenAI API, inside the cluster)")))
    if report.layout:
        noun = device_noun(str(role.get("accelerator", "")) for role in report.roles)
        size = f", {count(report.gpus, noun)}" if report.gpus is not None else ""
        facts.append(("Layout", Text(f"{report.layout}{size}")))
    available = next((c for c in report.conditions if c.get("type") == "Available"), {})
    if not report.ready and available.get("status") == "True":
        facts.append(("Answers", Text(printable(str(available.get("message", ""))))))
    return facts


def _revisions(report: Report, now: datetime) -> list[RenderableType]:
    if not report.revisions:
        return []
    table = columns("REVISION", "NOW", "MADE BECAUSE")
    for revision in report.revisions:
        table.add_row(Text(revision.name), Text(_now(report, revision, now)), Text(printable(revision.why)))
    return [heading("Revisions"), _indented(table)]


def _now(report: Report, revision: Revision, now: datetime) -> str:
    part = revision.part
    if part == "draining":
        since = age(revision.since, now)
        return _PARTS[part] + (f" (for {since})" if since else "")
    if report.canary_weight and part == "starting":
        return f"canary, has {report.canary_weight} % of requests"
    size = " + ".join(f"{number} × {role}" for role, number in revision.replicas.items())
    size = f" ({size})" if size else ""
    if report.canary_weight and part == "serving":
        return f"has {100 - report.canary_weight} % of requests{size}"
    return f"{_PARTS[part]}{size}"


def _roles(report: Report) -> list[RenderableType]:
    if not report.roles:
        return []
    devices = f"{device_noun(str(role.get('accelerator', '')) for role in report.roles)}s each".upper()
    table = columns("ROLE", "READY", "ACCELERATOR", devices, right=frozenset({3}))
    for role in report.roles:
        ready, wanted = role.get("readyReplicas", 0), role.get("replicas", 0)
        style = "" if ready >= wanted else "yellow"
        table.add_row(
            Text(str(role.get("role", ""))),
            Text(f"{ready} of {wanted}", style=style),
            Text(str(role.get("accelerator", ""))),
            Text(str(role.get("gpusPerReplica", ""))),
        )
    return [heading("Replicas"), _indented(table)]


def _reasons(report: Report) -> list[RenderableType]:
    rows: list[tuple[str, RenderableType]] = [
        (str(r.get("code", "")), Text(printable(str(r.get("message", ""))))) for r in report.reasons
    ]
    return [heading("Why it is planned like this"), pairs(rows)] if rows else []


def _conditions(report: Report, now: datetime) -> list[RenderableType]:
    if not report.conditions:
        return []
    table = columns("CONDITION", "STATUS", "FOR", "REASON")
    for condition in report.conditions:
        good = (condition.get("status") == "True") == (condition.get("type") not in ("Stalled", "Reconciling"))
        table.add_row(
            Text(str(condition.get("type", ""))),
            Text(str(condition.get("status", "")), style="" if good else "yellow"),
            Text(age(condition.get("lastTransitionTime"), now)),
            Text(str(condition.get("reason", ""))),
        )
    return [heading("Conditions"), _indented(table)]


def _events(report: Report, now: datetime) -> list[RenderableType]:
    if not report.events:
        return []
    table = columns("AGO", "TYPE", "REASON", "EVENT")
    for event in report.events:
        times = f" (×{event.count})" if event.count > 1 else ""
        style = "yellow" if event.type == "Warning" else ""
        table.add_row(
            age(event.time, now),
            Text(event.type, style=style),
            Text(event.reason),
            Text(printable(event.message) + times),
        )
    return [heading("Last events"), _indented(table)]


def _indented(table: RenderableType) -> RenderableType:
    return Padding(table, (0, 0, 0, 2))


def overview(reports: Sequence[Report], now: datetime, *, all_namespaces: bool) -> list[str]:
    """The table of several services as lines, never wrapped: people read it, and so does awk."""
    rows = [["NAMESPACE", "NAME", "READY", "LAYOUT", "GPUS", "REVISION", "REASON", "AGE"]]
    for report in reports:
        serving = next((r.name for r in report.revisions if r.part == "serving"), "-")
        rows.append(
            [
                report.namespace,
                report.name,
                "True" if report.ready else "False",
                report.layout or "-",
                "-" if report.gpus is None else str(report.gpus),
                serving,
                report.reason,
                age(report.created, now) or "-",
            ]
        )
    if not all_namespaces:
        rows = [row[1:] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def change(before: Report | None, after: Report) -> list[str]:
    """What `--watch` tells after the first report: the verdict if it changed, and events that are new."""
    lines = []
    if before is None or (before.ready, before.reason, before.message) != (after.ready, after.reason, after.message):
        lines.append(f"{'Ready' if after.ready else 'Not ready'}: {after.reason}: {after.message}")
    known = {(e.time, e.reason, e.message) for e in before.events} if before else set()
    lines += [
        f"{e.type} event {e.reason}: {e.message}" for e in after.events if (e.time, e.reason, e.message) not in known
    ]
    return [printable(line) for line in lines]
