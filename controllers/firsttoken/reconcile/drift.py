"""Is what the API server holds still what we applied? Decided without writing, so a quiet reconcile writes nothing.

Two questions: does the object hold every field we want (somebody may have edited it), and do we still own a field
that we no longer want (it must be given up by applying again)? Fields of others are left alone (invariant 13).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from firsttoken.reconcile.objects import Object, applied_fields

# Lists whose items Kubernetes identifies by key; others may add items of their own to these.
_ITEM_KEYS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "containers": (("name",),),
    "initContainers": (("name",),),
    "env": (("name",),),
    "volumes": (("name",),),
    "volumeMounts": (("mountPath",),),
    "imagePullSecrets": (("name",),),
    "ownerReferences": (("uid",),),
    "ports": (("containerPort", "protocol"), ("port", "protocol")),
    "topologySpreadConstraints": (("topologyKey", "whenUnsatisfiable"),),
}
_KEY_DEFAULTS = {"protocol": "TCP"}


def drifted(desired: Object, observed: Object | None) -> bool:
    """Whether `desired` must be applied (again)."""
    if observed is None:
        return True
    owned = applied_fields(observed)
    return owned is None or not covers(observed, desired) or _owns_beyond(owned, desired)


def covers(observed: Any, desired: Any, field: str = "") -> bool:
    """Whether `observed` holds everything in `desired` (the API server may have added defaults)."""
    if isinstance(desired, Mapping):
        if not isinstance(observed, Mapping):
            return not desired and observed is None
        return all(covers(observed.get(k), v, k) for k, v in desired.items())
    if isinstance(desired, Sequence) and not isinstance(desired, str):
        return _list_covers(observed or (), desired, field)
    return bool(observed == desired)


def _list_covers(observed: Any, desired: Sequence[Any], field: str) -> bool:
    if not isinstance(observed, Sequence) or isinstance(observed, str):
        return False
    keys = _keys_of(field, desired)
    if keys is None:
        return len(observed) == len(desired) and all(map(covers, observed, desired))
    present = {_identity(item, keys): item for item in observed}
    return all(covers(present.get(_identity(item, keys)), item) for item in desired)


def _keys_of(field: str, items: Sequence[Any]) -> tuple[str, ...] | None:
    for keys in _ITEM_KEYS.get(field, ()):
        if all(isinstance(item, Mapping) and keys[0] in item for item in items):
            return keys
    return None


def _identity(item: Mapping[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(item.get(k, _KEY_DEFAULTS.get(k)) for k in keys)


def _owns_beyond(fields: Mapping[str, Any], desired: Any) -> bool:
    """Whether `fields` (fieldsV1) names something that is not in `desired`."""
    for key, below in fields.items():
        kind, _, rest = key.partition(":")
        if kind == "f":
            if not isinstance(desired, Mapping) or rest not in desired:
                return True
            if below and _owns_beyond(below, desired[rest]):
                return True
        elif kind == "k":
            item = _item(desired, json.loads(rest))
            if item is None or _owns_beyond(below, item):
                return True
        elif kind == "v" and json.loads(rest) not in desired:
            return True
    return False


def _item(items: Any, keys: Mapping[str, Any]) -> Any:
    if not isinstance(items, Sequence) or isinstance(items, str):
        return None
    for item in items:
        if all(item.get(k, _KEY_DEFAULTS.get(k)) == v for k, v in keys.items()):
            return item
    return None
