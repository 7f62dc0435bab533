"""What a profile's node labels say of its devices is held against its figures."""

from typing import Any

import pytest

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.mig import slice_profile
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import Infeasible, Plan
from planning.specs import QWEN_7B, service

SMALL = "hf://Qwen/Qwen2.5-0.5B-Instruct"
WHOLE, PRODUCT = "nvidia-h100-80gb", "NVIDIA-H100-80GB-HBM3"


def asking_for(*labels: str, key: str = "nvidia.com/gpu.product", **changes: Any) -> AcceleratorProfileSpec:
    """The whole GPU's profile, but for nodes with one of these labels."""
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": list(labels)}]}]
    return catalogue()[WHOLE].model_copy(update={"node_selector_terms": terms, **changes})


def outcome(profile: AcceleratorProfileSpec, model: str = QWEN_7B, **rest: Any) -> Plan | Infeasible:
    return make_plan(service(model, "mine", 8, **rest), {**catalogue(), "mine": profile})


def refused(profile: AcceleratorProfileSpec, **rest: Any) -> str:
    found = outcome(profile, **rest)
    assert isinstance(found, Infeasible)
    assert found.constraint == "Accelerator"
    assert found.message.startswith("AcceleratorProfile mine: nodeSelectorTerms ask for nodes labelled ")
    return found.message


def test_every_profile_of_the_catalogue_asks_for_whole_devices() -> None:
    for name in catalogue():
        found = make_plan(service(SMALL, name, 8), catalogue())
        assert isinstance(found, Plan), (name, found)


@pytest.mark.parametrize("product", [f"{PRODUCT}-SHARED", f"{PRODUCT}-MIG-1g.10gb-SHARED"])
def test_shared_devices_are_refused_unless_somebody_shares_them_out(product: str) -> None:
    said = refused(asking_for(PRODUCT, product))
    assert product in said
    assert "several pods share each device there" in said
    pinned = outcome(asking_for(f"{PRODUCT}-SHARED"), engine={"pins": {"gpuMemoryUtilization": 0.4}})
    assert isinstance(pinned, Plan)


def test_a_name_that_only_ends_alike_is_a_name() -> None:
    assert isinstance(outcome(asking_for(f"{PRODUCT}-SHAREDX", f"{PRODUCT}-MIG-large")), Plan)
    others = {"key": "example.com/gpu", "operator": "In", "values": [f"{PRODUCT}-SHARED"]}
    terms = [
        {"matchExpressions": [others, {"key": "nvidia.com/gpu.product", "operator": "Exists"}]},
        {"matchFields": []},
    ]
    assert isinstance(outcome(asking_for(node_selector_terms=terms)), Plan)


def test_slices_that_are_missing_or_differ_are_refused() -> None:
    said = refused(asking_for(f"{PRODUCT}-MIG-INVALID"), engine={"pins": {"gpuMemoryUtilization": 0.4}})
    assert "MIG is on there" in said


@pytest.mark.parametrize("key", ["nvidia.com/gpu.product", "nvidia.com/mig-1g.10gb.product"])
def test_a_slice_with_the_figures_of_the_whole_gpu_is_refused_by_what_makes_it_right(key: str) -> None:
    product = f"{PRODUCT}-MIG-1g.10gb"
    assert "a slice there has 10 GB, and the profile says 80Gi" in refused(asking_for(product, key=key, memory="80Gi"))
    joined = refused(asking_for(product, key=key, memory="9984Mi"))
    assert "joins 8 of them" in joined
    assert "firsttoken profile NAME --mig 1g.10gb" in joined
    right = slice_profile(catalogue()[WHOLE], "1g.10gb", strategy="single" if "gpu." in key else "mixed")
    assert isinstance(outcome(right, SMALL), Plan)
