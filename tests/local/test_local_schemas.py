"""From OpenAPI v3 to kubeconform's schemas."""

from __future__ import annotations

from typing import Any

import pytest

from firsttoken_local.schema_conversion import convert, file_name, standalone
from firsttoken_local.schemas import parse_result

META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


@pytest.mark.parametrize(
    ("group", "version", "kind", "expected"),
    [
        ("", "v1", "Pod", "pod-v1.json"),
        ("apps", "v1", "Deployment", "deployment-apps-v1.json"),
        ("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproute-gateway-v1.json"),
        ("firsttoken.dev", "v1alpha1", "Service", "service-firsttoken-v1alpha1.json"),
    ],
)
def test_file_name_is_kubeconform_s(group: str, version: str, kind: str, expected: str) -> None:
    assert file_name(group, version, kind) == expected


def test_declared_objects_are_closed_and_maps_stay_maps() -> None:
    result = convert(
        {
            "type": "object",
            "properties": {
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "inner": {"type": "object", "properties": {"a": {"type": "string"}}},
                "free": {"type": "object"},
            },
        }
    )
    assert result["additionalProperties"] is False
    assert result["properties"]["labels"]["additionalProperties"] == {"type": "string"}
    assert result["properties"]["inner"]["additionalProperties"] is False
    assert "additionalProperties" not in result["properties"]["free"]


def test_preserved_unknown_fields_keep_an_object_open() -> None:
    schema = {"type": "object", "properties": {"a": {}}, "x-kubernetes-preserve-unknown-fields": True}
    assert "additionalProperties" not in convert(schema)


def test_branches_of_a_combination_stay_open() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"properties": {"b": {"enum": ["x"]}}}],
        "not": {"properties": {"a": {"enum": ["y"]}}},
    }
    result = convert(schema)
    assert result["additionalProperties"] is False
    assert "additionalProperties" not in result["anyOf"][1]
    assert "additionalProperties" not in result["not"]


def test_int_or_string_replaces_the_type_and_keeps_other_conditions() -> None:
    schema = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^a"}
    result = convert(schema)
    assert result["allOf"] == [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]
    assert result["pattern"] == "^a"
    assert "type" not in result


def test_null_only_where_nullable() -> None:
    assert convert({"type": "string", "nullable": True}) == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert convert({"type": "string", "default": ""}) == {"type": "string"}


def test_go_formats_go_and_real_ones_stay() -> None:
    assert convert({"type": "integer", "format": "int32"}) == {"type": "integer"}
    assert convert({"type": "string", "format": "date-time"}) == {"type": "string", "format": "date-time"}


def document() -> dict[str, Any]:
    ref = {"allOf": [{"$ref": f"#/components/schemas/{META}"}], "default": {}}
    tree = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/components/schemas/T"}}},
    }
    served = [{"group": "firsttoken.dev", "version": "v1alpha1", "kind": "Thing"}]
    thing = {
        "type": "object",
        "required": ["spec"],
        "properties": {"kind": {"type": "string"}, "metadata": ref, "spec": {"$ref": "#/components/schemas/T"}},
        "x-kubernetes-group-version-kind": served,
    }
    return {
        "components": {
            "schemas": {META: {"type": "object", "properties": {"name": {"type": "string"}}}, "T": tree, "Thing": thing,
                        "Unused": {"type": "string"}}
        }
    }  # fmt: skip


def test_standalone_schema_holds_what_it_refers_to_even_in_a_circle() -> None:
    [(name, schema)] = list(standalone(document()))
    assert name == "thing-firsttoken-v1alpha1.json"
    assert set(schema["definitions"]) == {META, "T"}
    assert schema["definitions"]["T"]["properties"]["children"]["items"] == {"$ref": "#/definitions/T"}
    assert schema["required"] == ["apiVersion", "kind", "spec"]


def test_a_skipped_object_is_a_problem_and_nothing_is_not_ok() -> None:
    counts = {"valid": 0, "invalid": 0, "errors": 0, "skipped": 1}
    result = parse_result({"resources": [], "summary": counts})
    assert result.problems
    assert not result.ok
    assert not parse_result({"resources": [], "summary": {**counts, "skipped": 0}}).ok
    assert parse_result({"resources": [], "summary": {**counts, "skipped": 0, "valid": 2}}).ok
