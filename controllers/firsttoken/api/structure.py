"""What the API server's structural schema validation says about a value, in its words.

The texts follow kube-openapi's validators and `field.Error` (Kubernetes 1.36); e2e/validation compares them with a
real API server.
"""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from firsttoken.api.cause import At, Cause, text_path
from firsttoken.api.go_text import number, quoted, scalar
from firsttoken.api.schema import Schema, child_schema

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
_LARGEST_EXACT = 2**53 - 1
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)")


def unknown_fields(value: Any, schema: Schema, at: At = ()) -> Iterator[Cause]:
    """Fields that the schema does not have (strict decoding refuses them)."""
    if schema.get(PRESERVE):
        return
    if isinstance(value, dict):
        for key, item in value.items():
            where, known = (*at, key), child_schema(schema, key)
            if known is not None:
                yield from unknown_fields(item, known, where)
            else:
                yield _blocking(where, f"unknown field {quoted(text_path(where))}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unknown_fields(item, schema.get("items", {}), (*at, index))


def without_unknown(value: Any, schema: Schema) -> Any:
    """`value` with only the fields that the schema has."""
    if schema.get(PRESERVE):
        return value
    if isinstance(value, dict):
        known = {key: child_schema(schema, key) for key in value}
        return {key: without_unknown(value[key], child) for key, child in known.items() if child is not None}
    if isinstance(value, list):
        return [without_unknown(item, schema.get("items", {})) for item in value]
    return value


def check(value: Any, schema: Schema, at: At = ()) -> Iterator[Cause]:
    """What is wrong with `value` (defaults applied) by `schema`: types, bounds, lengths, enums, required fields."""
    yield from _type(value, schema, at)
    if isinstance(value, str):
        yield from _string(value, schema, at)
    elif _is_number(value):
        yield from _number(value, schema, at)
    elif isinstance(value, list):
        yield from _list(value, schema, at)
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(quoted(v if isinstance(v, str) else json.dumps(v)) for v in schema["enum"])
        bad = "null" if value is None else _any_text(value)
        yield _blocking(at, f"Unsupported value: {bad}: supported values: {allowed}")
    if isinstance(value, dict):
        yield from _map(value, schema, at)


def _cause(at: At, message: str) -> Cause:
    return Cause(at, message, text_path(at))


def _blocking(at: At, message: str) -> Cause:
    return Cause(at, message, text_path(at), blocks=True)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _any_text(value: Any) -> str:
    if isinstance(value, str | int | float):
        return scalar(value)
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    for types, name in ((bool, "boolean"), (str, "string"), (int, "integer"), (float, "number"), (list, "array")):
        if isinstance(value, types):
            return name
    return "object"


def _type(value: Any, schema: Schema, at: At) -> Iterator[Cause]:
    wanted = ["integer", "string"] if schema.get(INT_OR_STRING) else [schema["type"]] if "type" in schema else []
    name = _type_name(value)
    is_whole_float = isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST_EXACT
    if not wanted or name in wanted or (name == "integer" and "number" in wanted):
        return
    if is_whole_float and "integer" in wanted:
        return
    types = ",".join(wanted)
    yield _blocking(at, f'Invalid value: "{name}": {text_path(at)} in body must be of type {types}: "{name}"')


def _string(value: str, schema: Schema, at: At) -> Iterator[Cause]:
    path = text_path(at)
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        unit = "byte" if schema["maxLength"] == 1 else "bytes"
        yield _blocking(at, f"Too long: may not be more than {schema['maxLength']} {unit}")
    elif len(value) < schema.get("minLength", 0):
        yield _invalid(at, value, f"{path} in body should be at least {schema['minLength']} chars long")
    elif "pattern" in schema and not _pattern(schema["pattern"]).search(value):
        yield _invalid(at, value, f"{path} in body should match '{schema['pattern']}'")
    if schema.get("format") == "date-time" and not _DATE_TIME.fullmatch(value):
        yield _invalid(at, value, f"{path} in body must be of type date-time: {quoted(value)}")


@lru_cache
def _pattern(pattern: str) -> re.Pattern[str]:
    # Go's `$` is the end of the text; Python's would let a newline follow.
    return re.compile(pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern)


def _invalid(at: At, value: Any, detail: str) -> Cause:
    return _cause(at, f"Invalid value: {scalar(value)}: {detail}")


def _number(value: int | float, schema: Schema, at: At) -> Iterator[Cause]:
    for bound, exclusive, sign, words in (
        ("minimum", "exclusiveMinimum", 1, "greater than"),
        ("maximum", "exclusiveMaximum", -1, "less than"),
    ):
        if bound not in schema:
            continue
        # Whole numbers are compared with the whole part of the bound: the API server does so, for `number` too.
        limit = int(schema[bound]) if isinstance(value, int) else float(schema[bound])
        strictly = bool(schema.get(exclusive))
        distance = (value - limit) * sign
        if distance < 0 or (strictly and distance == 0):
            relation = words if strictly else f"{words} or equal to"
            yield _invalid(at, value, f"{text_path(at)} in body should be {relation} {number(limit)}")


def _list(value: list[Any], schema: Schema, at: At) -> Iterator[Cause]:
    for index, item in enumerate(value):
        yield from check(item, schema.get("items", {}), (*at, index))
    if len(value) < schema.get("minItems", 0):
        yield _invalid(at, len(value), f"{text_path(at)} in body should have at least {schema['minItems']} items")
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield _blocking(at, _too_many(len(value), schema["maxItems"]))
    yield from _duplicates(value, schema, at)


def _too_many(actual: int, limit: int) -> str:
    return f"Too many: {actual}: must have at most {limit} {'item' if limit == 1 else 'items'}"


def _duplicates(value: list[Any], schema: Schema, at: At) -> Iterator[Cause]:
    """Items of a list-map or set that are there twice; each is reported at its second place."""
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("map", "set"):
        return
    for index, item in enumerate(value):
        if kind == "map" and not isinstance(item, dict):
            if item is not None:
                bad = f"Invalid value: {_any_text(item)}: must be an object for an array of list-type map"
                yield _cause((*at, index), bad)
            return
    keys = schema.get("x-kubernetes-list-map-keys", [])
    seen: dict[str, int] = {}
    for index, item in enumerate(value):
        identity = {k: item[k] for k in keys if k in item} if kind == "map" else item
        text = json.dumps(identity, sort_keys=True)
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:
            yield _cause((*at, index), f"Duplicate value: {_any_text(identity)}")


def _map(value: dict[str, Any], schema: Schema, at: At) -> Iterator[Cause]:
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield _blocking(at, _too_many(len(value), schema["maxProperties"]))
    for key, item in value.items():
        known = child_schema(schema, key)
        if known is not None:
            yield from check(item, known, (*at, key))
    for key in schema.get("required", []):
        if key not in value:
            yield _blocking((*at, key), "Required value")
