"""The largest JSON that a schema lets through, in bytes, from its bounds and rules alone."""

import re
from collections.abc import Iterator
from typing import Any

from firsttoken.api.schema import VALIDATIONS, Schema

# Bytes of one character in etcd, where objects are JSON as Go writes it: control characters and <, >, & become \u00xx.
_WIDTHS = (("\x01", 6), ("<", 6), ("&", 6), ("é", 4), ('"', 2), ("\\", 2))
_NUMBER = 24  # a double's digits, sign and exponent
_KEY_SIZE = re.compile(r"k\.size\(\) <= (\d+)")
_MAP_BUDGET = re.compile(r"^self\.map\(k, k\.size\(\) \+ self\[k\]\.size\(\)\)\.sum\(\) <= (\d+)$")
_ENV_BUDGET = re.compile(r"^self\.map\(e, has\(e\.value\) \? e\.value\.size\(\) : 0\)\.sum\(\) <= (\d+)$")


class UnboundedError(Exception):
    """Some part of the schema has no bound; the message names it."""


def rules(schema: Schema) -> list[str]:
    """CEL texts of a schema."""
    return [entry["rule"] for entry in schema.get(VALIDATIONS, [])]


def worst_case(schema: Schema, path: str = "") -> int:
    """Bytes of the largest value. Raises UnboundedError."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        raise UnboundedError(f"{path} preserves unknown fields")
    if "enum" in schema:
        return max(len(str(value)) for value in schema["enum"]) + 2
    kind = schema.get("type", "string")
    if kind == "object":
        return _object(schema, path)
    if kind == "array":
        return _array(schema, path)
    if kind == "string":
        return _text(schema, path)
    return _NUMBER


def character_width(schema: Schema) -> int:
    """Bytes that a character of a text may take, given the regular expressions it must match."""
    return max((width for character, width in _WIDTHS if _allows(schema, character)), default=1)


def _allows(schema: Schema, character: str) -> bool:
    patterns = [p for rule in rules(schema) if (p := _anchored(rule))]
    patterns += [schema["pattern"]] if "pattern" in schema else []
    probes = [
        character,
        f"a{character}",
        f"{character}a",
        f"a{character}a",
        f"/{character}a",
        f"hf://{character}",
        f"hf://a{character}",
    ]
    return any(all(re.search(p.replace("$", r"\Z"), probe) for p in patterns) for probe in probes)


def _anchored(rule: str) -> str | None:
    found = re.match(r"^self\.matches\('((?:[^'\\]|\\.)*)'\)(?: && |$)", rule)
    if not found:
        return None
    pattern = re.sub(r"\\(.)", r"\1", found[1])
    if pattern.startswith("^(?i)"):
        pattern = "(?i)^" + pattern[5:]
    return pattern


def _text(schema: Schema, path: str) -> int:
    if "maxLength" not in schema:
        if schema.get("format") == "date-time":
            return 40
        raise UnboundedError(f"{path} has no maxLength")
    return int(schema["maxLength"]) * character_width(schema) + 2


def _array(schema: Schema, path: str) -> int:
    if "maxItems" not in schema:
        raise UnboundedError(f"{path} has no maxItems")
    items: Schema = schema["items"]
    for budget in _budgets(schema, _ENV_BUDGET):
        value: Schema = items["properties"]["value"]
        rest = {**items, "properties": {k: v for k, v in items["properties"].items() if k != "value"}}
        each = worst_case(rest, f"{path}[]") + len('"value":"",')
        return budget * character_width(value) + int(schema["maxItems"]) * (each + 1) + 2
    return int(schema["maxItems"]) * (worst_case(items, f"{path}[]") + 1) + 2


def _object(schema: Schema, path: str) -> int:
    if "additionalProperties" in schema:
        return _map(schema, path)
    properties: dict[str, Schema] = schema.get("properties", {})
    return 2 + sum(len(name) + 4 + worst_case(child, f"{path}.{name}") for name, child in properties.items())


def _map(schema: Schema, path: str) -> int:
    if "maxProperties" not in schema:
        raise UnboundedError(f"{path} has no maxProperties")
    value: Schema = schema["additionalProperties"]
    count = int(schema["maxProperties"])
    keys = [int(size) for rule in rules(schema) for size in _KEY_SIZE.findall(rule)]
    for budget in _budgets(schema, _MAP_BUDGET):
        return budget * character_width(value) + count * 6 + 2
    if not keys:
        raise UnboundedError(f"{path} has keys of any length")
    return count * (min(keys) + 4 + worst_case(value, f"{path}{{}}")) + 2


def _budgets(schema: Schema, pattern: re.Pattern[str]) -> Iterator[int]:
    yield from (int(found[1]) for rule in rules(schema) if (found := pattern.match(rule)))


def parts(schema: Schema, path: str = "", depth: int = 2) -> dict[str, Any]:
    """Bytes by field, for people who look for what is large."""
    out = {}
    for name, child in schema.get("properties", {}).items():
        out[f"{path}.{name}"] = worst_case(child, f"{path}.{name}")
        if depth:
            out |= parts(child, f"{path}.{name}", depth - 1)
    return out
