"""Measure an idle engine, calibrate, then play and predict every case; writes docs/accuracy-cpu.md."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

from firsttoken_accuracy.engine.calibrate import Calibrated, calibrate
from firsttoken_accuracy.engine.cases import LOADS, Case, Result, capacity, run, servers
from firsttoken_accuracy.engine.idle import Row, measure, warm_up
from firsttoken_accuracy.engine.report import DOCUMENT, document
from firsttoken_accuracy.engine.server import ServerSettings, serving
from firsttoken_local.errors import LocalError
from firsttoken_local.progress import Printed


def main() -> int:
    """All of it; the figures in one line of JSON end the output. 1 when the engine cannot be run."""
    try:
        rows, calibrated, results = compare(servers(), LOADS)
    except LocalError as error:
        print(f"error: {error.message}\n{error.details or ''}".rstrip(), file=sys.stderr)
        return 1
    text, figures = document(rows, calibrated, results, cores=os.cpu_count() or 1)
    DOCUMENT.write_text(text)
    print(text)
    print(json.dumps(figures))
    return 0


def compare(engines: Sequence[ServerSettings], loads: Sequence[float]) -> tuple[list[Row], Calibrated, list[Result]]:
    """The idle rows of the first engine, what they say, and every engine under every load.

    Raises:
        LocalError: the engine could not be run.
    """
    told = Printed()
    rows: list[Row] = []
    calibrated: Calibrated | None = None
    results: list[Result] = []
    for number, server in enumerate(engines):
        with serving(server, told) as port:
            warm_up(port)
            if calibrated is None:
                rows = measure(port)
                calibrated = calibrate(rows, server.token_budget)
                told.line(json.dumps({"idle": [asdict(r) for r in rows], "fitted": dict(calibrated.values)}))
            most = capacity(server, calibrated.model())
            for load in loads:
                case = Case(server, load, load * most)
                told.transient(f"playing {case}")
                results.append(run(case, port, calibrated.model(), rows, seed=10 * number + int(10 * load)))
                told.line(f"{server}: {load:.0%}: {results[-1]}")
    assert calibrated is not None  # noqa: S101 - there is a first server
    return rows, calibrated, results
