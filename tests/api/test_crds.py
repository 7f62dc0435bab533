"""crds/*.yaml: as the models say, and as Kubernetes wants structural schemas."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from firsttoken.api import crd
from firsttoken.api.base import ApiModel, Rule, Rules
from firsttoken.api.schema import VALIDATIONS, Schema, structural, with_defaults
from firsttoken.api.validation import schemas
from firsttoken_operator import generate

CRDS = Path(__file__).parents[2] / "crds"
KINDS = [kind.name for kind in crd.KINDS]


def walk(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Every schema below `schema`, with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from walk(schema[key], path + suffix)


def everything() -> list[tuple[str, Schema]]:
    return [found for kind in KINDS for found in walk(schemas()[kind], kind)]


def spec(kind: str) -> Schema:
    found: Schema = schemas()[kind]["properties"]["spec"]
    return found


def test_the_files_are_what_the_models_give() -> None:
    stored = {file.name: file.read_text(encoding="utf-8") for file in CRDS.glob("*.yaml")}
    assert stored == crd.files(), "run `make crds` and read the difference"


def test_making_them_twice_gives_the_same_text_without_anchors() -> None:
    first, second = crd.files(), crd.files()
    assert first == second
    assert not any("&id" in text for text in first.values())


@pytest.mark.parametrize(
    ("what", "place"), [("crds", "crds"), ("validation", "docs/validation.md"), ("cli", "docs/cli.md")]
)
def test_generate_writes_what_is_checked_in(what: str, place: str, tmp_path: Path) -> None:
    stored, made = CRDS.parent / place, tmp_path / "new" / place
    generate.main([what, str(made)])
    for file in [stored] if stored.is_file() else stored.glob("*.yaml"):
        assert (made if stored.is_file() else made / file.name).read_bytes() == file.read_bytes()


def test_a_revision_that_drains_is_merged_by_name() -> None:
    revision = schemas()["InferenceService"]["properties"]["status"]["properties"]["revision"]
    draining = revision["properties"]["draining"]
    assert draining["x-kubernetes-list-map-keys"] == ["name"]
    assert draining["items"]["required"] == ["name", "since"]
    assert draining["items"]["properties"]["since"]["format"] == "date-time"


def test_every_property_has_a_description() -> None:
    missing = [
        f"{path}.{name}"
        for path, schema in everything()
        for name, child in schema.get("properties", {}).items()
        if not child.get("description") and name != "metadata" and ".metadata" not in path.split(".spec")[0]
    ]
    assert missing == []


def test_nothing_is_left_that_kubernetes_does_not_know() -> None:
    for path, schema in everything():
        assert not {"title", "$ref", "anyOf", "allOf", "const", "$defs"} & set(schema), path
        assert schema.get("type") != "null", path
        if "x-kubernetes-int-or-string" not in schema:
            assert "type" in schema, path


def test_unknown_fields_are_kept_only_where_a_record_needs_it() -> None:
    kept = [path for path, schema in everything() if schema.get("x-kubernetes-preserve-unknown-fields")]
    assert kept == [
        "InferenceRevision.spec.inputs",
        "InferenceRevision.spec.plan",
        "InferenceRevision.spec.objects[]",
        "PerformanceReport.spec.verdicts[]",
    ]


def test_a_status_has_no_defaults() -> None:
    for kind in KINDS:
        for path, schema in walk(schemas()[kind]["properties"].get("status", {}), kind):
            assert "default" not in schema, path


def test_S5_a_service_nobody_has_looked_at_is_no_finished_one_to_flux() -> None:
    versions = {k.name: crd.definition(k)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for k in crd.KINDS}
    defaults = {k: s["properties"]["status"].get("default") for k, s in versions.items() if "status" in s["properties"]}
    assert defaults == {"InferenceService": {"observedGeneration": -1}, "InferenceRevision": None}


def test_defaults_are_filled_in_although_their_parent_is_absent() -> None:
    filled = with_defaults({"model": {"uri": "hf://a/b"}, "accelerator": {"type": "x"}}, spec("InferenceService"))
    assert filled["layout"] == {"mode": "Auto"}
    assert filled["workload"] == {"profile": "Chat"}
    assert filled["rollout"] == {"approval": "Automatic", "drainTimeout": "2m"}, "not the steps: see inactive_fields"


def test_what_would_only_be_noise_is_not_filled_in() -> None:
    filled = with_defaults({"model": {"uri": "hf://a/b"}, "accelerator": {"type": "x"}}, spec("InferenceService"))
    assert not {"slos", "engine", "routing", "podTemplate"} & set(filled)


def test_a_default_of_a_given_parent_is_filled_in_too() -> None:
    filled = with_defaults({"rollout": {"split": {}, "steps": [{"weight": 5}]}}, spec("InferenceService"))
    assert filled["rollout"]["split"] == {"mode": "Random"}
    assert filled["rollout"]["steps"] == [{"weight": 5, "hold": "0s"}]
    assert filled["rollout"]["drainTimeout"] == "2m"


def test_null_counts_as_absent() -> None:
    filled = with_defaults({"layout": None, "routing": None, "tuning": {"mode": None}}, spec("InferenceService"))
    assert filled["layout"] == {"mode": "Auto"}
    assert "routing" not in filled
    assert filled["tuning"] == {"mode": "Recommend"}


def test_bounds_above_zero_are_written_as_openapi_does() -> None:
    rate = spec("InferenceService")["properties"]["workload"]["properties"]["requestsPerSecond"]
    assert (rate["minimum"], rate["exclusiveMinimum"]) == (0, True)


def test_conditions_are_merged_by_type() -> None:
    for kind in ("InferenceService", "InferenceRevision"):
        conditions = schemas()[kind]["properties"]["status"]["properties"]["conditions"]
        assert conditions["x-kubernetes-list-map-keys"] == ["type"]


@pytest.mark.parametrize("kind", crd.KINDS, ids=lambda kind: kind.name)
def test_a_column_shows_a_field_that_exists(kind: crd.Kind) -> None:
    for column in kind.columns:
        schema: Any = schemas()[kind.name]
        steps = column.path.split("[")[0].removeprefix(".").split(".")
        if steps[0] == "metadata":
            continue
        for step in steps:
            assert step in schema["properties"], column
            schema = schema["properties"][step]


def test_scale_reads_and_writes_fields_that_exist() -> None:
    version = crd.definition(crd.KINDS[0])["spec"]["versions"][0]
    scale = version["subresources"]["scale"]
    assert scale == {
        "specReplicasPath": ".spec.scaling.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    for path in scale.values():
        schema: Any = schemas()["InferenceService"]
        for step in path.removeprefix(".").split("."):
            schema = schema["properties"][step]
        assert schema["type"] in ("integer", "string")


def test_rules_of_a_class_and_of_a_field_both_arrive() -> None:
    steps = spec("InferenceService")["properties"]["rollout"]["properties"]["steps"]
    assert len(steps[VALIDATIONS]) == 1
    tokens = spec("InferenceService")["properties"]["workload"]["properties"]["promptTokens"]
    assert tokens[VALIDATIONS][0]["fieldPath"] == ".p95"


def test_a_rule_on_a_class_is_part_of_its_schema_wherever_it_is_used() -> None:
    class Inner(ApiModel):
        """Inner."""

        a: int = 1
        RULES: ClassVar[Rules] = (Rule("one", "self.a == 1", "a must be 1"),)

    class Outer(ApiModel):
        """Outer."""

        first: Inner
        second: Inner | None = None

    schema = structural(Outer)
    for name in ("first", "second"):
        assert schema["properties"][name][VALIDATIONS] == [{"rule": "self.a == 1", "message": "a must be 1"}]
        assert schema["properties"][name]["type"] == "object"


def test_the_files_are_yaml_that_kubectl_can_apply() -> None:
    for file in CRDS.glob("*.yaml"):
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert document["metadata"]["name"] == file.stem.removeprefix("firsttoken.dev_") + ".firsttoken.dev"
