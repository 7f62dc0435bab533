"""Rendered objects, compared with files a person has read. `UPDATE_GOLDEN=1 pytest tests/manifests` rewrites them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from firsttoken.api.service import InferenceService
from firsttoken.manifests.gateway import gateway_objects
from firsttoken.manifests.images import Images
from firsttoken.manifests.live import live_config_map
from firsttoken.manifests.revision import revision_objects
from firsttoken.planning.types import LiveSettings, Plan
from manifests import cases

GOLDEN = Path(__file__).parent / "golden"
REVISION = "kb-assistant-1a2b3c4d"
Objects = tuple[dict[str, Any], ...]


def _revision(service: InferenceService, plan: Plan) -> Objects:
    return revision_objects(service, REVISION, plan, cases.PROFILES, Images())


def _source(plan: Plan | None = None, **model: Any) -> Objects:
    deployment, *_ = _revision(cases.service(model=model), plan or cases.plan())
    return (deployment,)


ROUTED = cases.service(
    rollout={"split": {"mode": "HeaderHash", "header": "X-User-Id"}},
    routing={
        "gateway": {"name": "public", "namespace": "infra", "sectionName": "https"},
        "hostnames": ["kb.example.com"],
    },
    podTemplate=cases.POD_TEMPLATE,
    engine={"extraArgs": {"seed": "1", "disable-uvicorn-access-log": ""}},
)

CASES: dict[str, Callable[[], Objects]] = {
    "colocated": lambda: _revision(cases.service(), cases.plan()),
    "colocated-router-overlay": lambda: _revision(ROUTED, cases.plan(router=True)),
    "disaggregated": lambda: _revision(cases.service(), cases.disaggregated()),
    "over-nodes": lambda: _revision(cases.service(podTemplate=cases.POD_TEMPLATE), cases.over_nodes()),
    "cpu": lambda: _revision(cases.service(accelerator={"type": "cpu"}), cases.cpu_plan()),
    "source-hf": lambda: _source(
        uri="hf://meta-llama/Llama-3.1-8B-Instruct",
        revision="0e9e39f249a16976918f6564b8830bc894c89659",
        credentials={"name": "hugging-face"},
        cache={"claimName": "models"},
    ),
    "source-pvc": lambda: _source(
        cases.quantised_plan("awq"), uri="pvc://models/llama/8b", name="llama", trustRemoteCode=True
    ),
    "source-oci": lambda: _source(uri="oci://registry.example.com/models/llama:8b"),
    "source-s3": lambda: _source(
        uri="s3://models/llama/8b", credentials={"name": "bucket"}, cache={"sizeLimit": "1024Mi"}
    ),
    "live": lambda: (live_config_map(cases.service(), REVISION, LiveSettings(512, 64, 2048), 7),),
    "gateway": lambda: gateway_objects(cases.service(), (cases.STABLE,), Images()),
    "gateway-canary-hash-route": lambda: gateway_objects(ROUTED, (cases.STABLE, cases.CANARY), Images()),
    "gateway-empty": lambda: gateway_objects(cases.service(), (), Images())[1:2],
}


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, so that a change in one line shows as one line."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def dump(objects: Objects) -> str:
    """YAML documents with sorted keys."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=True, width=200)


@pytest.mark.parametrize("name", CASES)
def test_rendered_objects_equal_the_golden_file(name: str) -> None:
    path = GOLDEN / f"{name}.yaml"
    rendered = dump(CASES[name]())
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(rendered)
    assert path.read_text() == rendered, "read the difference; if it is meant: UPDATE_GOLDEN=1 pytest tests/manifests"


def test_every_golden_file_belongs_to_a_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_equal_input_gives_equal_bytes_and_shares_nothing(name: str) -> None:
    first, second = CASES[name](), CASES[name]()
    assert dump(first) == dump(second)
    before = dump(second)
    for item in first:
        item["metadata"]["ownerReferences"] = []
        item["metadata"]["labels"].clear()
    assert dump(CASES[name]()) == before
    assert "&id" not in before, "objects share a part: changing one would change the other"
