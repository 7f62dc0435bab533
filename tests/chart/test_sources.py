"""What the chart repeats from elsewhere is equal to its source."""

import importlib.util
import json
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from firsttoken.api.records import AcceleratorProfile
from firsttoken.manifests.images import Images

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


def test_every_value_is_documented() -> None:
    rows = [line for line in (CHART / "README.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 40
    assert [row for row in rows if row.rstrip().endswith("|  |")] == []


def test_shipped_profiles_are_valid() -> None:
    documents = [d for d in yaml.safe_load_all((CHART / "files" / "accelerators.yaml").read_text()) if d]
    assert len({AcceleratorProfile.model_validate(d).metadata.name for d in documents}) == len(documents) == 23
