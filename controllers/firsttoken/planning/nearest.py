"""What would be feasible instead: every alternative is planned before it is offered."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic.alias_generators import to_camel

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.api.service_inputs import LayoutMode
from firsttoken.planning.accelerators import capability, device_bytes, is_cpu, near_names
from firsttoken.planning.models import MADE_OFFLINE
from firsttoken.planning.promises import missed
from firsttoken.planning.refusal import SLO
from firsttoken.planning.replicas import least_replicas
from firsttoken.planning.types import Infeasible, Plan

# Tokens of a step, and maximum lengths, that are offered where memory is short: below the last ones, a step of a few
# blocks and prompts of a few hundred tokens, an engine is of little use.
SMALLER_STEPS = (1024, 512, 256)
SHORTER = (8192, 4096, 2048, 1024, 512)
MOST_TRIED = 8  # offers of a kind among which one is looked for that keeps the SLOs

_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")

Profiles = Mapping[str, AcceleratorProfileSpec]
Attempt = Callable[[InferenceServiceSpec, Profiles], Plan | Infeasible]


def with_nearest(refusal: Infeasible, spec: InferenceServiceSpec, profiles: Profiles, attempt: Attempt) -> Infeasible:
    """`refusal` with the alternatives that are feasible alone; those its author guessed are tried like the others."""
    attempt = _once(attempt)
    found = dict(_feasible(refusal.nearest.items(), spec, profiles, attempt))
    if refusal.constraint == "UnknownAccelerator":
        for path in refusal.nearest:
            near = [(path, name) for name in near_names(_value(spec, path), profiles)]
            for offer, value in _feasible(near, spec, profiles, attempt, first=True):
                found.setdefault(offer, value)
    for family in _families(refusal.constraint, spec, profiles, attempt):
        # What the refusal's message names itself stands, and first; what costs other hardware comes last.
        for path, value in _feasible(family, spec, profiles, attempt, first=True):
            found.setdefault(path, value)
    if not found:
        return replace(refusal, nearest={})
    offers = " or ".join(f"{path}: {in_words(value)}" for path, value in found.items())
    doubts = _doubts(found, spec, profiles, attempt)
    return replace(refusal, message=f"{refusal.message}{doubts}. Feasible instead: {offers}", nearest=found)


def _once(attempt: Attempt) -> Attempt:
    """`attempt` that remembers, for one refusal and one set of profiles."""
    tried: dict[str, Plan | Infeasible] = {}

    def remembered(spec: InferenceServiceSpec, profiles: Profiles) -> Plan | Infeasible:
        key = json.dumps(spec.wire(), sort_keys=True)
        if key not in tried:
            tried[key] = attempt(spec, profiles)
        return tried[key]

    return remembered


def _doubts(found: Mapping[str, Any], spec: InferenceServiceSpec, profiles: Profiles, attempt: Attempt) -> str:
    """Which offers are possible by the data sheet and predicted to miss a promise of the spec all the same."""
    said = []
    for path, value in found.items():
        outcome = attempt(with_value(spec, path, value), profiles)
        if spec.slos and isinstance(outcome, Plan) and missed(outcome):
            said.append(f"with {path}: {in_words(value)}, {missed(outcome)[0]}")
    return f". Not ruled out, but predicted to be missed: {'; '.join(said)}" if said else ""


def _families(
    constraint: str, spec: InferenceServiceSpec, profiles: Profiles, attempt: Attempt
) -> Iterator[Iterator[tuple[str, Any]]]:
    """Kinds of alternatives, the cheapest first; of each the first that is feasible is offered."""
    if constraint in ("Memory", "MaxCount", "AcrossNodes", "PipelineParallel"):
        yield _other_pin("tensor_parallel", spec, profiles, attempt)
        yield _other_pin("pipeline_parallel", spec, profiles, attempt)
        yield _smaller_steps(spec)
        yield _shorter_requests(spec)
        yield _fewer_replicas(spec)
        yield _more_gpus(spec, profiles, attempt)
        yield _fp8(spec)
        yield _larger_gpu(spec, profiles)
    if constraint in ("Quantization", "Dtype"):
        yield _unquantised(spec)
        yield _newer_gpu(spec, profiles)
    if constraint == SLO:
        yield _more_gpus(spec, profiles, attempt)
        yield _fp8(spec)
        yield _faster_gpu(spec, profiles)


def with_value(spec: InferenceServiceSpec, path: str, value: Any) -> InferenceServiceSpec:
    """`spec` with the field at `path` set: `spec.accelerator.maxCount`, or an item of a list, `spec.slos[0].target`."""
    wire: dict[str, Any] = spec.wire()
    node: Any = wire
    *parents, last = _keys(path)
    for key in parents:
        node = node[key] if isinstance(key, int) else node.setdefault(key, {})
    node[last] = value
    return InferenceServiceSpec.model_validate(wire)


def in_words(value: Any) -> str:
    """As it is written in YAML on one line: lists and mappings in brackets, `null` for a field that is left out."""
    return json.dumps(value) if value is None or isinstance(value, list | dict) else str(value)


def _keys(path: str) -> list[str | int]:
    """The keys below `spec`, with the indices of lists as numbers."""
    return [int(index) if index else key for key, index in _STEP.findall(path.removeprefix("spec"))]


def _value(spec: InferenceServiceSpec, path: str) -> str:
    node: Any = spec.wire()
    for key in _keys(path):
        node = node[key]
    return str(node)


def _feasible(
    offers: Any, spec: InferenceServiceSpec, profiles: Profiles, attempt: Attempt, *, first: bool = False
) -> Iterator[tuple[str, Any]]:
    """Of `offers` all that can be planned; or the `first`, before others one that is predicted to keep every SLO."""
    possible: tuple[str, Any] | None = None
    for tried, (path, value) in enumerate(offers):
        outcome = attempt(with_value(spec, path, value), profiles)
        if not isinstance(outcome, Plan):
            continue
        if not first or not spec.slos or not missed(outcome):
            yield path, value
            if first:
                return
        possible = possible or (path, value)
        if first and tried >= MOST_TRIED:
            break
    if first and possible is not None:
        yield possible


def _other_pin(
    field: str, spec: InferenceServiceSpec, profiles: Profiles, attempt: Attempt
) -> Iterator[tuple[str, Any]]:
    """A pinned size replaced by the one that would be planned without the pin."""
    pins = spec.engine.pins
    if pins is None or getattr(pins, field) is None:
        return
    path = f"spec.engine.pins.{to_camel(field)}"
    free = attempt(with_value(spec, path, None), profiles)
    if isinstance(free, Plan):
        yield path, getattr(free.roles[-1], field)


def _smaller_steps(spec: InferenceServiceSpec) -> Iterator[tuple[str, Any]]:
    """Smaller steps, which need less for activations and allow fewer running requests; the largest first."""
    pinned = spec.engine.pins.token_budget if spec.engine.pins else None
    for budget in SMALLER_STEPS:
        if pinned is None or budget < pinned:
            yield "spec.engine.pins.tokenBudget", budget


def _shorter_requests(spec: InferenceServiceSpec) -> Iterator[tuple[str, Any]]:
    """A shorter maximum where nobody named one; lengths that the spec names must still fit, or the attempt refuses."""
    if spec.model.max_model_length is None:
        for length in SHORTER:
            yield "spec.model.maxModelLength", length


def _more_gpus(spec: InferenceServiceSpec, profiles: Profiles, attempt: Attempt) -> Iterator[tuple[str, Any]]:
    """Larger budgets in steps of what one more GPU a replica takes, up to what would be planned without a budget."""
    limit = spec.accelerator.max_count
    if limit is None:
        return
    accelerator = spec.accelerator.model_copy(update={"max_count": None})
    unbounded = attempt(spec.model_copy(update={"accelerator": accelerator}), profiles)
    if isinstance(unbounded, Infeasible):
        return
    step = least_replicas(spec)
    for count in range((limit // step + 1) * step, unbounded.gpus + 1, step):
        yield "spec.accelerator.maxCount", count


def _fp8(spec: InferenceServiceSpec) -> Iterator[tuple[str, Any]]:
    """Where the weights are stored in another format already, the attempt refuses it."""
    if spec.model.quantization is None:
        yield "spec.model.quantization", "fp8"


def _fewer_replicas(spec: InferenceServiceSpec) -> Iterator[tuple[str, Any]]:
    """Where the spec says how many must run, the most that the budget has a place for."""
    limit, scaling = spec.accelerator.max_count, spec.scaling
    given = {"replicas": scaling.replicas if scaling.mode == "Planned" else None, "min_replicas": scaling.min_replicas}
    for field, least in given.items():
        if limit is not None and least is not None and least == least_replicas(spec):
            for fewer in range(min(least - 1, limit), 0, -1):
                yield f"spec.scaling.{to_camel(field)}", fewer


def _unquantised(spec: InferenceServiceSpec) -> Iterator[tuple[str, Any]]:
    """16 bits, where it is the spec that asks for less and the weights are not stored so."""
    if spec.model.quantization is not None and spec.model.quantization not in MADE_OFFLINE:
        yield "spec.model.quantization", None


def _newer_gpu(spec: InferenceServiceSpec, profiles: Profiles) -> Iterator[tuple[str, Any]]:
    """Devices of a later compute capability with as much memory, the smallest first, for each role that has its own."""
    split = spec.layout.mode == LayoutMode.DISAGGREGATED
    own = {"prefill": spec.accelerator.prefill, "decode": spec.accelerator.decode} if split else {}
    used = {"spec.accelerator.type": spec.accelerator.type}
    used |= {f"spec.accelerator.{role}.type": given.type for role, given in own.items() if given}
    for path, name in used.items():
        today = profiles.get(name)
        old = capability(today) if today is not None else None
        if today is None or old is None:
            continue
        newer = [
            (device_bytes(p), other)
            for other, p in profiles.items()
            if _replaces(p, today) and (capability(p) or old) > old and device_bytes(p) >= device_bytes(today)
        ]
        for _, other in sorted(newer):
            yield path, other


def _replaces(profile: AcceleratorProfileSpec, today: AcceleratorProfileSpec) -> bool:
    """Of the same vendor, not older (what runs on today's may need what older devices lack), with no poorer links."""
    return (
        profile.vendor == today.vendor
        and (capability(profile) or ()) >= (capability(today) or ())
        and (profile.link_gb_per_second or 0) >= (today.link_gb_per_second or 0)
    )


def _larger_gpu(spec: InferenceServiceSpec, profiles: Profiles) -> Iterator[tuple[str, Any]]:
    """Devices with more memory, the smallest first."""
    today = profiles.get(spec.accelerator.type)
    if today is None or is_cpu(today):
        return
    larger = [
        (device_bytes(p), name)
        for name, p in profiles.items()
        if _replaces(p, today) and device_bytes(p) > device_bytes(today)
    ]
    for _, name in sorted(larger):
        yield "spec.accelerator.type", name


def _faster_gpu(spec: InferenceServiceSpec, profiles: Profiles) -> Iterator[tuple[str, Any]]:
    """Devices that compute and read memory faster, the slowest first."""
    today = profiles.get(spec.accelerator.type)
    if today is None or is_cpu(today):
        return
    rates = _rates(today)
    faster = [
        (_rates(p), name)
        for name, p in profiles.items()
        if _replaces(p, today) and all(new > old for new, old in zip(_rates(p), rates, strict=True))
    ]
    for _, name in sorted(faster):
        yield "spec.accelerator.type", name


def _rates(profile: AcceleratorProfileSpec) -> tuple[float, float]:
    return profile.memory_bandwidth_gb_per_second or 0.0, profile.fp16_tflops or 0.0
