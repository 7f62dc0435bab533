"""The accelerator catalogue: names, sizes, figures, labels, and what the planner derives."""

import csv
from pathlib import Path

import pytest

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.validation import check_object
from firsttoken.planning import accelerators
from firsttoken.planning.accelerators import catalogue
from firsttoken.planning.memory import GIB
from firsttoken.planning.plan import make_plan
from firsttoken.planning.types import Infeasible, Plan
from planning.specs import QWEN_7B, service

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
        assert term["matchExpressions"][0]["operator"] == "In"
    if spec.vendor == "NVIDIA":
        (expression,) = spec.node_selector_terms[0]["matchExpressions"]
        assert expression["key"] == "nvidia.com/gpu.product"
        (product,) = expression["values"]
        whole = accelerators.Product(product)
        assert accelerators.parse_product(product) == whole, "neither shared nor sliced: an engine takes 92 % of it"
    assert spec.source


def test_no_two_profiles_claim_the_same_nodes() -> None:
    products = [
        product
        for spec in accelerators.catalogue().values()
        for product in {v for t in spec.node_selector_terms for v in t["matchExpressions"][0]["values"]}
    ]
    assert len(products) == len(set(products))


def test_a_partition_of_an_amd_device_is_not_the_device() -> None:
    """AMD's labeller names the partition where it can; nodes without that label count as whole."""
    first, second = (t["matchExpressions"] for t in accelerators.catalogue()["amd-mi300x"].node_selector_terms)
    assert first[0] == second[0] == {
        "key": "amd.com/gpu.product-name", "operator": "In", "values": ["AMD_Instinct_MI300X_OAM"],
    }  # fmt: skip
    assert first[1] == {"key": "amd.com/compute-memory-partition", "operator": "In", "values": ["spx_nps1"]}
    assert second[1] == {"key": "amd.com/compute-memory-partition", "operator": "DoesNotExist"}


# --- figures against the collected data sheets (gpus.csv; gpus.md says where it is from) ---

with (Path(__file__).parent / "gpus.csv").open(encoding="utf-8") as stream:
    SHEETS = {row["profile"]: row for row in csv.DictReader(stream)}
FIGURES = {
    "fp16_dense_tflops": "fp16_tflops",
    "fp8_dense_tflops": "fp8_tflops",
    "int8_dense_tops": "int8_tops",
    "memory_bw_gbs": "memory_bandwidth_gb_per_second",
    "pcie_unidir_gbs": "pcie_gb_per_second",
    "tdp_w": "tdp_watts",
}
# linkGbPerSecond is 0 where links join pairs or groups only, or where there is one GPU a node; Gaudi 3 keeps 3 of its
# 24 ports for other nodes.
OTHER_LINKS = {
    "nvidia-a100-40gb-pcie": 0, "nvidia-a100-80gb-pcie": 0, "nvidia-h100-pcie": 0, "nvidia-h100-nvl": 0,
    "nvidia-h200-nvl": 0, "nvidia-gh200": 0, "intel-gaudi3": 525,
}  # fmt: skip


def test_every_profile_but_the_cpu_has_its_data_sheet() -> None:
    assert set(SHEETS) == set(NAMES) - {"cpu"}


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"cpu"}))
def test_figures_are_the_data_sheet_s(name: str) -> None:
    sheet, profile = SHEETS[name], accelerators.catalogue()[name]
    for column, field in FIGURES.items():
        said, ours = sheet[column], getattr(profile, field)
        assert ours == (float(said) if said else None), f"{column} of {name}"
    assert profile.link_gb_per_second == OTHER_LINKS.get(name, float(sheet["nvlink_unidir_gbs"] or 0))
    assert profile.vendor == sheet["vendor"]
    if profile.vendor == "NVIDIA":
        assert profile.compute_capability == sheet["compute_capability"]
    # Sheets say 80 GB, nvidia-smi a bit less in binary units: ECC and the firmware take their part.
    assert 0.93 <= accelerators.device_bytes(profile) / GIB / float(sheet["memory_gb"]) <= 1.001


@pytest.mark.parametrize("name", sorted(n for n, row in SHEETS.items() if row["gfd_gpu_product"]))
def test_labels_are_those_that_were_collected(name: str) -> None:
    first = accelerators.catalogue()[name].node_selector_terms[0]["matchExpressions"][0]
    assert first["values"] == [SHEETS[name]["gfd_gpu_product"]]


