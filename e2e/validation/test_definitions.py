"""What the definitions promise beside refusing: /scale, columns, categories, size, and how YAML is read."""

import json
from typing import Any

import pytest
import yaml
from e2e.validation.conftest import path_of

from firsttoken.api.crd import KINDS
from firsttoken.api.documents import read
from firsttoken.api.example import BASES
from firsttoken.api.extra_args import ALLOWED_ARGS
from firsttoken.api.records import AcceleratorProfile, InferenceRevision, PerformanceReport
from firsttoken.api.service import InferenceService
from firsttoken.api.validation import check_object, validate
from firsttoken.api.validation_examples import merge

# Flags whose value is free.
FREE_ARGS = [
    flag
    for flag in ALLOWED_ARGS
    if flag not in ("dtype", "hf-overrides", "structured-outputs-config", "uvicorn-log-level")
]
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
MODELS = {m.__name__: m for m in (InferenceService, InferenceRevision, AcceleratorProfile, PerformanceReport)}
# One line each; what Kubernetes makes of it is asked from Kubernetes.
SCALARS = (
    "yes", "y", "Off", "n", "~", "Null", "''", "1", "+1", "-1", "010", "08", "0o10", "0x1F", "0b11", "-0b11", "1_000",
    "_1", "1e3", "1.5e3", "1.0", "1.", "0.5", ".5", "1e400", "1e-7", "9223372036854775807", "1:30", "2026-01-01",
    "2026-01-01T00:00:00Z", "'1'", '"yes"', "!!str 1", "!!int '5'", "tRue", "=", "1.2.3", "0x", "00", "-010", "0777",
    "a: b", "[1, yes, 1e2]", "{1: a, true: b, 1.5: c}", "!custom text",
    "{y: 1, off: 2}", "{<<: {p: 1}, q: 2}", "!!float 1", "0xZ", "é😀",
)  # fmt: skip


def object_of(kind: str, patch: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = merge(yaml.safe_load(BASES[kind]), patch)
    return merged


@pytest.mark.parametrize("scalar", SCALARS)
def test_yaml_is_read_as_the_api_server_reads_it(server: Any, scalar: str) -> None:
    text = BASES["InferenceRevision"].replace("inputs: {}", f"inputs:\n    value:\n      inner: {scalar}")
    answer = server.request("POST", path_of("InferenceRevision"), text, dryRun="All", fieldValidation="Strict")
    (document,) = read(text)
    if answer.code == 201:
        assert not document.causes
        # As JSON text: 1, 1.0 and true are equal in Python.
        ours, theirs = document.value["spec"]["inputs"], answer.body["spec"]["inputs"]
        assert json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)
    else:
        assert validate(text).faults


def test_a_key_given_twice_is_refused(server: Any) -> None:
    text = BASES["InferenceService"].replace("    type:", "    type: nvidia-h200\n    type:")
    answer = server.request("POST", path_of("InferenceService"), text, dryRun="All", fieldValidation="Strict")
    (fault,) = validate(text).faults
    assert answer.code == 400
    assert f"line {fault.line}: {fault.message}" in answer.body["message"]


def test_the_largest_values_stay_within_the_budget_of_rules(server: Any) -> None:
    """The API server stops rules that cost too much, so a big but valid service must not be refused for its size."""
    name = "a" * 200
    value = object_of(
        "InferenceService",
        {
            "metadata": {"name": "n" * 46},
            "spec": {
                "slos": [
                    {"metric": metric, "percentile": p, "promptTokens": bucket, "target": "1h2m3s4ms"}
                    for metric in ("TTFT", "TPOT")
                    for p in (50, 90, 95, 99)
                    for bucket in ("all", "0-64", "512-1024", "16384+")
                ],
                "measurement": {"promptTokenBuckets": [64, 512, 1024, 16384]},
                "engine": {"extraArgs": dict.fromkeys(FREE_ARGS[:60], "x" * 110)},
                "podTemplate": {
                    "metadata": {"annotations": {f"example.com/{i}": "x" * 240 for i in range(32)}},
                    "spec": {
                        "tolerations": [{"key": "k" * 300, "value": "v" * 63} for _ in range(32)],
                        "volumes": [{"name": f"v{i}", "configMap": {"name": name}} for i in range(16)],
                    },
                    "engine": {
                        "env": [{"name": f"A{i}", "value": "x" * 170} for i in range(48)],
                        "volumeMounts": [{"name": "v1", "mountPath": f"/data/{i}{'p' * 240}"} for i in range(32)],
                    },
                },
            },
        },
    )
    assert check_object(value) == ()
    answer = server.create(value, dryRun="All")
    assert answer.code == 201, answer.body["message"]


def test_replicas_are_scaled_through_the_subresource(server: Any) -> None:
    value = object_of("InferenceService", {"metadata": {"name": "scaled"}})
    value["spec"]["scaling"] = {"mode": "External", "replicas": 2}
    assert server.apply(value).code in (200, 201)
    path = f"{path_of('InferenceService')}/scaled"
    scale = server.request("GET", f"{path}/scale").body
    assert scale["spec"]["replicas"] == 2
    scale["spec"]["replicas"] = 5
    assert server.request("PUT", f"{path}/scale", scale).code == 200
    assert server.request("GET", path).body["spec"]["scaling"]["replicas"] == 5
    assert server.request("DELETE", path).code == 200


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_columns_are_shown(server: Any, kind: Any) -> None:
    table = server.request("GET", path_of(kind.name), accept=TABLE).body
    shown = [column["name"] for column in table["columnDefinitions"]]
    assert shown == ["Name", *(column.name for column in kind.columns)]


def test_short_names_and_categories_are_announced(server: Any) -> None:
    resources = server.request("GET", "/apis/firsttoken.dev/v1alpha1").body["resources"]
    announced = {r["kind"]: r for r in resources if "/" not in r["name"] and r["kind"] in MODELS}
    assert {k: r["shortNames"] for k, r in announced.items()} == {k.name: [k.short] for k in KINDS}
    assert all("firsttoken" in r["categories"] for r in announced.values())
    assert "all" in announced["InferenceService"]["categories"]


@pytest.mark.parametrize("kind", list(BASES))
def test_what_the_api_server_stores_is_read_by_the_models(server: Any, kind: str) -> None:
    value = object_of(kind, {"metadata": {"name": f"stored-{kind.lower()}"}})
    assert server.apply(value, force="true").code in (200, 201)
    path = f"{path_of(kind)}/{value['metadata']['name']}"
    stored = server.request("GET", path).body
    model: Any = MODELS[kind].model_validate(stored)
    assert lost(model.spec.wire(), stored["spec"]) == []
    assert server.request("DELETE", path).code == 200


def lost(read: Any, stored: Any, path: str = "spec") -> list[str]:
    """What is stored and not read; a model may fill in more than the API server does."""
    if isinstance(stored, dict) and isinstance(read, dict):
        return [found for key in stored for found in lost(read.get(key), stored[key], f"{path}.{key}")]
    return [] if read == stored else [path]
