"""`python -m firsttoken_accuracy fit`, `report` and `loaded`."""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from firsttoken_accuracy.evaluate import folds, intervals
from firsttoken_accuracy.fitting import fit_experts, fit_table, leave_one_out
from firsttoken_accuracy.loaded import lines, measured, refit
from firsttoken_accuracy.report import report
from firsttoken_accuracy.tables import DATA

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "controllers/firsttoken/planning/timing/efficiency.yaml"
FITS = DATA / "fits.yaml"
DOCUMENT = ROOT / "docs/accuracy.md"
HEADER = """# Fitted efficiencies, written by `python -m firsttoken_accuracy fit`; error and sources: docs/accuracy.md.
# Names and units are those of the classes that read them: gemm.py, attention.py, experts.py, collectives.py and
# efficiency.py beside this file. A generation takes from `other` (fitted over all of them) what it has no own values
# for. `intervals` are relative half-widths.
"""
UNKNOWN = {"measured": 0.0, "familiar": 0.0, "unmeasured": 0.0, "rough": 1.0}  # until they are computed


class _Plain(yaml.SafeDumper):
    """Writes equal values out instead of pointing to them."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        """Never an alias."""
        return True


def fit() -> None:
    """Fit everything and write the product's file and the one that the report reads."""
    first, benchmark = fit_table(UNKNOWN)
    table = dict(refit(first, [m for m in measured() if m.fold]))
    left_out = leave_one_out()
    table["intervals"] = intervals(table, list(folds(table, fit_experts)), left_out)
    SHIPPED.write_text(HEADER + _dump(table))
    FITS.write_text("# Written by `fit`; read by `report`.\n" + _dump({"benchmark": benchmark, "left_out": left_out}))


def write_report() -> None:
    """Write docs/accuracy.md from the shipped file; the figures in one line of JSON end the output."""
    table: dict[str, Any] = yaml.safe_load(SHIPPED.read_text())
    text, figures = report(table, yaml.safe_load(FITS.read_text()), list(folds(table, fit_experts)))
    DOCUMENT.write_text(text)
    sys.stdout.write(f"wrote {DOCUMENT.relative_to(ROOT)}\n{json.dumps(figures)}\n")


def show_loaded() -> None:
    """Errors of whole runs under load by the shipped file, rows in the fit and those kept out apart, as Markdown."""
    sys.stdout.writelines(lines(yaml.safe_load(SHIPPED.read_text())))


def _dump(value: object) -> str:
    return yaml.dump(value, Dumper=_Plain, sort_keys=False, width=120, default_flow_style=None)


if __name__ == "__main__":
    commands = {"fit": fit, "report": write_report, "loaded": show_loaded}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit("usage: python -m firsttoken_accuracy fit|report|loaded")
    commands[sys.argv[1]]()
