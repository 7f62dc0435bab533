"""A simulated service for people: TTFT by prompt length, where it goes, and what the replicas did; two side by side."""

import math
from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from firsttoken.planning.words import count, number, size
from firsttoken.simulation.results import STAGES, BucketSummary
from firsttoken.simulation.service_run import ServiceRun
from firsttoken_operator.cli.console import columns, heading, printable

NOTHING = "-"
PERCENTILES = ("p50", "p95", "p99")


def view(runs: Sequence[ServiceRun], seed: int) -> list[RenderableType]:
    """One service, or two under the same requests."""
    first = runs[0]
    parts: list[RenderableType] = [Text(headline(first, seed), style="bold")]
    parts += [Text(line) for run in runs for line in notes(run, alone=len(runs) == 1)]
    if len(runs) == 1:
        parts += [heading("By prompt tokens"), _indented(_buckets(first))]
        parts += [heading("Where TTFT goes (of each stage mean, P50, P95, P99)"), _indented(_stages(first))]
        if first.arms:
            one, two = first.arms
            pair = (one, first.arms[one]), (two, first.arms[two])
            parts += [heading("Canary beside stable"), _indented(_compared(*pair))]
    else:
        parts += [heading("By prompt tokens"), _indented(_compared(*((run.name, run.buckets) for run in runs)))]
    for run in runs:
        title = "Replicas" if len(runs) == 1 else f"Replicas of {printable(run.name)}"
        parts += [heading(title), _indented(_replicas(run))]
    return parts


def headline(run: ServiceRun, seed: int) -> str:
    """What was simulated, in one line."""
    traffic = run.traffic
    asked = count(len(run.outcome.requests), "request")
    said = [f"{printable(run.name)}: {asked} from {printable(traffic.source)}", _rate(run), f"seed {seed}"]
    return ", ".join(part for part in said if part)


def _rate(run: ServiceRun) -> str:
    """With the prompts that are left out, and without them; of one request there is none."""
    traffic = run.traffic
    if math.isnan(traffic.rate):
        return "all at once" if len(traffic.requests) > 1 else ""
    assumed = " (assumed: 70 % of what the plan's replicas carry)" if traffic.assumed else ""
    left = f", {number(run.served_rate)} without those left out" if run.refused else ""
    return f"{number(traffic.rate)} requests/s{assumed}{left}"


def notes(run: ServiceRun, *, alone: bool) -> list[str]:
    """What else has to be known of a run."""
    name = "" if alone else f"{printable(run.name)}: "
    said = [
        f"{name}{size(run.plan)}, {run.plan.layout}, {number(run.seconds)} s simulated, "
        f"{number(run.output_rate())} output tokens/s"
    ]
    if run.refused:
        said.append(
            f"{name}{count(run.refused, 'prompt')} of {run.plan.max_model_length} tokens or more left out, which vLLM "
            "refuses (400): see spec.model.maxModelLength"
        )
    if run.overloaded:
        halfway, end = run.backlog
        said.append(
            f"{name}more arrives than is served: {end:,} requests wait for their first step at the last arrival, "
            f"{halfway:,} half-way: no steady state, TTFT grows with --duration; lower the rate or add replicas"
        )
    begin, end_ = run.window
    said.append(f"{name}GPU BUSY and OF PEAK are of {number(begin)} to {number(end_)} s")
    return said


def _buckets(run: ServiceRun) -> RenderableType:
    names = ("TOKENS", "REQUESTS", "TTFT P50", "P95", "P99", "TPOT P50", "P95", "CACHE HITS", "PREEMPTED")
    table = columns(*names, right=frozenset(range(1, 9)))
    for name, bucket in run.buckets.items():
        if bucket.requests:
            ttft = (milliseconds(getattr(bucket.ttft, p)) for p in PERCENTILES)
            tpot = (milliseconds(getattr(bucket.tpot, p)) for p in PERCENTILES[:2])
            table.add_row(name, f"{bucket.requests:,}", *ttft, *tpot, percent(bucket.hit_rate), str(bucket.preemptions))
    return table


