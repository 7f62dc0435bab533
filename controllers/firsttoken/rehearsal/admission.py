"""What the API server says to edits by hand: of the service's spec, and of the objects that the operator made.

There is no schema of Kubernetes' own kinds here. An edit keeps the type of every field that is there already, and of
what a rehearsal reads beyond that, each field is checked.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from firsttoken.api.quantities import quantity
from firsttoken.api.schema import with_defaults
from firsttoken.api.validation import schemas, validate
from firsttoken.rehearsal.cluster import merged
from firsttoken.rehearsal.errors import WorldError
from firsttoken.rehearsal.storing import Object

MOST_REPLICAS = 1_000  # of one Deployment: pods are played one by one
_IDENTITY = ("name", "namespace", "uid")
_PEOPLE_S = ("labels", "annotations", "ownerReferences", "finalizers")  # metadata that an edit can change
_NUMBER_OR_TEXT = {"targetPort", "port", "maxSurge", "maxUnavailable", "minAvailable"}
_QUANTITIES = {"limits", "requests"}


def admitted(service: Mapping[str, Any], patch: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The spec that the API server stores when somebody lays `patch` over it. Raises WorldError: it refuses that."""
    edited = merged(dict(service["spec"]), dict(patch))
    bare = {"apiVersion": service["apiVersion"], "kind": service["kind"], "spec": edited}
    names = {k: v for k, v in service["metadata"].items() if k in ("name", "namespace")}
    faults = validate(json.dumps({**bare, "metadata": names})).faults
    if faults:
        said = "; ".join(f"{fault.path}: {fault.message}" for fault in faults)
        raise WorldError(f"{place}.spec: the API server refuses it: {said}")
    found: dict[str, Any] = with_defaults(bare, schemas()[service["kind"]])["spec"]
    return found


def edited(obj: Object, patch: Object, place: str) -> Object:
    """An object as the API server stores it when somebody lays `patch` over it; its status stays as it is.

    Raises WorldError, one line: it refuses that.
    """
    new = merged(obj, patch)
    fault = next(_faults(obj, new), None)
    if fault is not None:
        name = f"{obj['kind']}/{obj['metadata']['name']}"
        raise WorldError(f"{place}.patch: the API server refuses it for {name}: {fault}")
    kept = {k: v for k, v in obj["metadata"].items() if k not in _PEOPLE_S}
    new["metadata"] = {**kept, **{k: v for k, v in new["metadata"].items() if k in _PEOPLE_S}}
    new.pop("status", None)
    return new | ({"status": obj["status"]} if "status" in obj else {})


def _faults(old: Object, new: Object) -> Iterator[str]:
    yield from _types(old, new, "")
    for name in ("apiVersion", "kind"):
        if new.get(name) != old[name]:
            yield f"{name} can't be changed"
    for name in _IDENTITY:
        if new.get("metadata", {}).get(name) != old["metadata"].get(name):
            yield f"metadata.{name} can't be changed"
    for name in ("labels", "annotations"):
        yield from _texts(new["metadata"].get(name), f"metadata.{name}")
    for place in ("ownerReferences", "finalizers"):
        yield from _entries(new["metadata"].get(place), f"metadata.{place}", dict if place[0] == "o" else str)
    if old["kind"] == "InferenceRevision" and new.get("spec") != old.get("spec"):
        yield "spec is a record and can't be changed"
    if old["kind"] == "ConfigMap":
        yield from _texts(new.get("data"), "data")
    if old["kind"] == "Deployment":
        yield from _deployment(old["spec"], new.get("spec"))


