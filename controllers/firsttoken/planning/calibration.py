"""Measured over predicted, from the live fleet: what turns the data sheet's model into this fleet's (DESIGN §5).

A ratio is kept on the InferenceRevision that was measured and used by the next plan for the same accelerator and tensor
parallelism, so that a plan made today never changes by tomorrow's measurement. The band says how far it may be trusted;
a ratio from few requests, or with a wide band, is not used.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from firsttoken.api.records import CalibrationEntry

LEAST_REQUESTS = 100
WIDEST_BAND = 0.30  # relative: wider than that, the model's own interval says as much
BOUNDS = (0.25, 4.0)  # a ratio beyond that is a fault of the measurement, or of the model, and no calibration
STAGES = ("prefill", "decode")


@dataclass(frozen=True)
class Ratio:
    """Measured over predicted seconds of a stage, and the half width of its 90 % band, relative."""

    value: float
    band: float
    requests: int


@dataclass(frozen=True)
class Calibration:
    """Ratios by (accelerator, tensor parallelism, stage)."""

    ratios: Mapping[tuple[str, int, str], Ratio] = field(default_factory=dict)

    def __hash__(self) -> int:
        """Of what it holds, so that plans can be remembered by it."""
        return hash(frozenset(self.ratios.items()))

    def of(self, accelerator: str, tensor_parallel: int, stage: str) -> Ratio | None:
        """The ratio of one stage, None if it was not measured well enough."""
        return self.ratios.get((accelerator, tensor_parallel, stage))


def usable(entry: CalibrationEntry) -> Ratio | None:
    """A stored measurement as a ratio, or None where it can't be trusted."""
    band = (entry.high - entry.low) / 2 / entry.ratio if entry.ratio > 0 else float("inf")
    trusted = (
        entry.requests >= LEAST_REQUESTS
        and entry.low <= entry.ratio <= entry.high
        and band <= WIDEST_BAND
        and BOUNDS[0] <= entry.ratio <= BOUNDS[1]
    )
    return Ratio(entry.ratio, band, entry.requests) if trusted else None


def calibration_from(records: Iterable[Mapping[str, Any]]) -> Calibration:
    """What stored InferenceRevisions know; the youngest of several on the same. Garbled ones are passed over."""
    found: dict[tuple[str, int, str], Ratio] = {}
    youngest = sorted(
        records, key=lambda r: (r["metadata"].get("creationTimestamp", ""), r["metadata"]["name"]), reverse=True
    )
    for record in youngest:
        for raw in (record.get("status") or {}).get("calibration") or ():
            try:
                entry = CalibrationEntry.model_validate(raw)
            except ValueError:
                continue
            ratio = usable(entry)
            if ratio is not None:
                found.setdefault((entry.accelerator, entry.tensor_parallel, entry.stage), ratio)
    return Calibration(found)
