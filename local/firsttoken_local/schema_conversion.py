"""From the API server's OpenAPI v3 documents to JSON schemas that kubeconform reads.

Strict in the sense of the API server's strict field validation: a field that is not declared is a fault. Stricter in
one point: null is a fault unless the field is nullable, because in a manifest it is a slip of a template.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = dict[str, Any]

_REF = "#/components/schemas/"
_KEPT = frozenset(
    {
        "type", "required", "enum", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
        "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties",
        "maxProperties", "description", "title",
    }
)  # fmt: skip
_COMBINED = ("allOf", "anyOf", "oneOf")
_OPEN = "x-kubernetes-preserve-unknown-fields"
# Formats that describe Go types; the validator would not know them.
_GO_FORMATS = frozenset({"int32", "int64", "float", "double", "byte", "int-or-string", "quantity"})


def file_name(group: str, version: str, kind: str) -> str:
    """Return kubeconform's ``{{.ResourceKind}}{{.KindSuffix}}.json``: of the group it uses the first word only."""
    words = [kind, group.split(".", maxsplit=1)[0], version] if group else [kind, version]
    return "-".join(word.lower() for word in words) + ".json"


def convert(schema: Mapping[str, Any], *, closed: bool = True) -> Schema:
    """Return one schema as draft 4 JSON schema; references point to ``#/definitions/``.

    ``closed`` tells whether an object refuses fields that are not declared. Branches of anyOf and the like only add
    conditions to an object that is declared elsewhere: they stay open.
    """
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace(_REF, "#/definitions/")}
    result = {key: value for key, value in schema.items() if key in _KEPT}
    if result.get("format") in _GO_FORMATS:
        del result["format"]
    for key in _COMBINED:
        if key in schema:
            result[key] = [convert(one, closed=False) for one in schema[key]]
    if "not" in schema:
        result["not"] = convert(schema["not"], closed=False)
    if "items" in schema:
        result["items"] = convert(schema["items"], closed=closed)
    _convert_object(schema, result, closed)
    if schema.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
        # In a list of its own: the schema may have an anyOf already, for instance with a pattern.
        result.setdefault("allOf", []).append({"anyOf": [{"type": "integer"}, {"type": "string"}]})
    return _nullable(result) if schema.get("nullable") else result


def _convert_object(schema: Mapping[str, Any], result: Schema, closed: bool) -> None:
    properties = schema.get("properties")
    additional = schema.get("additionalProperties")
    if properties is not None:
        result["properties"] = {name: convert(one, closed=closed) for name, one in properties.items()}
    if isinstance(additional, Mapping):
        result["additionalProperties"] = convert(additional, closed=closed)
    elif additional is not None:
        result["additionalProperties"] = additional
    elif properties and closed and not schema.get(_OPEN):
        result["additionalProperties"] = False
        if schema.get("x-kubernetes-embedded-resource"):
            for name in ("apiVersion", "kind", "metadata"):
                result["properties"].setdefault(name, {})


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def references(schema: object) -> Iterator[str]:
    """Yield the names of the definitions that a converted schema refers to."""
    if isinstance(schema, Mapping):
        target = schema.get("$ref")
        if isinstance(target, str):
            yield target.removeprefix("#/definitions/")
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def standalone(document: Mapping[str, Any]) -> Iterator[tuple[str, Schema]]:
    """Yield file name and self-contained schema of every kind that one OpenAPI v3 document declares."""
    declared = document.get("components", {}).get("schemas", {})
    converted = {name: convert(schema) for name, schema in declared.items()}
    for name, schema in declared.items():
        for served in schema.get("x-kubernetes-group-version-kind", []):
            body = converted[name]
            if "properties" not in body:
                continue
            needed: dict[str, Schema] = {}
            queue = list(references(body))
            while queue:
                target = queue.pop()
                if target not in needed and target in converted:
                    needed[target] = converted[target]
                    queue += references(converted[target])
            required = sorted({*body.get("required", []), "apiVersion", "kind"})
            whole = {**body, "required": required, "definitions": needed}
            yield file_name(served["group"], served["version"], served["kind"]), whole
