"""Which revision the spec asks for: pinned if it was planned before, else planned now (invariants 16, 18; D24, S22)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from firsttoken.api.base import API_VERSION
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceService, InferenceServiceSpec, RevisionStatus
from firsttoken.api.service_inputs import ModelSpec
from firsttoken.manifests.errors import UnsupportedPlan
from firsttoken.manifests.images import Images
from firsttoken.manifests.names import labels
from firsttoken.manifests.revision import revision_objects
from firsttoken.planning.calibration import Calibration, calibration_from
from firsttoken.planning.models import wants_config
from firsttoken.planning.output import plan_from_json, plan_to_json
from firsttoken.planning.pinned import forecast_again, still_answers
from firsttoken.planning.plan import make_plan, with_replicas
from firsttoken.planning.refusal import SLO
from firsttoken.planning.types import Infeasible, Plan
from firsttoken.reconcile.objects import Object
from firsttoken.reconcile.records import PLACEHOLDER, canonical, content_hash, objects_hash

# What engines are built from. Replicas, budgets, rates, SLOs, live settings, rollout and routing are left out:
# changing those restarts nothing. A first plan is made for them, and then it stands: only replicas follow the rate.
# tests/reconcile holds this list against what planning and rendering read.
_INPUTS = {"model", "accelerator", "workload", "layout", "engine", "measurement", "podTemplate", "tuning"}
_NOT_INPUTS = {"accelerator": {"maxCount"}, "workload": {"requestsPerSecond"}, "tuning": {"mode"}}


@dataclass(frozen=True)
class Target:
    """The revision that the spec asks for. `record` is what is, or is to be, stored."""

    name: str
    record: dict[str, Any]
    plan: Plan
    inputs_hash: str
    is_new: bool


@dataclass(frozen=True)
class Library:
    """What revisions are made from: sound records by name, records that must not be used, profiles, images."""

    records: Mapping[str, Object]
    unsound: Mapping[str, str]
    profiles: Mapping[str, AcceleratorProfileSpec]
    images: Images
    config: Mapping[str, Any] | None = None  # config.json from the hub
    config_fault: str = ""  # why it is not there


def revision_inputs(spec: InferenceServiceSpec) -> dict[str, Any]:
    """The part of a spec that needs a restart to change; defaults left out, so that new fields change no hash."""
    wire = spec.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True, mode="json")
    chosen = {
        key: {k: v for k, v in value.items() if k not in _NOT_INPUTS.get(key, ())}
        for key, value in wire.items()
        if key in _INPUTS
    }
    return {key: value for key, value in chosen.items() if value}


def inputs_hash_of(inputs: Mapping[str, Any]) -> str:
    """First 8 hex digits of the hash of a spec's inputs: what `status.revision.inputsHash` holds."""
    return content_hash(inputs)[:8]


def kept_config(records: Iterable[Object], model: ModelSpec) -> dict[str, Any] | None:
    """The config.json that a revision of the same model was planned with: neither a hub that is out nor an edited
    repository changes what a service is planned from. Another spec.model.revision looks again.
    """
    same = [
        r
        for r in records
        if r["spec"]["plan"].get("modelConfig")
        and r["spec"]["inputs"]["model"]["uri"] == model.uri
        and r["spec"]["inputs"]["model"].get("revision") == model.revision
    ]
    newest = max(same, key=_age, default=None)
    return dict(newest["spec"]["plan"]["modelConfig"]) if newest is not None else None


def target(service: InferenceService, library: Library, carrying: str | None) -> Target | Infeasible:
    """The desired revision with its replicas, or why there can be none. `carrying` has the requests now."""
    inputs = revision_inputs(service.spec)
    pinned = _pin(service.status.revision, library.records, inputs, carrying)
    kept = _resized(service, pinned, library, inputs) if pinned is not None else None
    if isinstance(kept, Target):
        return kept
    try:
        fresh = _planned(service, library, inputs, outgrown=kept.message if kept is not None else "")
    except UnsupportedPlan as error:
        fresh = Infeasible("UnsupportedPlan", str(error))
    # A pinned plan that no longer fits the budget gives way only to one that does; one whose shape can't keep a promise
    # stays, since an edit of SLOs restarts nothing (D24).
    if kept is None or (kept.constraint != SLO and isinstance(fresh, Target)):
        return fresh
    return kept if isinstance(fresh, Infeasible) else _could_be_kept(kept, fresh)


def _could_be_kept(kept: Infeasible, fresh: Target) -> Infeasible:
    """What another shape could promise, and how to ask for it."""
    shapes = ", ".join(f"{r.tensor_parallel} for {r.role}" for r in fresh.plan.roles)
    pin = {"spec.engine.pins.tensorParallel": fresh.plan.roles[0].tensor_parallel}
    message = f"{kept.message}; the revision that serves keeps its shape, a new one could have another: tensor parallel"
    return Infeasible(kept.constraint, f"{message} {shapes} (spec.engine.pins.tensorParallel)", {**kept.nearest, **pin})


def _pin(
    seen: RevisionStatus | None, records: Mapping[str, Object], inputs: Mapping[str, Any], carrying: str | None
) -> Object | None:
    """The record these inputs were planned for: by the status, or with the status lost by the records themselves."""
    named = records.get(seen.desired or "") if seen is not None else None
    if named is not None and seen is not None and seen.inputs_hash == inputs_hash_of(inputs):
        return named
    same = [r for r in records.values() if r["spec"]["inputs"] == inputs]
    return max(same, key=lambda r: (r["metadata"]["name"] == carrying, _age(r)), default=None)


