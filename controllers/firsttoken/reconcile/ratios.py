"""Measured over predicted of each revision that was measured: what `decide` is given, since finding it takes its time.

A replay takes some hundredths of a second: whoever makes an Observation asks for the ratios where nothing waits for it.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from pydantic import ValidationError

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service_inputs import ModelSpec
from firsttoken.measurement.blocks import Measurements, Part, Window
from firsttoken.measurement.stages import NotMeasured, StageRatio, measured
from firsttoken.planning.calibration import STAGES_OF
from firsttoken.planning.models import model_facts
from firsttoken.planning.output import plan_from_json
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.timing.device import device_from_profile
from firsttoken.planning.timing.step import replica_steps
from firsttoken.planning.types import Infeasible
from firsttoken.reconcile.objects import Object
from firsttoken.reconcile.records import canonical, fault

Found = StageRatio | NotMeasured


@dataclass(frozen=True)
class Ratios:
    """Of one revision's role: the model's name and number format, and each stage, or why there is nothing of it."""

    model: str
    quantization: str
    found: tuple[Found, ...]


def ratios_of(
    measurements: Measurements | None, service: str, revisions: Iterable[Object], profiles: Mapping[str, Object]
) -> dict[Part, Ratios]:
    """By revision and role, of the records of a service that are sound. `profiles`: AcceleratorProfiles by name."""
    if measurements is None or measurements.fault or not measurements.windows:
        return {}
    try:
        specs = {name: AcceleratorProfileSpec.model_validate(p["spec"]).wire() for name, p in profiles.items()}
    except ValidationError:
        return {}
    return {
        part: ratios
        for record in revisions
        if any(name == record["metadata"]["name"] for name, _ in measurements.windows)
        and fault(record, service) is None
        for part, ratios in _of_record(record, measurements.windows, specs)
    }


def _of_record(
    record: Object, windows: Mapping[Part, Window], profiles: Mapping[str, Object]
) -> Iterable[tuple[Part, Ratios]]:
    spec = record["spec"]
    model = canonical(spec["inputs"]["model"]), canonical(spec["plan"].get("modelConfig"))
    for role in plan_from_json(spec["plan"]).roles:
        part = record["metadata"]["name"], role.role
        window, profile = windows.get(part), profiles.get(role.accelerator)
        if window is None or profile is None:
            continue
        formats = role.engine_args.get("kv-cache-dtype", "auto")
        engine = role.role, formats, role.tensor_parallel, role.pipeline_parallel
        yield part, _found(window, *model, canonical(profile), engine)


# The same windows are looked at until the next round.
@lru_cache(maxsize=256)
def _found(window: Window, model: str, config: str, profile: str, engine: tuple[str, str, int, int]) -> Ratios:
    role, kv_cache_dtype, tensor, pipeline = engine
    facts = model_facts(ModelSpec.model_validate_json(model), json.loads(config))
    if isinstance(facts, Infeasible):
        return _nothing("its model is not known any more")
    device = device_from_profile(AcceleratorProfileSpec.model_validate_json(profile))
    try:
        steps = replica_steps(facts, device, tensor, pipeline, kv_cache_dtype)
        found = measured(window, steps, STAGES_OF[role])
    except InfeasibleError:
        return _nothing("this version does not know its KV format")
    except (ArithmeticError, ValueError):  # whoever exports them: they stop no reconcile
        return _nothing("its measurements are numbers that no engine has")
    if any(isinstance(one, StageRatio) and not _finite(one) for one in found):
        return _nothing("its measurements are numbers that no engine has")
    return Ratios(facts.name, facts.quantization, tuple(found))


def _nothing(why: str) -> Ratios:
    return Ratios("", "", (NotMeasured("", "NotComputable", why),))


def _finite(found: StageRatio) -> bool:
    return math.isfinite(found.value) and math.isfinite(found.band)
