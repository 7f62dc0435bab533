"""MIG slices as profiles of their own, derived from the whole GPU's."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.validation import check_object
from firsttoken.planning.accelerators import catalogue, device_bytes, max_tensor_parallel, parse_product, parse_slice
from firsttoken.planning.memory import MIB
from firsttoken.planning.mig import SEEN_MIB, slice_profile
from firsttoken.planning.nearest import with_value
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import Infeasible, Plan
from planning.specs import service

DOCUMENT = Path(__file__).parents[2] / "docs" / "accelerators.md"


def figures(profile: AcceleratorProfileSpec) -> tuple[Any, ...]:
    return (
        device_bytes(profile) // MIB, profile.memory_bandwidth_gb_per_second, profile.fp16_tflops, profile.fp8_tflops,
        profile.int8_tops, profile.link_gb_per_second, profile.devices_per_node, profile.tdp_watts,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("full", "name", "wanted"),
    [
        # memory MiB, bandwidth, FP16, FP8, INT8, link, devices, power
        ("nvidia-a100-40gb", "1g.5gb", (4864, 194.4, 44.6, None, 89.1, 0, 1, None)),
        ("nvidia-a100-40gb", "3g.20gb", (19968, 777.5, 133.7, None, 267.4, 0, 1, None)),
        ("nvidia-h100-80gb", "1g.10gb", (9984, 418.8, 141.3, 282.7, 282.7, 0, 1, None)),
        ("nvidia-rtx-pro-6000", "1g.24gb", (24192, 448.0, 117.0, 234.0, 234.0, 0, 1, None)),  # quarters
        ("nvidia-a100-40gb", "1g.10gb", (9856, 388.8, 44.6, None, 89.1, 0, 1, None)),  # two of eight memory slices
    ],
)
def test_a_slice_has_sevenths_of_the_rates_and_eighths_of_the_memory(
    full: str, name: str, wanted: tuple[Any, ...]
) -> None:
    assert figures(slice_profile(catalogue()[full], name)) == wanted


@pytest.mark.parametrize(
    "name",
    ["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"],
)
def test_labels_and_resources_of_both_strategies(name: str) -> None:
    full = catalogue()["nvidia-a100-40gb"]
    mixed, single = slice_profile(full, name), slice_profile(full, name, strategy="single")
    product = f"NVIDIA-A100-SXM4-40GB-MIG-{name}"
    assert mixed.resource_name == f"nvidia.com/mig-{name}"
    assert mixed.node_selector_terms[0]["matchExpressions"] == [
        {"key": f"nvidia.com/mig-{name}.product", "operator": "In", "values": [product]}
    ]
    assert single.resource_name == "nvidia.com/gpu"
    (expression,) = single.node_selector_terms[0]["matchExpressions"]
    assert expression["key"] == "nvidia.com/gpu.product"
    parsed = parse_product(expression["values"][0])
    assert (parsed.name, parsed.mig) == ("NVIDIA-A100-SXM4-40GB", parse_slice(name))
    for profile in (mixed, single):
        manifest = {
            "apiVersion": "firsttoken.dev/v1alpha1",
            "kind": "AcceleratorProfile",
            "metadata": {"name": "slice"},
            "spec": profile.wire(),
        }
        assert check_object(manifest) == ()


def test_memory_is_what_was_seen_or_given_or_else_an_estimate_on_the_low_side() -> None:
    full = catalogue()["nvidia-h100-80gb"]
    assert slice_profile(full, "1g.10gb", memory="9856Mi").memory == "9856Mi"
    guessed = slice_profile(full, "3g.40gb")
    assert "an estimate" in guessed.source
    assert 0.88 <= device_bytes(guessed) / (device_bytes(full) / 2) <= 0.91


@pytest.mark.parametrize(("label", "name"), [(label, name) for label, seen in SEEN_MIB.items() for name in seen])
def test_what_was_seen_is_below_the_share_and_not_far(label: str, name: str) -> None:
    full = next(p for p in catalogue().values() if label in str(p.node_selector_terms))
    profile = slice_profile(full, name)
    eighths = round(8 * (profile.memory_bandwidth_gb_per_second or 0) / (full.memory_bandwidth_gb_per_second or 1))
    assert 0.90 <= device_bytes(profile) / (device_bytes(full) * eighths / 8) <= 1.0


@pytest.mark.parametrize(
    ("full", "name", "why"),
    [
        ("nvidia-l4", "1g.5gb", "NVIDIA L4 has no MIG"),
        ("amd-mi300x", "1g.5gb", "nodeSelectorTerms"),
        ("nvidia-h100-80gb", "1g.5gb", "has no slice 1g.5gb"),
        ("nvidia-a100-80gb", "1g.5gb", "has no slice 1g.5gb"),
        ("nvidia-a100-40gb", "5g.20gb", "has no slice 5g.20gb"),
        ("nvidia-rtx-pro-6000", "3g.48gb", "has no slice 3g.48gb"),
        ("nvidia-a100-40gb", "1g.5gb+me", "has no slice 1g.5gb\\+me"),
        ("nvidia-a100-40gb", "1g.5", "not a MIG profile"),
        ("nvidia-a100-40gb", "9g.5gb", "not a MIG profile"),
    ],
)
def test_slices_that_do_not_exist(full: str, name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        slice_profile(catalogue()[full], name)


def test_an_engine_is_one_slice() -> None:
    profile = slice_profile(catalogue()["nvidia-a100-40gb"], "3g.20gb")
    assert max_tensor_parallel(profile) == 1
    devices = {"slice": profile}
    small = make_plan(service("hf://Qwen/Qwen2.5-3B-Instruct", "slice", 2), devices)
    assert isinstance(small, Plan)
    assert small.roles[0].gpus_per_replica == 1
    large = make_plan(service("hf://Qwen/Qwen2.5-14B-Instruct", "slice", 8), devices)
    assert isinstance(large, Infeasible)


def test_a_slice_that_is_too_small_is_offered_a_smaller_engine_before_other_hardware() -> None:
    """Of what a 3B model leaves of 10 GB, a step of 2048 tokens and prompts of 16384 take more than there is."""
    devices = {**catalogue(), "slice": slice_profile(catalogue()["nvidia-h100-80gb"], "1g.10gb")}
    spec = service("hf://meta-llama/Llama-3.2-3B-Instruct", "slice", workload={"profile": "Summarization"})
    refusal = make_plan(spec, devices)
    assert isinstance(refusal, Infeasible)
    assert refusal.constraint == "Memory"
    assert "an engine is one MIG slice" in refusal.message
    assert "in a node" not in refusal.message
    *levers, hardware = refusal.nearest
    assert levers[:2] == ["spec.engine.pins.tokenBudget", "spec.model.maxModelLength"]
    assert hardware == "spec.accelerator.type"
    for path in levers:
        assert isinstance(make_plan(with_value(spec, path, refusal.nearest[path]), devices), Plan), path


def test_a_pinned_step_is_offered_smaller_never_larger() -> None:
    devices = {**catalogue(), "slice": slice_profile(catalogue()["nvidia-h100-80gb"], "1g.10gb")}
    engine = {"pins": {"tokenBudget": 2048}}
    spec = service(
        "hf://meta-llama/Llama-3.2-3B-Instruct", "slice", workload={"profile": "Summarization"}, engine=engine
    )
    refusal = make_plan(spec, devices)
    assert isinstance(refusal, Infeasible)
    assert refusal.nearest["spec.engine.pins.tokenBudget"] == 1024


def test_the_profile_in_the_documents_is_the_derived_one() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(apiVersion.*?kind: AcceleratorProfile.*?)```", text, re.DOTALL)
    manifest = yaml.safe_load(block)
    assert check_object(manifest) == ()
    derived = slice_profile(catalogue()["nvidia-a100-40gb"], "1g.5gb").wire()
    assert {**manifest["spec"], "source": ""} == {**derived, "source": ""}
