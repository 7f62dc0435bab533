"""A simulated service as one HTML page that needs nothing else: tables and charts as inline SVG."""

from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from firsttoken.simulation.outcome import Outcome
from firsttoken.simulation.results import STAGES
from firsttoken.simulation.service_run import ServiceRun
from firsttoken_operator.cli.simulate_view import PERCENTILES, headline, milliseconds, notes, percent
from firsttoken_operator.cli.svg import Line, bar_chart, line_chart

POINTS = 600  # of a line over the whole run
ZOOM = 300  # bins of the close-up at the run's full resolution
SHOWN = 4  # replicas with lines of their own

STYLE = (
    "body{font:14px/1.45 sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#1f2328}"
    "table{border-collapse:collapse;margin:.6em 0}"
    "th,td{padding:.2em .8em;text-align:right;border-bottom:1px solid #d0d7de}"
    "th:first-child,td:first-child{text-align:left}svg{width:100%;height:auto;margin:.5em 0}"
)


def page(runs: Sequence[ServiceRun], seed: int) -> str:
    """The page of one run, or of two under the same requests."""
    title = f"Simulated: {', '.join(run.name for run in runs)}"
    body = [f"<h1>{escape(title)}</h1>", f"<p>{escape(headline(runs[0], seed))}</p>"]
    body += [f"<p>{escape(line)}</p>" for run in runs for line in notes(run, alone=len(runs) == 1)]
    if len(runs) > 1:
        body.append(_both(runs))
    for run in runs:
        body += [f"<h2>{escape(run.name)}</h2>", _ttft(run), _table(run), *_over_time(run)]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>"
    )


def _ttft(run: ServiceRun) -> str:
    groups = [
        (name, [1e3 * getattr(bucket.ttft, p) for p in PERCENTILES])
        for name, bucket in run.buckets.items()
        if bucket.requests
    ]
    return bar_chart("TTFT by prompt tokens", groups, [p.upper() for p in PERCENTILES], unit="ms")


def _both(runs: Sequence[ServiceRun]) -> str:
    groups = [
        (name, [1e3 * run.buckets[name].ttft.p95 for run in runs])
        for name in runs[0].buckets
        if any(run.buckets[name].requests for run in runs)
    ]
    return bar_chart("TTFT P95 by prompt tokens", groups, [run.name for run in runs], unit="ms")


def _table(run: ServiceRun) -> str:
    shown = [name for name in STAGES if name != "transfer" or len(run.plan.roles) > 1]
    heads = ("prompt tokens", "requests", "TTFT P50", "P95", "P99", *(f"{n}, mean" for n in shown), "TPOT P95", "hits")
    rows = ["".join(f"<th>{escape(h)}</th>" for h in (*heads, "preempted"))]
    for name, bucket in run.buckets.items():
        if bucket.requests:
            times = [getattr(bucket.ttft, p) for p in PERCENTILES] + [bucket.times[stage].mean for stage in shown]
            cells = [name, f"{bucket.requests:,}", *map(milliseconds, times), milliseconds(bucket.tpot.p95)]
            cells += [percent(bucket.hit_rate), str(bucket.preemptions)]
            rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def _over_time(run: ServiceRun) -> list[str]:
    shown = list(enumerate(run.outcome.replicas))[:SHOWN]
    more = len(run.outcome.replicas) - len(shown)
    note = f" (first {SHOWN} of {len(run.outcome.replicas)} replicas)" if more else ""
    lines = {
        f"Compute, part of the GPU's peak{note}": ("compute", ""),
        f"Requests waiting{note}": ("waiting", ""),
        f"Requests running{note}": ("running", ""),
        f"KV cache in use{note}": ("kv", ""),
    }
    charts = []
    for title, (what, unit) in lines.items():
        found = [_line(run, number, one, what) for number, one in shown]
        highest = 1.0 if what == "kv" else None
        charts.append(line_chart(title, found, unit=unit, highest=highest))
        if what == "compute":
            near = [_close_up(run, number, one) for number, one in shown]
            charts.append(line_chart(f"The same close up, in the middle of the run{note}", near, unit=unit))
    return charts


def _line(run: ServiceRun, number: int, one: Outcome, what: str) -> Line:
    values = _series(run, number, one, what)
    every = max(1, -(-len(values) // POINTS))
    padded = np.concatenate((values, np.full(-len(values) % every, np.nan)))
    means = [float(np.nanmean(part)) for part in padded.reshape(-1, every)] if len(values) else []
    return Line(_name(run, number), means, 0.0, one.bin_seconds * every)


def _close_up(run: ServiceRun, number: int, one: Outcome) -> Line:
    values = _series(run, number, one, "compute")
    # The same stretch of time for all replicas, whenever each of them had its last step.
    first = max(0, int(run.seconds / 2 / one.bin_seconds) - ZOOM // 2)
    return Line(_name(run, number), values[first : first + ZOOM].tolist(), first * one.bin_seconds, one.bin_seconds)


def _series(run: ServiceRun, number: int, one: Outcome, what: str) -> NDArray[np.float64]:
    if what == "compute":
        return one.compute
    per_second = np.asarray(one.used_bins[what] / one.bin_seconds, np.float64)
    return per_second / run.kv_blocks[number] if what == "kv" else per_second


def _name(run: ServiceRun, number: int) -> str:
    return f"{run.outcome.roles[number]} {number}"
