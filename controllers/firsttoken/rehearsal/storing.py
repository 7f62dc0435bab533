"""How the API server stores what is applied: a stand-in that knows only what `decide` reads.

Server-side apply with one manager of ours: values are merged (lists that Kubernetes identifies by key item by item),
what was applied before and no longer is goes, and `managedFields` lists what is ours. Not here: defaulting, validation
by schema, conflicts, the ownership of other managers. The real API server does those in e2e.
"""

import copy
import json
from collections.abc import Mapping
from typing import Any

from firsttoken.reconcile.drift import ITEM_KEYS, KEY_DEFAULTS

Object = dict[str, Any]

_KEYS = {**ITEM_KEYS, "conditions": (("type",),)}  # every other list is one value
_NOT_OWNED = ("apiVersion", "kind")  # as for name and namespace, nobody owns what an object is called


def fields_of(applied: Any, field: str = "") -> Object:
    """`applied` as fieldsV1, the way managedFields tells what a manager owns."""
    if isinstance(applied, Mapping):
        return {f"f:{key}": fields_of(value, key) for key, value in applied.items()}
    keys = _keys(field, applied)
    if keys is None:
        return {}
    return {f"k:{_name(item, keys)}": {".": {}, **fields_of(item)} for item in applied}


def owned_fields(applied: Object) -> Object:
    """fieldsV1 of a whole object."""
    meta = {k: v for k, v in applied["metadata"].items() if k not in ("name", "namespace")}
    return fields_of({**{k: v for k, v in applied.items() if k not in _NOT_OWNED}, "metadata": meta})


def merge(live: Object, applied: Mapping[str, Any]) -> None:
    """Lay `applied` over `live`, in place."""
    for key, value in applied.items():
        keys = _keys(key, value)
        if isinstance(value, Mapping) and isinstance(live.get(key), dict):
            merge(live[key], value)
        elif keys is not None and isinstance(live.get(key), list):
            _merge_items(live[key], value, keys)
        else:
            live[key] = copy.deepcopy(value)


def give_up(live: Any, before: Mapping[str, Any], applied: Any) -> None:
    """Remove from `live` what we owned (`before`, fieldsV1) and no longer apply."""
    for path, below in before.items():
        kind, _, rest = path.partition(":")
        if kind == "f" and isinstance(live, dict) and rest in live:
            wanted = applied.get(rest) if isinstance(applied, Mapping) else None
            if wanted is None and not _has_others(live[rest], below):
                del live[rest]
            else:
                give_up(live[rest], below, wanted)
        elif kind == "k" and isinstance(live, list):
            wanted = _find(applied or (), json.loads(rest))
            found = _find(live, json.loads(rest))
            if found is not None and wanted is None:
                live.remove(found)
            elif found is not None:
                give_up(found, below, wanted)


def _has_others(live: Any, ours: Mapping[str, Any]) -> bool:
    """Whether a map or keyed list holds something that is not ours."""
    if isinstance(live, Mapping):
        return bool(ours) and any(f"f:{key}" not in ours for key in live)
    return isinstance(live, list) and bool(ours) and len(live) > len(ours)


def _merge_items(live: list[Any], applied: list[Any], keys: tuple[str, ...]) -> None:
    for item in applied:
        found = _find(live, json.loads(_name(item, keys)))
        if found is None:
            live.append(copy.deepcopy(item))
        else:
            merge(found, item)


def _find(items: Any, wanted: Mapping[str, Any]) -> Any:
    for item in items:
        if all(item.get(k, KEY_DEFAULTS.get(k)) == v for k, v in wanted.items()):
            return item
    return None


def _keys(field: str, items: Any) -> tuple[str, ...] | None:
    if not isinstance(items, list):
        return None
    for keys in _KEYS.get(field, ()):
        if all(isinstance(item, Mapping) and keys[0] in item for item in items):
            return keys
    return None


def _name(item: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return json.dumps({k: item.get(k, KEY_DEFAULTS.get(k)) for k in keys}, separators=(",", ":"))
