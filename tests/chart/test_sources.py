"""What the chart repeats from elsewhere is equal to its source."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from e2e.chart.empty_values import HANDED_ON, MAY_BE_EMPTY, paths

from firsttoken.api.records import AcceleratorProfile
from firsttoken.manifests.images import Images
from firsttoken_operator.__main__ import _parser

REPOSITORY = Path(__file__).parents[2]
CHARTS = REPOSITORY / "charts"
CHART = CHARTS / "firsttoken"


def sync() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sync", CHARTS / "sync.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def test_definitions_and_catalogue_are_copies() -> None:
    """`make chart` (python charts/sync.py) makes them equal again."""
    assert [str(path) for path in sync().differences()] == []
    assert len(sync().copies()) == 5


def test_versions_are_the_package_s() -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == version
    assert chart["version"] == version


def test_workload_images_are_the_operator_s_defaults() -> None:
    images = Images()
    assert values()["workloadImages"] == {"engine": images.engine, "router": images.router, "envoy": images.envoy}


def test_every_value_is_in_the_schema_and_the_other_way_round() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(value: dict[str, Any], declared: dict[str, Any], path: str) -> None:
        assert declared["additionalProperties"] is False, path
        assert value.keys() == declared["properties"].keys() - {"global"}, path
        for name, one in value.items():
            if "properties" in declared["properties"][name] and name != "resources":
                compare(one, declared["properties"][name], f"{path}.{name}")

    compare(values(), schema, "")


def test_the_schema_misses_every_key_that_must_not_be_empty() -> None:
    """`key:` is null, which removes the default from what the templates see; e2e/chart sees helm refuse it."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    required: set[str] = set()

    def collect(declared: dict[str, Any], path: str) -> None:
        required.update(f"{path}{name}" for name in declared.get("required", ()))
        for name, one in declared["properties"].items():
            if "properties" in one and name not in HANDED_ON:
                collect(one, f"{path}{name}.")

    collect(schema, "")
    assert required == {path for path, _ in paths()} - MAY_BE_EMPTY
    assert {path for path, _ in paths()} > MAY_BE_EMPTY


def test_flags_refused_in_extra_args_are_those_of_the_deployment() -> None:
    template = (CHART / "templates" / "deployment.yaml").read_text()
    rendered = set(re.findall(r"^ +- --([a-z-]+)", template, re.MULTILINE))
    table = (CHART / "templates" / "_check.tpl").read_text().partition('{{- define "firsttoken.flags" -}}\n')[2]
    refused = yaml.safe_load(table.partition("{{- end -}}")[0])
    assert rendered == refused.keys()
    assert list(refused) == sorted(refused), "the first that fits is told, so a flag comes before its longer ones"
    options = {one for action in _parser()._actions for one in action.option_strings}
    assert {f"--{flag}" for flag in refused} <= options


def test_every_value_is_documented() -> None:
    rows = [line for line in (CHART / "README.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 40
    assert [row for row in rows if row.rstrip().endswith("|  |")] == []


def test_shipped_profiles_are_valid() -> None:
    documents = [d for d in yaml.safe_load_all((CHART / "files" / "accelerators.yaml").read_text()) if d]
    assert len({AcceleratorProfile.model_validate(d).metadata.name for d in documents}) == len(documents) == 23
