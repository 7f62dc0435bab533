"""`python -m firsttoken_accuracy fit`, `fit-experts`, `intervals`, `report` and `loaded`."""

import json
import sys
from collections.abc import Mapping
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
FITS_HEADER = "# Written by `fit`; read by `report`.\n"
DOCUMENT = ROOT / "docs/accuracy.md"
HEADER = """# Fitted efficiencies, written by `python -m firsttoken_accuracy fit`; error and sources: docs/accuracy.md.
# Names and units are those of the classes that read them: gemm.py, attention.py, experts.py, collectives.py and
# efficiency.py beside this file. A generation takes from `other` (fitted over all of them) what it has no own values
# for. `intervals` are relative half-widths.
"""
LEVELS = ("measured", "kernels", "familiar", "unmeasured", "rough")
UNKNOWN = {level: {"prefill": 1.0, "decode": 1.0} for level in LEVELS}  # until they are computed


class _Plain(yaml.SafeDumper):
    """Writes equal values out instead of pointing to them."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        """Never an alias."""
        return True


def fit() -> None:
    """Fit everything and write the product's file and the one that the report reads."""
    first, benchmark = fit_table(UNKNOWN)
    FITS.write_text(FITS_HEADER + _dump({"benchmark": benchmark, "left_out": leave_one_out()}))
    _experts_of(first)


def fit_again() -> None:
    """Fit experts, the API's cost and intervals, kernels as they are: after a change of how a row is described."""
    _experts_of(fit_experts(yaml.safe_load(SHIPPED.read_text())))


def widen() -> None:
    """Compute the intervals alone, of the efficiencies as they are."""
    _write(yaml.safe_load(SHIPPED.read_text()))


def _experts_of(first: Mapping[str, Any]) -> None:
    _write(refit(first, [m for m in measured() if m.fold], yaml.safe_load(SHIPPED.read_text())))


def _write(found: Mapping[str, Any]) -> None:
    """The product's file, with the intervals of its efficiencies."""
    table, fits = dict(found), yaml.safe_load(FITS.read_text())
    table["intervals"] = intervals(table, list(folds(table, fit_experts)), fits["left_out"], fits["benchmark"])
    SHIPPED.write_text(HEADER + _dump(table))


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
    commands = {
        "fit": fit, "fit-experts": fit_again, "intervals": widen, "report": write_report, "loaded": show_loaded,
    }  # fmt: skip
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(f"usage: python -m firsttoken_accuracy {'|'.join(commands)}")
    commands[sys.argv[1]]()
