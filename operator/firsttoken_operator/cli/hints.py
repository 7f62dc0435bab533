"""What a fault leaves open, said beside the API server's own words: what was meant, and which of several it is."""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from firsttoken.api.engine import MeasurementSpec
from firsttoken.api.schema import Schema, child_schema
from firsttoken.api.validation import Fault, schemas
from firsttoken.planning.accelerators import catalogue, near_names
from firsttoken.planning.workload import bucket_names

_UNKNOWN_FIELD, _NO_BUCKET, _NO_NAME = "unknown field ", "an SLO names a bucket", "not an object name"
_DEVICE = re.compile(r"spec\.accelerator(\.prefill|\.decode)?\.type")


def with_hint(fault: Fault, value: Any) -> str:
    """The message of `fault`, with a hint where there is one. `value` is the document that it is about."""
    text = _hint(fault, value if isinstance(value, dict) else {})
    return f"{fault.message}; {text}" if text else fault.message


def _hint(fault: Fault, value: Mapping[str, Any]) -> str:
    if fault.kind in schemas() and fault.message.startswith(_UNKNOWN_FIELD):
        return _field(fault.path, schemas()[fault.kind])
    if _NO_BUCKET in fault.message:
        return _buckets(value)
    if _NO_NAME in fault.message and _DEVICE.fullmatch(fault.path):
        return _did_you_mean(near_names(str(_at(value, fault.path)), catalogue()))
    return ""


def _did_you_mean(names: list[str]) -> str:
    return f"did you mean {' or '.join(names)}?" if names else ""


def _field(path: str, schema: Schema) -> str:
    """A field beside it that is spelled alike, else the same name elsewhere in the object."""
    *parents, name = _keys(path)
    beside: Schema | None = schema
    for key in parents:
        beside = (beside.get("items", {}) if key.isdigit() else child_schema(beside, key)) if beside else None
    near = difflib.get_close_matches(name, (beside or {}).get("properties", {}), 1, 0.7)
    prefix = path[: -len(name)]
    elsewhere = [found for found in _places(schema, "") if found.rpartition(".")[2] == name]
    return _did_you_mean([f"{prefix}{n}" for n in near] or elsewhere[:2])


def _places(schema: Schema, path: str) -> Iterator[str]:
    """Paths of all fields of the spec, except of what is Kubernetes' own (pod templates have every name there is)."""
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        if here not in ("status", "metadata", "spec.podTemplate"):
            yield here
            yield from _places(child, here)
            yield from _places(child.get("items", {}), f"{here}[]")


def _buckets(value: Mapping[str, Any]) -> str:
    """Which SLO, and the buckets that are measured."""
    given = _at(value, "spec.measurement.promptTokenBuckets") or MeasurementSpec().prompt_token_buckets
    measured = bucket_names(given)
    slos = _at(value, "spec.slos") or []
    said = [
        f"spec.slos[{index}].promptTokens is {slo['promptTokens']}"
        for index, slo in enumerate(slos)
        if slo.get("promptTokens", "all") not in ("all", *measured)
    ]
    return f"{', '.join(said)}; measured are {', '.join(measured)}"


def _keys(path: str) -> list[str]:
    return re.findall(r"[^.\[\]]+", path)


def _at(value: Any, path: str) -> Any:
    for key in _keys(path):
        value = value.get(key) if isinstance(value, dict) else None
    return value
