"""Measured over predicted, from the live fleet: what turns the data sheet's model into this fleet's (DESIGN §5).

A ratio is kept on the InferenceRevision that was measured and used by the next plan for the same model, in the same
number formats, on the same accelerator, so that a plan made today never changes by tomorrow's measurement. The band
says how far it may be trusted; a ratio from few requests, or with a wide band, is not used. Where another tensor
parallelism of the same was measured, the nearest one's ratio is taken with a wider band; never one of another number of
nodes or pipeline stages, whose network and bubbles it doesn't know.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from firsttoken.api.records import CalibrationEntry

LEAST_REQUESTS = 100
# A window says no more of the next one: ratios of simulated engines were within that of the truth in 46 of 56 windows.
LEAST_BAND = 0.05
WIDEST_BAND = 0.30  # relative: wider than that, a measurement says next to nothing
BOUNDS = (0.25, 4.0)  # a ratio beyond that is a fault of the measurement, or of the model, and no calibration
# Added to the band of a ratio that was measured at another tensor parallelism. Of the same model, GPU, lengths and
# clients at two tensor parallelisms, 9 in 10 pairs of measured over predicted differ by less; by how many doublings
# makes no clear difference (accuracy/data; a test computes it).
OTHER_PARALLELISM = 0.14
# The steps that an engine of a role makes, whose times a forecast of it rests on.
STAGES_OF = {"serve": ("prefill", "decode"), "prefill": ("prefill",), "decode": ("decode",)}


@dataclass(frozen=True)
class Measured:
    """What was measured: one stage of one model on one kind of replica, with all that its kernels depend on."""

    accelerator: str  # name of the AcceleratorProfile
    model: str  # ModelFacts.name
    quantization: str  # of the weights, vLLM's name; "" is 16 bits
    kv_cache_dtype: str  # vLLM's name; auto is the model's own
    tensor_parallel: int
    stage: str  # prefill | decode
    pipeline_parallel: int = 1
    nodes: int = 1  # of a replica


@dataclass(frozen=True)
class Ratio:
    """Measured over predicted seconds of a stage, and the half width of its 90 % band, relative."""

    value: float
    band: float
    requests: int
    tensor_parallel: int  # that was measured


@dataclass(frozen=True)
class Calibration:
    """Ratios by what was measured."""

    ratios: Mapping[Measured, Ratio] = field(default_factory=dict)

    def __hash__(self) -> int:
        """Of what it holds, so that plans can be remembered by it."""
        return hash(frozenset(self.ratios.items()))

    def of(self, wanted: Measured) -> Ratio | None:
        """The ratio of one stage, None if neither it nor another tensor parallelism of it was measured well enough.

        Of several others the nearest counts, in doublings, then the smaller; its band is `OTHER_PARALLELISM` wider.
        """
        found = self.ratios.get(wanted)
        if found is not None:
            return found
        others = [r for m, r in self.ratios.items() if replace(m, tensor_parallel=wanted.tensor_parallel) == wanted]
        if not others:
            return None
        near = min(others, key=lambda r: (_doublings(r, wanted), r.tensor_parallel))
        return replace(near, band=near.band + OTHER_PARALLELISM)


def tells_more(ratio: Ratio, interval: float) -> bool:
    """Whether a ratio says more than the model does, which says 1 within its relative `interval` for that stage.

    It does where it is the surer of both, or where the two contradict each other: then the fleet is right.
    """
    return ratio.band < interval or abs(math.log(ratio.value)) > math.log1p(ratio.band) + math.log1p(interval)


def _doublings(ratio: Ratio, wanted: Measured) -> float:
    return abs(math.log2(ratio.tensor_parallel / wanted.tensor_parallel))


def usable(entry: CalibrationEntry) -> Ratio | None:
    """A stored measurement as a ratio, or None where it can't be trusted."""
    band = (entry.high - entry.low) / 2 / entry.ratio if entry.ratio > 0 else float("inf")
    trusted = (
        entry.requests >= LEAST_REQUESTS
        and entry.low <= entry.ratio <= entry.high
        and band <= WIDEST_BAND
        and BOUNDS[0] <= entry.ratio <= BOUNDS[1]
    )
    return Ratio(entry.ratio, max(LEAST_BAND, band), entry.requests, entry.tensor_parallel) if trusted else None


def calibration_from(records: Iterable[Mapping[str, Any]]) -> Calibration:
    """What stored InferenceRevisions know; the youngest of several on the same. Garbled ones are passed over."""
    found: dict[Measured, Ratio] = {}
    youngest = sorted(
        records, key=lambda r: (r["metadata"].get("creationTimestamp", ""), r["metadata"]["name"]), reverse=True
    )
    for record in youngest:
        kept = (record.get("status") or {}).get("calibration")
        for raw in kept if isinstance(kept, list) else ():
            try:
                entry = CalibrationEntry.model_validate(raw)
            except ValueError:
                continue
            ratio = usable(entry)
            if ratio is not None:
                found.setdefault(_measured(entry), ratio)
    return Calibration(found)


def _measured(entry: CalibrationEntry) -> Measured:
    return Measured(
        accelerator=entry.accelerator,
        model=entry.model,
        quantization=entry.quantization,
        kv_cache_dtype=entry.kv_cache_dtype,
        tensor_parallel=entry.tensor_parallel,
        stage=entry.stage,
        nodes=entry.nodes,
    )
