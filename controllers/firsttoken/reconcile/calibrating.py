"""What was measured of a service's revisions: whether it is there at all, and what of it is kept for the next plan.

A ratio is written when there is none yet, when the fleet contradicts the one that is kept, and once a day; never as
its band is narrower, which would keep the luckiest half hour. Writing one changes no revision that serves: a plan is
pinned, and the next one uses it (DESIGN §7, docs/decisions/0024).
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from firsttoken.api.records import CalibrationEntry
from firsttoken.measurement.blocks import Measurements, Part
from firsttoken.measurement.stages import NotMeasured, StageRatio, unusable
from firsttoken.planning.calibration import usable
from firsttoken.planning.forecast import figures
from firsttoken.planning.output import plan_from_json
from firsttoken.planning.types import RolePlan
from firsttoken.reconcile.conditions import Aspect
from firsttoken.reconcile.objects import Object, time_or
from firsttoken.reconcile.ratios import Ratios

_MOST_ENTRIES = 8  # bound of the CRD
_FRESH = timedelta(days=1)
# Why a window says nothing, where that goes on until somebody does something. Others come and go with the traffic: in a
# condition they would be a write each time.
_LASTING = {"MetricsMissing", "SettingsChanged", "MetricsNotNumbers", "PipelineStages", "NotComputable"}
_NEVER = datetime.min.replace(tzinfo=UTC)


def metrics_aspect(
    measurements: Measurements | None, ratios: Mapping[Part, Ratios], serving: str | None, *, settled: bool
) -> Aspect | None:
    """Whether what serves is measured. None: nobody is asked, or nothing serves. `settled`: it has served for long
    enough to be seen; before, it is not missed. `ratios`: what came of the measurements.
    """
    if measurements is None or serving is None:
        return None
    if measurements.fault:
        return _unavailable("PrometheusError", measurements.fault)
    windows = [w for (revision, _), w in sorted(measurements.windows.items()) if revision == serving]
    if not windows and not settled:
        return None
    if not windows:
        text = f"Prometheus has no measurements of revision {serving}: see that it scrapes the engines' pods, with the "
        return _unavailable("MetricsMissing", f"{text}labels of the installation guide, and that they tell them")
    if any(not w.blocks[-1] for w in windows):
        text = f"the latest measurements of revision {serving} are old: see that Prometheus still scrapes its pods"
        return _unavailable("MetricsStale", text)
    if any(w.unsound for w in windows):
        text = f"measurements of revision {serving} are no numbers: see what else exports firsttoken_ series"
        return _unavailable("MetricsNotNumbers", text)
    reasons = [unusable(w) for w in windows]
    reasons += [f for (name, _), r in ratios.items() if name == serving for f in r.found if isinstance(f, NotMeasured)]
    whys = sorted({why.message for why in reasons if why is not None and why.code in _LASTING})
    note = f"; no calibration from them: {', '.join(whys)}" if whys else ""
    return Aspect("MetricsAvailable", True, "Measured", f"revision {serving} is measured{note}")


def _unavailable(reason: str, message: str) -> Aspect:
    return Aspect("MetricsAvailable", False, reason, message)


def calibrated(
    ratios: Mapping[Part, Ratios], records: Mapping[str, Object], now: datetime
) -> tuple[dict[str, Any], ...]:
    """Records whose `status.calibration` is to be written, as what is applied to their status."""
    return tuple(
        _applied(record, entries)
        for name, record in sorted(records.items())
        if (entries := _entries(record, {role: r for (n, role), r in ratios.items() if n == name}, now)) is not None
    )


def _applied(record: Object, entries: list[CalibrationEntry]) -> dict[str, Any]:
    meta = record["metadata"]
    return {
        "apiVersion": record["apiVersion"],
        "kind": record["kind"],
        # The uid keeps a record of the same name that came meanwhile from getting what was measured of this one.
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
        "status": {"calibration": [entry.wire() for entry in entries]},
    }


def _entries(record: Object, ratios: Mapping[str, Ratios], now: datetime) -> list[CalibrationEntry] | None:
    """All of a record, where something new is among them."""
    if not ratios:
        return None
    stored = {_kind(entry): entry for entry in _stored(record)}
    new = {_kind(e): e for e in _measured(record, ratios, now) if _is_news(e, stored.get(_kind(e)), now)}
    if not new:
        return None
    both = {**stored, **new}
    return [both[kind] for kind in sorted(both)][:_MOST_ENTRIES]


def _kind(entry: CalibrationEntry) -> tuple[str, ...]:
    """What was measured."""
    formats = entry.quantization, entry.kv_cache_dtype
    return entry.stage, entry.accelerator, entry.model, *formats, str(entry.tensor_parallel), str(entry.nodes)


def _is_news(new: CalibrationEntry, old: CalibrationEntry | None, now: datetime) -> bool:
    """Whether it is written. A time to come is a clock that was put back: as good as none."""
    if old is None or usable(old) is None or not old.low <= new.ratio <= old.high:
        return True
    return abs(now - time_or(old.measured_at or "", _NEVER)) >= _FRESH


def _stored(record: Object) -> Iterable[CalibrationEntry]:
    """Garbled ones are as good as none."""
    kept = (record.get("status") or {}).get("calibration")
    for raw in kept if isinstance(kept, list) else ():
        try:
            yield CalibrationEntry.model_validate(raw)
        except ValidationError:
            continue


def _measured(record: Object, ratios: Mapping[str, Ratios], now: datetime) -> Iterable[CalibrationEntry]:
    for role in plan_from_json(record["spec"]["plan"]).roles:
        of_role = ratios.get(role.role)
        if of_role is None:
            continue
        entries = (_entry(one, role, of_role, now) for one in of_role.found if isinstance(one, StageRatio))
        yield from (entry for entry in entries if usable(entry) is not None)


def _entry(found: StageRatio, role: RolePlan, of_role: Ratios, now: datetime) -> CalibrationEntry:
    return CalibrationEntry(
        stage=found.stage,
        accelerator=role.accelerator,
        model=of_role.model,
        quantization=of_role.quantization,
        kv_cache_dtype=role.engine_args.get("kv-cache-dtype", "auto"),
        tensor_parallel=role.tensor_parallel,
        nodes=role.nodes,
        ratio=figures(found.value),
        low=figures(max(0.0, found.value * (1 - found.band))),
        high=figures(found.value * (1 + min(found.band, 1.0))),
        requests=found.requests,
        measured_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
