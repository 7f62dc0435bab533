"""What was measured of a service's revisions: whether it is there at all, and what of it is kept for the next plan.

A ratio is written when there is none yet, or when it says something new; so a quiet fleet writes nothing. Writing one
changes no revision that serves: a plan is pinned, and the next one uses it (DESIGN §7, docs/decisions/0024).
"""

import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from firsttoken.api.records import AcceleratorProfileSpec, CalibrationEntry
from firsttoken.api.service_inputs import ModelSpec
from firsttoken.measurement.blocks import Measurements, Window
from firsttoken.measurement.stages import NotMeasured, StageRatio, measured, unusable
from firsttoken.planning.calibration import STAGES_OF, usable
from firsttoken.planning.forecast import figures
from firsttoken.planning.models import model_facts
from firsttoken.planning.output import plan_from_json
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.timing.device import device_from_profile
from firsttoken.planning.timing.step import replica_steps
from firsttoken.planning.types import Infeasible, RolePlan
from firsttoken.reconcile.conditions import Aspect
from firsttoken.reconcile.objects import Object
from firsttoken.reconcile.records import canonical

_MOST_ENTRIES = 8  # bound of the CRD
_NARROWER = 2 / 3  # of the stored band: a band that is that much narrower is worth a write
Found = StageRatio | NotMeasured


def metrics_aspect(measurements: Measurements | None, serving: str | None, *, settled: bool) -> Aspect | None:
    """Whether what serves is measured. None: nobody is asked, or nothing serves. `settled`: it has served for long
    enough to be seen; before, it is not missed.
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
    whys = {why.message for w in windows if (why := unusable(w)) is not None}
    note = f"; no calibration from them: {', '.join(sorted(whys))}" if whys else ""
    return Aspect("MetricsAvailable", True, "Measured", f"revision {serving} is measured{note}")


def _unavailable(reason: str, message: str) -> Aspect:
    return Aspect("MetricsAvailable", False, reason, message)


def calibrated(
    measurements: Measurements | None,
    records: Mapping[str, Object],
    profiles: Mapping[str, AcceleratorProfileSpec],
) -> tuple[dict[str, Any], ...]:
    """Records whose `status.calibration` is to be written, as what is applied to their status."""
    if measurements is None or measurements.fault:
        return ()
    return tuple(
        _applied(record, entries)
        for name, record in sorted(records.items())
        if (entries := _entries(record, _windows(measurements, name), profiles)) is not None
    )


def _windows(measurements: Measurements, revision: str) -> dict[str, Window]:
    return {role: window for (name, role), window in measurements.windows.items() if name == revision}


def _applied(record: Object, entries: list[CalibrationEntry]) -> dict[str, Any]:
    meta = record["metadata"]
    return {
        "apiVersion": record["apiVersion"],
        "kind": record["kind"],
        # The uid keeps a record of the same name that came meanwhile from getting what was measured of this one.
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
        "status": {"calibration": [entry.wire() for entry in entries]},
    }


def _entries(
    record: Object, windows: Mapping[str, Window], profiles: Mapping[str, AcceleratorProfileSpec]
) -> list[CalibrationEntry] | None:
    """All of a record, where something new is among them."""
    stored = {_kind(entry): entry for entry in _stored(record)}
    new = {_kind(entry): entry for entry in _measured(record, windows, profiles)}
    if not any(_says_more(entry, stored.get(kind)) for kind, entry in new.items()):
        return None
    both = {**stored, **{k: e for k, e in new.items() if _says_more(e, stored.get(k))}}
    return [both[kind] for kind in sorted(both)][:_MOST_ENTRIES]


def _kind(entry: CalibrationEntry) -> tuple[str, ...]:
    """What was measured."""
    formats = entry.quantization, entry.kv_cache_dtype
    return entry.stage, entry.accelerator, entry.model, *formats, str(entry.tensor_parallel), str(entry.nodes)


def _says_more(new: CalibrationEntry, old: CalibrationEntry | None) -> bool:
    if old is None or usable(old) is None:
        return True
    narrower = (new.high - new.low) / new.ratio < _NARROWER * (old.high - old.low) / old.ratio
    return narrower or not old.low <= new.ratio <= old.high


def _stored(record: Object) -> Iterable[CalibrationEntry]:
    """Garbled ones are as good as none."""
    kept = (record.get("status") or {}).get("calibration")
    for raw in kept if isinstance(kept, list) else ():
        try:
            yield CalibrationEntry.model_validate(raw)
        except ValidationError:
            continue


def _measured(
    record: Object, windows: Mapping[str, Window], profiles: Mapping[str, AcceleratorProfileSpec]
) -> Iterable[CalibrationEntry]:
    plan = plan_from_json(record["spec"]["plan"])
    for role in plan.roles:
        window, profile = windows.get(role.role), profiles.get(role.accelerator)
        if window is None or profile is None:
            continue
        model = canonical(record["spec"]["inputs"]["model"]), canonical(record["spec"]["plan"].get("modelConfig"))
        formats = role.engine_args.get("kv-cache-dtype", "auto")
        shape = role.tensor_parallel, role.pipeline_parallel
        name, quantization, found = _found(window, *model, canonical(profile.wire()), (role.role, formats, *shape))
        for one in found:
            if isinstance(one, StageRatio):
                entry = _entry(one, role, (name, quantization, formats))
                if usable(entry) is not None:
                    yield entry


def _entry(found: StageRatio, role: RolePlan, kind: tuple[str, str, str]) -> CalibrationEntry:
    return CalibrationEntry(
        stage=found.stage,
        accelerator=role.accelerator,
        model=kind[0],
        quantization=kind[1],
        kv_cache_dtype=kind[2],
        tensor_parallel=role.tensor_parallel,
        nodes=role.nodes,
        ratio=figures(found.value),
        low=figures(max(0.0, found.value * (1 - found.band))),
        high=figures(found.value * (1 + min(found.band, 1.0))),
        requests=found.requests,
    )


# A pass decides up to three times on the same measurements, and a replay takes some tenths of a second.
@lru_cache(maxsize=256)
def _found(
    window: Window, model: str, config: str, profile: str, engine: tuple[str, str, int, int]
) -> tuple[str, str, tuple[Found, ...]]:
    """The model's name, its number format, and what was measured of each stage."""
    role, kv_cache_dtype, tensor, pipeline = engine
    facts = model_facts(ModelSpec.model_validate_json(model), json.loads(config))
    if isinstance(facts, Infeasible):
        return "", "", ()
    device = device_from_profile(AcceleratorProfileSpec.model_validate_json(profile))
    try:
        steps = replica_steps(facts, device, tensor, pipeline, kv_cache_dtype)
    except InfeasibleError:
        return "", "", ()
    try:
        found = measured(window, steps, STAGES_OF[role])
    except (ArithmeticError, ValueError):  # numbers that no engine has, whoever exports them: they stop no reconcile
        return "", "", ()
    return facts.name, facts.quantization, tuple(f for f in found if not _endless(f))


def _endless(found: Found) -> bool:
    return isinstance(found, StageRatio) and not (math.isfinite(found.value) and math.isfinite(found.band))
