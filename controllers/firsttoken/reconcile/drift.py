"""Is what the API server holds still what we applied? Decided without writing, so a quiet reconcile writes nothing.

Three questions. Does the object hold every field we want (somebody may have edited it)? Do we still own each of them
(somebody who changes an atomic map or list, such as a selector, takes it from us as a whole)? Do we own a field that we
no longer want (it must be given up by applying again)? Fields of others are left alone (invariant 13).
"""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from firsttoken.api.quantities import quantity
from firsttoken.reconcile.objects import Object, applied_fields

# Lists whose items Kubernetes identifies by key; others may add items of their own to these.
ITEM_KEYS: Mapping[str, tuple[tuple[str, ...], ...]] = {
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
KEY_DEFAULTS = {"protocol": "TCP"}
_AMOUNTS, _AMOUNT_FIELDS = {"requests", "limits"}, {"sizeLimit", "divisor"}
_ROUNDING = Decimal("1e-9")


def drifted(desired: Object, observed: Object | None) -> bool:
    """Whether `desired` must be applied (again)."""
    if observed is None:
        return True
    owned = applied_fields(observed)
    return owned is None or not covers(observed, desired) or _owns_beyond(owned, desired) or _owns_less(owned, desired)


def covers(observed: Any, desired: Any, field: str = "") -> bool:
    """Whether `observed` holds everything in `desired` (the API server adds defaults and respells quantities)."""
    if isinstance(desired, Mapping):
        if not isinstance(observed, Mapping):
            return not desired and observed is None
        amounts = field in _AMOUNTS
        return all(
            _same_amount(observed.get(k), v) if amounts else covers(observed.get(k), v, k) for k, v in desired.items()
        )
    if isinstance(desired, Sequence) and not isinstance(desired, str):
        return _list_covers(observed or (), desired, field)
    if field in _AMOUNT_FIELDS:
        return _same_amount(observed, desired)
    return bool(observed == desired) or (desired == "" and observed is None)


def _same_amount(observed: Any, desired: Any) -> bool:
    """Equal as quantities: `0.5` comes back as `500m`, finer than the API server keeps as rounded up."""
    try:
        return observed is not None and abs(quantity(observed) - quantity(desired)) < _ROUNDING
    except ValueError:
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
    for keys in ITEM_KEYS.get(field, ()):
        if all(isinstance(item, Mapping) and keys[0] in item for item in items):
            return keys
    return None


def _identity(item: Mapping[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(item.get(k, KEY_DEFAULTS.get(k)) for k in keys)


# Never in fieldsV1: what identifies an object is nobody's field.
_IDENTITY: Mapping[str, Any] = {"apiVersion": {}, "kind": {}, "metadata": {"name": {}, "namespace": {}, "uid": {}}}


def _owns_less(fields: Mapping[str, Any], desired: Any, exempt: Mapping[str, Any] = _IDENTITY) -> bool:
    """Whether something in `desired` is not named in `fields` (fieldsV1). A leaf there covers everything below it."""
    for key, value in desired.items():
        if key in exempt and not exempt[key]:
            continue
        below = fields.get(f"f:{key}")
        if below is None:
            return True
        if isinstance(value, Mapping) and not _is_leaf(below) and _owns_less(below, value, exempt.get(key, {})):
            return True
        if isinstance(value, list | tuple) and _items_own_less(below, value):
            return True
    return False


def _is_leaf(fields: Mapping[str, Any]) -> bool:
    return all(key == "." for key in fields)


def _items_own_less(fields: Mapping[str, Any], items: Sequence[Any]) -> bool:
    """The same for a list: one with keys names each item, an atomic one is owned as a whole."""
    keyed = [(json.loads(k[2:]), below) for k, below in fields.items() if k.startswith("k:")]
    if not keyed:
        return False
    for item in items:
        below = next((b for keys, b in keyed if _item([item], keys) is not None), None)
        if below is None or (not _is_leaf(below) and _owns_less(below, item, {})):
            return True
    return False


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
        if all(item.get(k, KEY_DEFAULTS.get(k)) == v for k, v in keys.items()):
            return item
    return None