def _age(record: Object) -> tuple[str, str]:
    return record["metadata"].get("creationTimestamp", ""), record["metadata"]["name"]


def _resized(
    service: InferenceService, record: Object, library: Library, inputs: Mapping[str, Any]
) -> Target | Infeasible:
    """The recorded plan with today's replicas; forecast again if other promises or another rate are asked for now."""
    plan: Plan | Infeasible = plan_from_json(record["spec"]["plan"])
    if isinstance(plan, Plan) and plan.prediction is not None and not still_answers(plan, service.spec):
        config = record["spec"]["plan"].get("modelConfig")
        wire = canonical(service.spec.wire()), canonical(_wire(library.profiles)), canonical(config)
        plan = _again(canonical(plan_to_json(plan)), *wire, calibration_from(library.records.values()))
    if isinstance(plan, Plan):
        plan = with_replicas(plan, service.spec)
    if isinstance(plan, Infeasible):
        return plan
    return Target(record["metadata"]["name"], dict(record), plan, inputs_hash_of(inputs), is_new=False)


def _wire(profiles: Mapping[str, AcceleratorProfileSpec]) -> dict[str, Any]:
    return {name: profile.wire() for name, profile in profiles.items()}


def _planned(
    service: InferenceService, library: Library, inputs: dict[str, Any], *, outgrown: str = ""
) -> Target | Infeasible:
    """A fresh plan as a revision: one that is on record already, or a new one. Raises UnsupportedPlan.

    `outgrown`: why the plan that these inputs have on record no longer fits.
    """
    wanted = wants_config(service.spec.model)
    config = (kept_config(library.records.values(), service.spec.model) or library.config) if wanted else None
    calibration = calibration_from(library.records.values())
    plan = _plan(canonical(service.spec.wire()), canonical(_wire(library.profiles)), calibration, canonical(config))
    if isinstance(plan, Infeasible):
        unknown = plan.constraint == "UnknownModel" and library.config_fault
        return replace(plan, message=f"{plan.message}; {library.config_fault}") if unknown else plan
    template = revision_objects(service, PLACEHOLDER, plan, library.profiles, library.images)
    digest = content_hash(template)
    name = f"{service.metadata.name}-{digest[:8]}"
    if name in library.unsound:
        why = f"InferenceRevision {name} exists and is not the operator's ({library.unsound[name]}): delete it"
        return Infeasible("RevisionForged", why)
    if name in library.records:
        return _resized(service, library.records[name], library, inputs)
    objects = list(revision_objects(service, name, plan, library.profiles, library.images))
    if objects_hash(objects, name) != digest:
        raise UnsupportedPlan(f"the name {name} occurs in the spec itself: rename the service")
    seen = service.status.revision
    parent = library.records.get((seen.desired or seen.stable or "") if seen is not None else "")
    spec = {
        "serviceName": service.metadata.name,
        "hash": digest,
        "reason": {"type": "SpecChange", "message": _what_changed(parent, inputs, outgrown)},
        **({"parent": parent["metadata"]["name"]} if parent is not None else {}),
        "inputs": inputs,
        "plan": {**plan_to_json(plan), **({"modelConfig": dict(config)} if config is not None else {})},
        "objects": objects,
    }
    return Target(name, _record(service.metadata.name, name, spec), plan, inputs_hash_of(inputs), is_new=True)


def _record(service: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels(service, "settings", revision=name)}
    return {"apiVersion": API_VERSION, "kind": "InferenceRevision", "metadata": metadata, "spec": spec}


# Only specs without a record are planned, and those of the passes that run at once are few: what is left behind by
# services long settled is not worth the memory.
@lru_cache(maxsize=64)
def _plan(spec: str, profiles: str, calibration: Calibration, config: str) -> Plan | Infeasible:
    """`make_plan`, remembered: one pass decides up to three times on the same things, and a plan takes tens of ms.

    Callers share the result, so it is read-only (see `planning.types`).
    """
    return make_plan(InferenceServiceSpec.model_validate_json(spec), _read(profiles), calibration, json.loads(config))


@lru_cache(maxsize=64)
def _again(plan: str, spec: str, profiles: str, config: str, calibration: Calibration) -> Plan | Infeasible:
    """`forecast_again`, remembered likewise."""
    today = InferenceServiceSpec.model_validate_json(spec)
    return forecast_again(plan_from_json(json.loads(plan)), today, _read(profiles), calibration, json.loads(config))


def _read(profiles: str) -> dict[str, AcceleratorProfileSpec]:
    return {name: AcceleratorProfileSpec.model_validate(p) for name, p in json.loads(profiles).items()}


def _what_changed(parent: Object | None, inputs: Mapping[str, Any], outgrown: str) -> str:
    if parent is None:
        return "first revision"
    changes = sorted(_differences(parent["spec"]["inputs"], inputs, "spec"))
    text = "; ".join(changes) or outgrown or "rendered differently by this version of the operator"
    return text if len(text) <= 4000 else text[:3999] + "…"


def _differences(old: Any, new: Any, path: str) -> list[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return [d for k in {*old, *new} for d in _differences(old.get(k), new.get(k), f"{path}.{k}")]
    if old == new:
        return []
    return [f"{path}: {_short(old)} → {_short(new)}"]


def _short(value: Any) -> str:
    text = "default" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"
