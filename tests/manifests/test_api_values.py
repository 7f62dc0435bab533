"""Every value the API lets a user choose: the planner plans or refuses it, never fails, and each plan is rendered."""

import re
from typing import Any

import pytest

from firsttoken.api.engine import EnginePins
from firsttoken.api.service import InferenceService
from firsttoken.api.service_inputs import LayoutMode, ModelSpec, Profile
from firsttoken.manifests.images import Images
from firsttoken.manifests.revision import revision_objects
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.nearest import with_value
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import Plan

DEVICES = catalogue()
MODELS = ("qwen2.5-7b", "qwen3-30b-a3b", "deepseek-v2-lite", "mpt-7b", "gemma-2-2b")
NAMES = ("nvidia-t4", "nvidia-a100-80gb", "nvidia-h200", "nvidia-b200", "nvidia-rtx-pro-6000", "amd-mi300x", "cpu")
INTERNAL = re.compile(r"\bM\d+(\.\d+)?\b|MISSION|DESIGN|ENGINE\.md")


def enum(model: Any, field: str) -> list[Any]:
    """The values of a field of the API, beside none; so a new one is tested from its first day."""
    return [None, *model.model_fields[field].json_schema_extra["enum"]]


VALUES = [
    *(("spec.model.quantization", v) for v in enum(ModelSpec, "quantization")),
    *(("spec.engine.pins.attentionBackend", v) for v in enum(EnginePins, "attention_backend")),
    *(("spec.engine.pins.kvCacheDtype", v) for v in enum(EnginePins, "kv_cache_dtype")),
    *(("spec.layout.mode", v.value) for v in LayoutMode),
    *(("spec.workload.profile", v.value) for v in Profile),
]
UNKNOWN = [
    ("spec.model.quantization", "of-tomorrow", "Quantization"),
    ("spec.engine.pins.attentionBackend", "OF_TOMORROW", "AttentionBackend"),
    ("spec.engine.pins.kvCacheDtype", "of_tomorrow", "KVCacheDtype"),
]


def _service(model: str, device: str) -> InferenceService:
    spec = {
        "model": {"uri": "pvc://models/mine", "architecture": {"preset": model}, "maxModelLength": 2048},
        "accelerator": {"type": device, "maxCount": 8},
        "workload": {"promptTokens": {"p50": 200, "p95": 800}, "outputTokens": {"p50": 50, "p95": 100}},
    }
    return InferenceService.model_validate({"metadata": {"name": "s", "namespace": "n"}, "spec": spec})


@pytest.mark.parametrize(("path", "value"), VALUES, ids=str)
def test_every_value_is_planned_or_refused(path: str, value: Any) -> None:
    for model in MODELS:
        for device in NAMES:
            service = _service(model, device)
            spec = with_value(service.spec, path, value)
            outcome = make_plan(spec, DEVICES)
            if not isinstance(outcome, Plan):
                assert not INTERNAL.search(outcome.message), outcome
                continue
            assert not [r for r in outcome.reasons if INTERNAL.search(r.message)]
            changed = service.model_copy(update={"spec": spec})
            assert revision_objects(changed, "s-1a2b3c4d", outcome, DEVICES, Images())


@pytest.mark.parametrize(("path", "value"), [v for v in VALUES if v[1] is not None], ids=str)
def test_every_value_is_feasible_somewhere(path: str, value: Any) -> None:
    pairs = ((m, d) for m in MODELS for d in NAMES)
    outcomes = (make_plan(with_value(_service(*pair).spec, path, value), DEVICES) for pair in pairs)
    assert any(isinstance(outcome, Plan) for outcome in outcomes)


@pytest.mark.parametrize(("path", "value", "constraint"), UNKNOWN)
def test_a_value_the_planner_does_not_know_is_refused(path: str, value: str, constraint: str) -> None:
    for device in NAMES[:-1]:
        outcome = make_plan(with_value(_service("qwen2.5-7b", device).spec, path, value), DEVICES)
        if device != "amd-mi300x" or constraint != "AttentionBackend":  # backends are not checked there
            assert not isinstance(outcome, Plan)
            assert outcome.constraint == constraint
