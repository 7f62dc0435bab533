"""How far predictions of measured runs are off: by model and GPU, and over all of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.measured_runs import MeasuredRun
from firsttoken.simulation.replay import Replayed

Predict = Callable[[MeasuredRun], Replayed]


@dataclass(frozen=True)
class Errors:
    """Of the absolute relative errors, |predicted / measured - 1|, as fractions; `bias` is the mean with its sign.

    All NaN without a row.
    """

    median: float
    mean: float
    worst: float
    bias: float

    @classmethod
    def of(cls, signed: Sequence[float]) -> "Errors":
        """Of relative errors with their signs; NaN is left out (TPOT of an output of one token)."""
        known = [e for e in signed if not math.isnan(e)]
        if not known:
            return cls(math.nan, math.nan, math.nan, math.nan)
        absolute = [abs(e) for e in known]
        return cls(median(absolute), mean(absolute), max(absolute), mean(known))

    def wire(self) -> dict[str, float | None]:
        """For JSON: null instead of NaN."""
        return {name: None if math.isnan(value) else value for name, value in vars(self).items()}


@dataclass(frozen=True)
class Compared:
    """One predicted run. Relative errors with their signs."""

    run: MeasuredRun
    predicted: Replayed

    @property
    def ttft(self) -> float:
        """Of the mean TTFT."""
        return self.predicted.ttft / self.run.ttft - 1

    @property
    def tpot(self) -> float:
        """Of the mean TPOT."""
        return self.predicted.tpot / self.run.tpot - 1


@dataclass(frozen=True)
class Group:
    """The runs of one model in one precision on one GPU type."""

    model: str
    precision: str
    system: str
    rows: int  # predicted ones
    ttft: Errors
    tpot: Errors


@dataclass(frozen=True)
class Report:
    """All rows of a file: those predicted, and by line why the others could not be."""

    compared: tuple[Compared, ...]
    unpredicted: Mapping[int, str]

    @property
    def rows(self) -> int:
        """Of the file."""
        return len(self.compared) + len(self.unpredicted)

    @property
    def ttft(self) -> Errors:
        """Over all predicted rows, each once."""
        return Errors.of([c.ttft for c in self.compared])

    @property
    def tpot(self) -> Errors:
        """Over all predicted rows, each once."""
        return Errors.of([c.tpot for c in self.compared])

    @property
    def groups(self) -> tuple[Group, ...]:
        """By model, precision and GPU, in the order of their names."""
        found: dict[tuple[str, str, str], list[Compared]] = {}
        for one in self.compared:
            found.setdefault((one.run.model, one.run.precision, one.run.system), []).append(one)
        return tuple(
            Group(*key, len(ones), Errors.of([o.ttft for o in ones]), Errors.of([o.tpot for o in ones]))
            for key, ones in sorted(found.items())
        )

    def worst(self, count: int) -> tuple[Compared, ...]:
        """The predicted rows with the largest error of TTFT or TPOT, equal configurations once."""
        by_error = sorted(self.compared, key=lambda c: -max(abs(c.ttft), 0 if math.isnan(c.tpot) else abs(c.tpot)))
        first: dict[tuple[object, ...], Compared] = {}
        for one in by_error:
            first.setdefault(one.run.configuration, one)
        return tuple(first.values())[:count]

    def wire(self) -> dict[str, Any]:
        """For JSON; errors are fractions, `ttftMape` and `tpotMape` the means over all predicted rows."""
        return {
            "rows": self.rows,
            "predicted": len(self.compared),
            "ttftMape": self.ttft.wire()["mean"],
            "tpotMape": self.tpot.wire()["mean"],
            "ttft": self.ttft.wire(),
            "tpot": self.tpot.wire(),
            "groups": [
                {
                    "model": g.model, "precision": g.precision, "system": g.system, "rows": g.rows,
                    "ttft": g.ttft.wire(), "tpot": g.tpot.wire(),
                }
                for g in self.groups
            ],
            "unpredicted": [{"line": line, "reason": why} for line, why in self.unpredicted.items()],
        }  # fmt: skip


def report(runs: Sequence[MeasuredRun], refused: Mapping[int, str], predict: Predict) -> Report:
    """Every run predicted; `refused`: rows that could not be read, by line."""
    compared, unpredicted = [], dict(refused)
    for run in runs:
        try:
            compared.append(Compared(run, predict(run)))
        except SimulationInputError as error:
            unpredicted[run.line] = str(error)
    return Report(tuple(compared), dict(sorted(unpredicted.items())))