def _deployment(old: Object, new: Any) -> Iterator[str]:
    if not isinstance(new, Mapping):
        yield "spec is missing"
        return
    yield from _whole(new, "replicas", "spec", 0, MOST_REPLICAS)
    yield from _whole(new, "progressDeadlineSeconds", "spec", 1, 2**31 - 1)
    if new.get("selector") != old.get("selector"):
        yield "spec.selector can't be changed"
    template = new.get("template")
    if not isinstance(template, Mapping) or not isinstance(template.get("spec"), Mapping):
        yield "spec.template needs a spec"
        return
    labels = (template.get("metadata") or {}).get("labels")
    yield from _texts(labels, "spec.template.metadata.labels")
    wanted = ((old.get("selector") or {}).get("matchLabels") or {}).items()
    if not labels or not wanted <= labels.items():
        yield "spec.template.metadata.labels don't match spec.selector"
    yield from _pod(template["spec"])


def _pod(spec: Mapping[str, Any]) -> Iterator[str]:
    where = "spec.template.spec"
    yield from _whole(spec, "terminationGracePeriodSeconds", where, 0, 2**31 - 1)
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        yield f"{where}.containers: a list of at least one is needed"
        return
    for number, one in enumerate(containers):
        here = f"{where}.containers[{number}]"
        if not isinstance(one, Mapping):
            yield f"{here} is {_kind(one)}: an object is needed"
            continue
        for name in ("name", "image"):
            if not isinstance(one.get(name), str) or not one[name]:
                yield f"{here}.{name}: a text is needed"
        yield from _limits(one.get("resources"), f"{here}.resources")


def _limits(resources: Any, here: str) -> Iterator[str]:
    limits = (resources or {}).get("limits") or {} if isinstance(resources or {}, Mapping) else None
    if not isinstance(limits, Mapping):
        yield f"{here}: an object with limits by name is needed"
        return
    for name, value in limits.items():
        try:
            good = not isinstance(value, bool) and isinstance(value, int | str) and quantity(value) >= 0
        except ValueError:
            good = False
        if not good:
            yield f"{here}.limits.{name} is {_short(value)}: no quantity of 0 or more"


def _types(old: Any, new: Any, path: str) -> Iterator[str]:
    """Fields that have another type than they had."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in old.keys() & new.keys():
            below = f"{path}.{key}" if path else str(key)
            either = key in _NUMBER_OR_TEXT or path.rpartition(".")[2] in _QUANTITIES
            if not (either and isinstance(new[key], int | str) and not isinstance(new[key], bool)):
                yield from _types(old[key], new[key], below)
    elif isinstance(old, list) and isinstance(new, list):
        known: dict[str, Any] = {}
        for item in old:
            known |= item if isinstance(item, Mapping) else {}
        for number, item in enumerate(new if old else ()):
            yield from _types(known or old[0], item, f"{path}[{number}]")
    elif old is not None and _kind(old) != _kind(new):
        yield f"{path} is {_kind(new)}: {_kind(old)} is needed"


def _texts(value: Any, path: str) -> Iterator[str]:
    if value is not None and not isinstance(value, Mapping):
        yield f"{path} is {_kind(value)}: an object is needed"
        return
    for key, text in (value or {}).items():
        if not isinstance(text, str):
            yield f"{path}.{key} is {_kind(text)}: a text is needed"


def _entries(value: Any, path: str, kind: type) -> Iterator[str]:
    wanted = "objects with apiVersion, kind, name and uid" if kind is dict else "texts"
    keys = ("apiVersion", "kind", "name", "uid")
    if value is not None and not (
        isinstance(value, list)
        and all(isinstance(one, kind) for one in value)
        and (kind is str or all(isinstance(one.get(key), str) for one in value for key in keys))
    ):
        yield f"{path}: a list of {wanted} is needed"


def _whole(value: Mapping[str, Any], name: str, path: str, low: int, high: int) -> Iterator[str]:
    found = value.get(name)
    if found is not None and (isinstance(found, bool) or not isinstance(found, int) or not low <= found <= high):
        yield f"{path}.{name} is {_short(found)}: give a whole number from {low} to {high}"


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, bool):
        return "true or false"
    names = {list: "a list", str: "a text", int: "a number", float: "a number", type(None): "nothing"}
    return names.get(type(value), "of no known type")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