def _stages(run: ServiceRun) -> RenderableType:
    shown = [name for name in STAGES if name != "transfer" or len(run.plan.roles) > 1]
    names = ("TOKENS", "", "TTFT", *(name.upper() for name in shown))
    table = columns(*names, right=frozenset(range(2, len(shown) + 3)))
    for name, bucket in run.buckets.items():
        if not bucket.requests:
            continue
        times = [bucket.times[stage] for stage in ("ttft", *shown)]
        table.add_row(name, "mean", *(milliseconds(t.mean) for t in times))
        for p in PERCENTILES:
            table.add_row("", p.upper(), *(milliseconds(getattr(t.percentiles, p)) for t in times))
    return table


Named = tuple[str, Mapping[str, BucketSummary]]


def _compared(first: Named, second: Named) -> RenderableType:
    """Of each figure the first's, the second's, and the change from one to the other."""
    table = columns(
        "TOKENS", "REQUESTS", "WHAT", *map(_cell, (first[0], second[0])), "CHANGE", right=frozenset((1, 3, 4, 5))
    )
    for name, one in first[1].items():
        two = second[1][name]
        if not one.requests and not two.requests:
            continue
        for line, (what, a, b) in enumerate(_figures(one, two)):
            asked = f"{one.requests:,}" if one.requests == two.requests else f"{one.requests:,} / {two.requests:,}"
            table.add_row(
                *((name, asked) if line == 0 else ("", "")), what, milliseconds(a), milliseconds(b), change(a, b)
            )
        table.add_row("", "", "CACHE HITS", percent(one.hit_rate), percent(two.hit_rate), NOTHING)
        table.add_row("", "", "PREEMPTED", str(one.preemptions), str(two.preemptions), NOTHING)
    return table


def _figures(one: BucketSummary, two: BucketSummary) -> list[tuple[str, float, float]]:
    found = [(f"TTFT {p.upper()}", getattr(one.ttft, p), getattr(two.ttft, p)) for p in PERCENTILES]
    stages = [s for s in STAGES if one.times[s].percentiles.p95 > 0 or two.times[s].percentiles.p95 > 0]
    found += [(f"{s} P95", one.times[s].percentiles.p95, two.times[s].percentiles.p95) for s in stages]
    return [*found, ("TPOT P95", one.tpot.p95, two.tpot.p95)]


def _replicas(run: ServiceRun) -> RenderableType:
    names = ("REPLICA", "REQUESTS", "GPU BUSY", "OF PEAK", "MOST RUNNING", "WAITING", "KV USED", "PREEMPTED")
    table = columns(*names, right=frozenset(range(1, 8)))
    for number_, one in enumerate(run.outcome.replicas):
        totals = one.totals
        table.add_row(
            f"{run.outcome.roles[number_]} {number_}",
            f"{len(one.requests):,}",
            percent(run.busy(one)),
            percent(run.compute(one)),
            str(totals.peak_running),
            str(totals.peak_waiting),
            percent(totals.peak_kv_blocks / run.kv_blocks[number_]),
            str(totals.preemptions),
        )
    return table


def milliseconds(seconds: float) -> str:
    """A time for a cell: `-` of none; one unit in all rows, so that a column can be compared."""
    return NOTHING if math.isnan(seconds) else f"{1e3 * seconds:,.1f} ms"


def percent(share: float) -> str:
    """A part of 1 for a cell; `-` of none."""
    return NOTHING if math.isnan(share) else f"{100 * share:.1f} %"


def change(before: float, after: float) -> str:
    """From one to the other in percent; `-` where there is nothing to compare."""
    known = not math.isnan(before) and not math.isnan(after) and before > 0
    return f"{100 * (after / before - 1):+.1f} %" if known else NOTHING


def _cell(name: str) -> str:
    return printable(name)


def _indented(table: RenderableType) -> RenderableType:
    return Padding(table, (0, 0, 0, 2))
