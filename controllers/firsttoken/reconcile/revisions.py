"""Which revision the spec asks for: pinned if it was planned before, else planned now (invariants 16, 18; D24, S22)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firsttoken.api.base import API_VERSION
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceService, InferenceServiceSpec
from firsttoken.manifests.errors import UnsupportedPlan
from firsttoken.manifests.images import Images
from firsttoken.manifests.names import labels
from firsttoken.manifests.revision import revision_objects
from firsttoken.planning.output import plan_from_json, plan_to_json
from firsttoken.planning.plan import make_plan, with_replicas
from firsttoken.planning.types import Infeasible, Plan
from firsttoken.reconcile.objects import Object

# What engines are built from. Replicas, budgets, rates, SLOs, live settings, rollout and routing are left out:
# changing those restarts nothing.
_INPUTS = {"model", "accelerator", "workload", "layout", "engine", "measurement", "podTemplate"}
_NOT_INPUTS = {"accelerator": {"maxCount"}, "workload": {"requestsPerSecond"}}
_PLACEHOLDER = "revision-00000000"  # as long as any real name may be short: only the hash is taken from it


@dataclass(frozen=True)
class Target:
    """The revision that the spec asks for. `record` is what is, or is to be, stored."""

    name: str
    record: dict[str, Any]
    plan: Plan
    inputs_hash: str
    is_new: bool


def revision_inputs(spec: InferenceServiceSpec) -> dict[str, Any]:
    """The part of a spec that needs a restart to change; defaults left out, so that new fields change no hash."""
    wire = spec.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True, mode="json")
    return {
        key: {k: v for k, v in value.items() if k not in _NOT_INPUTS.get(key, ())}
        for key, value in wire.items()
        if key in _INPUTS
    }


def content_hash(value: Any) -> str:
    """First 8 hex digits of the SHA-256 of `value` as canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def target(
    service: InferenceService,
    revisions: Mapping[str, Object],
    profiles: Mapping[str, AcceleratorProfileSpec],
    images: Images,
) -> Target | Infeasible:
    """The desired revision with its replicas, or why there can be none."""
    inputs_hash = content_hash(revision_inputs(service.spec))
    seen = service.status.revision
    pin = revisions.get(seen.desired or "") if seen is not None and seen.inputs_hash == inputs_hash else None
    if pin is not None:
        return _pinned(service, dict(pin), inputs_hash)
    plan = make_plan(service.spec, profiles)
    if isinstance(plan, Infeasible):
        return plan
    try:
        return _planned(service, plan, revisions, profiles, images)
    except UnsupportedPlan as error:
        return Infeasible("UnsupportedPlan", str(error))


def _planned(
    service: InferenceService,
    plan: Plan,
    revisions: Mapping[str, Object],
    profiles: Mapping[str, AcceleratorProfileSpec],
    images: Images,
) -> Target | Infeasible:
    """A fresh plan as a revision: one that is on record already, or a new one. Raises UnsupportedPlan."""
    inputs = revision_inputs(service.spec)
    inputs_hash, seen = content_hash(inputs), service.status.revision
    content = content_hash(revision_objects(service, _PLACEHOLDER, plan, profiles, images))
    name = f"{service.metadata.name}-{content}"
    if name in revisions:
        return _pinned(service, dict(revisions[name]), inputs_hash)
    parent = revisions.get((seen.desired or seen.stable or "") if seen is not None else "")
    record = {
        "apiVersion": API_VERSION,
        "kind": "InferenceRevision",
        "metadata": {"name": name, "labels": labels(service.metadata.name, "settings", revision=name)},
        "spec": {
            "serviceName": service.metadata.name,
            "hash": content,
            "reason": {"type": "SpecChange", "message": _what_changed(parent, inputs)},
            **({"parent": parent["metadata"]["name"]} if parent is not None else {}),
            "inputs": inputs,
            "plan": plan_to_json(plan),
            "objects": list(revision_objects(service, name, plan, profiles, images)),
        },
    }
    return Target(name, record, plan, inputs_hash, is_new=True)


def _pinned(service: InferenceService, record: dict[str, Any], inputs_hash: str) -> Target | Infeasible:
    plan = with_replicas(plan_from_json(record["spec"]["plan"]), service.spec)
    if isinstance(plan, Infeasible):
        return plan
    return Target(record["metadata"]["name"], record, plan, inputs_hash, is_new=False)


def _what_changed(parent: Object | None, inputs: Mapping[str, Any]) -> str:
    if parent is None:
        return "first revision"
    changes = sorted(_differences(parent["spec"]["inputs"], inputs, "spec"))
    text = "; ".join(changes) or "rendered differently by this version of the operator"
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
