"""The accelerator catalogue: names, sizes, labels, and what the planner derives."""

import pytest

from firsttoken.api.validation import check_object
from firsttoken.planning import accelerators
from firsttoken.planning.memory import GIB

NAMES = [
    "nvidia-a100-40gb", "nvidia-a100-40gb-pcie", "nvidia-a100-80gb", "nvidia-a100-80gb-pcie", "nvidia-h100-80gb",
    "nvidia-h100-pcie", "nvidia-h100-nvl", "nvidia-h200", "nvidia-h200-nvl", "nvidia-gh200", "nvidia-b200",
    "nvidia-gb200", "nvidia-l4", "nvidia-l40s", "nvidia-a10", "nvidia-a10g", "nvidia-t4", "nvidia-v100-16gb",
    "nvidia-v100-32gb", "nvidia-rtx-pro-6000", "amd-mi300x", "intel-gaudi3", "cpu",
]  # fmt: skip


def test_the_catalogue_has_exactly_the_fixed_names() -> None:
    assert sorted(accelerators.catalogue()) == sorted(NAMES)


def test_manifests_are_valid_and_a_caller_can_not_change_the_catalogue() -> None:
    manifests = accelerators.catalogue_manifests()
    assert [check_object(m) for m in manifests] == [()] * len(NAMES)
    manifests[0]["spec"]["memory"] = "1Gi"
    assert accelerators.catalogue_manifests()[0]["spec"]["memory"] != "1Gi"


@pytest.mark.parametrize("manifest", accelerators.catalogue_manifests(), ids=lambda m: m["metadata"]["name"])
def test_nodes_are_found_by_exact_product_names(manifest: dict[str, dict[str, object]]) -> None:
    spec = accelerators.catalogue()[str(manifest["metadata"]["name"])]
    for term in spec.node_selector_terms:
        for expression in term["matchExpressions"]:
            assert expression["operator"] == "In"
    if spec.vendor == "NVIDIA":
        (expression,) = spec.node_selector_terms[0]["matchExpressions"]
        assert expression["key"] == "nvidia.com/gpu.product"
        (product,) = expression["values"]
        assert not product.endswith("-SHARED"), "an engine does not start beside another on a time-sliced GPU"
    assert spec.source


def test_no_two_profiles_claim_the_same_nodes() -> None:
    products = [
        v
        for spec in accelerators.catalogue().values()
        for term in spec.node_selector_terms
        for e in term["matchExpressions"]
        for v in e["values"]
    ]
    assert len(products) == len(set(products))


@pytest.mark.parametrize("name", NAMES)
def test_links_are_of_one_gpu_and_join_all_of_a_node(name: str) -> None:
    profile = accelerators.catalogue()[name]
    link = profile.link_gb_per_second
    assert link is not None
    assert link == 0 or profile.devices_per_node > 1, "no other GPU to link to"
    meshes = {"nvidia-v100-16gb": 150, "nvidia-v100-32gb": 150, "amd-mi300x": 448, "intel-gaudi3": 525}
    if name in meshes:
        assert link == meshes[name]
        assert "a pair has" in profile.source, "a mesh gives a pair less than the sum"


def test_cpu_takes_any_node_and_no_resource() -> None:
    cpu = accelerators.catalogue()["cpu"]
    assert cpu.resource_name is None
    assert cpu.node_selector_terms == []


@pytest.mark.parametrize(
    ("name", "gib"), [("nvidia-a100-40gb", 40), ("nvidia-a100-80gb", 80), ("nvidia-h200", 140.4), ("nvidia-t4", 15)]
)
def test_memory_is_in_true_bytes(name: str, gib: float) -> None:
    assert accelerators.device_bytes(accelerators.catalogue()[name]) / GIB == pytest.approx(gib, rel=0.001)


@pytest.mark.parametrize(
    ("name", "bf16", "fp8", "tensor"),
    [
        ("nvidia-a100-40gb", True, True, 8),  # FP8 weights by a weight-only kernel
        ("nvidia-a100-40gb-pcie", True, True, 2),  # bridges between pairs only
        ("nvidia-h100-80gb", True, True, 8),
        ("nvidia-l40s", True, True, 2),
        ("nvidia-t4", False, False, 2),
        ("nvidia-v100-16gb", False, False, 8),
        ("amd-mi300x", True, True, 8),
        ("nvidia-gh200", True, True, 1),
        ("cpu", True, False, 1),
    ],
)
def test_what_a_device_can_do(name: str, bf16: bool, fp8: bool, tensor: int) -> None:
    profile = accelerators.catalogue()[name]
    assert accelerators.has_bf16(profile) is bf16
    assert accelerators.can_serve_fp8_weights(profile) is fp8
    assert accelerators.max_tensor_parallel(profile) == tensor
