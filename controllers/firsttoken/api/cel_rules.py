"""The CEL rules of a schema, evaluated without an API server: same text, same message.

CEL itself is the `cel` package (Rust); Kubernetes' own functions are added here, as far as rules use them.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import cel

from firsttoken.api.cause import At, Cause
from firsttoken.api.go_text import scalar
from firsttoken.api.quantities import quantity
from firsttoken.api.schema import VALIDATIONS, Schema, child_schema

# A-Z and a-z only: CEL's lowerAscii and upperAscii leave other letters alone.
_UPPER = {c: c - 32 for c in range(ord("a"), ord("z") + 1)}


def _find_all(text: str, pattern: str) -> list[str]:
    return [match.group(0) for match in re.finditer(pattern, text)]


def _compare(a: float, b: float) -> int:
    return (a > b) - (a < b)


def _is_quantity(text: str) -> bool:
    try:
        quantity(text)
    except ValueError:
        return False
    return True


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "compareTo": _compare,
    "findAll": _find_all,
    "isQuantity": _is_quantity,
    "isSorted": lambda values: all(a <= b for a, b in pairwise(values)),
    "length_": len,
    "max": max,
    "quantity": lambda text: float(quantity(text)),
    "replace": lambda text, old, new: text.replace(old, new),
    "split": lambda text, separator: text.split(separator),
    "sum": sum,
    "upperAscii": lambda text: text.translate(_UPPER),
}


class RuleError(Exception):
    """A rule could not be evaluated; the message says why."""


def check(value: Any, schema: Schema, broken: frozenset[At] = frozenset(), at: At = ()) -> Iterator[Cause]:
    """Rules that `value` (structure checked, defaults applied) breaks; values around a `broken` place are left out."""
    if value is None or at in broken:
        return
    if VALIDATIONS in schema and not any(place[: len(at)] == at for place in broken):
        typed = _typed(value, schema)
        for rule in schema[VALIDATIONS]:
            yield from _evaluate(rule, typed, value, schema, at)
    if isinstance(value, dict):
        for key, item in value.items():
            yield from check(item, child_schema(schema, key) or {}, broken, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from check(item, schema.get("items", {}), broken, (*at, index))


def path_of(at: At, schema: Schema) -> str:
    """`at` as CEL faults write it: keys of maps in brackets."""
    out = ""
    for part in at:
        properties = schema.get("properties", {})
        if isinstance(part, int):
            out, schema = f"{out}[{part}]", schema.get("items", {})
        elif part in properties:
            out, schema = (f"{out}.{part}" if out else part), properties[part]
        else:
            out, schema = f"{out}[{part}]", schema.get("additionalProperties", {})
    return out


def _evaluate(rule: dict[str, str], typed: Any, value: Any, schema: Schema, at: At) -> Iterator[Cause]:
    if re.search(r"\boldSelf\b", rule["rule"]):
        return  # judges a change, and there is none
    quoted_value = "" if isinstance(value, dict | list) else f" {scalar(value)}:"
    target = rule.get("fieldPath", "")
    where = (*at, *target.removeprefix(".").split(".")) if target else at
    try:
        if run(rule["rule"], typed) is True:
            return
        message = rule["message"]
        if "messageExpression" in rule:
            message = str(run(rule["messageExpression"], typed))
        yield Cause(where, f"Invalid value:{quoted_value} {message}", rule=rule["message"])
    except RuleError as error:
        yield Cause(at, f'Invalid value: "{schema.get("type", "")}": {error} evaluating rule: {rule["message"]}')


def run(expression: str, value: Any) -> Any:
    """The value of a CEL `expression` for `self`. Raises RuleError when it has none."""
    try:
        return _compiled(expression).execute(cel.Context(variables={"self": value}, functions=FUNCTIONS))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a Rust panic is a BaseException, and must not end the whole check
        raise RuleError(f"{type(error).__name__}: {error}") from error


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> Any:
    # The package counts a text's bytes where Kubernetes counts characters.
    return cel.compile(expression.replace(".size()", ".length_()"))


def _typed(value: Any, schema: Schema) -> Any:
    """`value` with whole numbers as doubles where the schema says `number`: CEL does not mix the two."""
    if isinstance(value, dict):
        return {k: _typed(v, child_schema(schema, k) or {}) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_typed(item, schema.get("items", {})) for item in value]
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value