@pytest.mark.parametrize("name", NAMES)
def test_a_source_says_what_is_unverified(name: str) -> None:
    profile, sheet = accelerators.catalogue()[name], SHEETS.get(name)
    assert len(profile.source) > 20
    if sheet and "unverified" in sheet["spec_source"] + sheet["label_status"]:
        assert "unverified" in profile.source


# --- labels of nodes ---

A100 = "NVIDIA-A100-SXM4-40GB"
SLICE = accelerators.MigSlice("1g.5gb", 1, 5)


@pytest.mark.parametrize(
    ("label", "product"),
    [
        (A100, accelerators.Product(A100)),
        (f"{A100}-SHARED", accelerators.Product(A100, shared=True)),
        (f"{A100}-MIG-1g.5gb", accelerators.Product(A100, mig=SLICE)),
        (f"{A100}-MIG-1g.5gb-SHARED", accelerators.Product(A100, shared=True, mig=SLICE)),
        (f"{A100}-MIG-INVALID", accelerators.Product(A100, mig_invalid=True)),
        (
            "NVIDIA-H100-80GB-HBM3-MIG-1g.10gbme",  # GPU feature discovery leaves out the + of 1g.10gb+me
            accelerators.Product("NVIDIA-H100-80GB-HBM3", mig=accelerators.MigSlice("1g.10gbme", 1, 10)),
        ),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", None),
        ("NVIDIA-L40S", None),
        ("Tesla-T4", None),
        # Endings of another form belong to the name, and so match nothing.
        (f"{A100}-MIG-8g.5gb", None),
        (f"{A100}-MIG-1g.5GB", None),
        (f"{A100}-MIG-", None),
        (f"{A100}-mig-1g.5gb", None),
        (f"{A100}-SHARED-2", None),
        ("", None),
    ],
)
def test_product_labels_are_parsed_and_never_matched_in_part(label: str, product: accelerators.Product | None) -> None:
    assert accelerators.parse_product(label) == (product or accelerators.Product(label))


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


LEAST = {
    "memoryBandwidthGbPerSecond": 1, "fp16Tflops": 0.01, "fp8Tflops": 0.01, "int8Tops": 0.01, "linkGbPerSecond": 0.01,
    "pcieGbPerSecond": 0.01, "tdpWatts": 1,
}  # fmt: skip


@pytest.mark.parametrize("figure", LEAST)
def test_a_figure_of_no_real_device_is_refused(figure: str) -> None:
    """In a wrong unit, or none: 1e-300 TFLOP/s once divided by zero."""
    least, sheet = LEAST[figure], catalogue()["nvidia-h100-80gb"].wire()
    head = {"apiVersion": "firsttoken.dev/v1alpha1", "kind": "AcceleratorProfile", "metadata": {"name": "x"}}
    for value in (1e-300, least / 2, -1.0, 1e308):
        faults = check_object({**head, "spec": {**sheet, figure: value}})
        assert [f.path for f in faults] == [f"spec.{figure}"], value
    assert not check_object({**head, "spec": {**sheet, figure: least}})
    real = [value for profile in catalogue().values() if (value := profile.wire().get(figure))]
    assert min(real) >= 15 * least, "a slice of a seventh fits, and so does half of that"


@pytest.mark.parametrize("extreme", ["least", "most"])
@pytest.mark.parametrize("figures", [*[(f,) for f in LEAST], tuple(LEAST)], ids=lambda names: "+".join(names)[:20])
def test_whatever_validation_takes_is_planned_or_refused(figures: tuple[str, ...], extreme: str) -> None:
    sheet = catalogue()["nvidia-h100-80gb"].wire()
    changes = {f: LEAST[f] if extreme == "least" else 10**5 for f in figures}
    profile = AcceleratorProfileSpec.model_validate({**sheet, **changes})
    for mode in ("Colocated", "Disaggregated"):
        spec = service(QWEN_7B, "nvidia-h100-80gb", 4, layout={"mode": mode})
        assert isinstance(make_plan(spec, {**catalogue(), "nvidia-h100-80gb": profile}), Plan | Infeasible)
