"""Pydantic models → Kubernetes' structural OpenAPI v3 schemas: no $ref, no null types, defaults as the API server
applies them."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from firsttoken.api.base import UNDEFAULTED, add_validations

VALIDATIONS = "x-kubernetes-validations"
Schema = dict[str, Any]


class _Generator(GenerateJsonSchema):
    """Adds what pydantic does not know: a class's own CEL rules, and defaults in wire form."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return add_validations(super().model_schema(schema), getattr(schema["cls"], "RULES", ()))

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        if UNDEFAULTED in inner:
            return {key: value for key, value in inner.items() if key != UNDEFAULTED}
        default = _wire(schema.get("default"))
        return inner if default is None else {**inner, "default": default}


def structural(model: type[BaseModel]) -> Schema:
    """The structural schema of `model`, every reference resolved in place."""
    document = model.model_json_schema(by_alias=True, schema_generator=_Generator)
    definitions = document.pop("$defs", {})
    return _structural(document, definitions)


def child_schema(schema: Schema, key: str) -> Schema | None:
    """The schema of the field or map entry `key`, None where the schema has none."""
    properties: dict[str, Schema] = schema.get("properties", {})
    rest: Schema | None = schema.get("additionalProperties")
    return properties.get(key, rest)


def with_defaults(value: Any, schema: Schema) -> Any:
    """A copy of `value` with the schema's defaults filled in, as the API server does before it validates.

    Nulls count as absent. Defaults in a definition are written out in full, since the API server checks them against
    the CEL rules as they stand.
    """
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if v is not None or child_schema(schema, k) is None}
        properties: dict[str, Schema] = schema.get("properties", {})
        defaults = {k: child["default"] for k, child in properties.items() if "default" in child and k not in kept}
        return {k: with_defaults(v, child_schema(schema, k) or {}) for k, v in (kept | defaults).items()}
    if isinstance(value, list):
        return [with_defaults(item, schema.get("items", {})) for item in value]
    return value


def without_defaults(schema: Schema) -> Schema:
    """`schema` without any default: a status says what was seen, nothing is filled in."""
    out = {key: value for key, value in schema.items() if key != "default"}
    if "properties" in schema:
        out["properties"] = {name: without_defaults(child) for name, child in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in schema:
            out[key] = without_defaults(schema[key])
    return out


def _wire(value: Any) -> Any:
    """A default as the API server would store it; a model's unset fields are left to their own defaults."""
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True, exclude_unset=True, exclude_none=True, mode="json")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list):
        return [_wire(item) for item in value]
    return value


def _structural(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    merged = _flattened(schema, definitions)
    out: Schema = {}
    for key, value in merged.items():
        if key == "properties":
            out[key] = {name: _structural(child, definitions) for name, child in value.items()}
        elif key == "items":
            out[key] = _structural(value, definitions)
        elif key == "additionalProperties":
            if isinstance(value, Mapping):
                out[key] = _structural(value, definitions)
        elif key in ("exclusiveMinimum", "exclusiveMaximum"):
            # OpenAPI v3.0: a bound and a flag, where JSON Schema has a bound of its own.
            out[key.replace("exclusiveM", "m")] = value
            out[key] = True
        elif key not in ("title", "default"):
            out[key] = value
    default = with_defaults(merged.get("default"), out)
    # Storing `{}` or `[]` would be noise in every object: absent means the same.
    return out if default in (None, [], {}) else out | {"default": default}


def _flattened(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """`schema` with its reference resolved and its `null` alternative dropped; what stands beside them wins."""
    beside = {k: v for k, v in schema.items() if k not in ("$ref", "anyOf")}
    if "$ref" in schema:
        inner = _flattened(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    elif "anyOf" in schema and "x-kubernetes-int-or-string" not in schema:
        (inner_schema,) = (option for option in schema["anyOf"] if option != {"type": "null"})
        inner = _flattened(inner_schema, definitions)
    else:
        return dict(schema)
    rules = [*inner.get(VALIDATIONS, []), *beside.get(VALIDATIONS, [])]
    merged = inner | beside
    return merged | {VALIDATIONS: rules} if rules else merged
