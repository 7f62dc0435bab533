"""The AcceleratorProfile of a MIG slice, derived from the whole GPU's.

NVIDIA's MIG user guide: processors come in sevenths, memory with its bandwidth and L2 cache in eighths (in quarters
both on A30 and RTX PRO 6000). Slices have no NVLink and see no other slice, so an engine is one slice: no tensor or
pipeline parallelism.
"""

import re
from fractions import Fraction
from typing import Literal

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.accelerators import MigSlice, capability, device_bytes, parse_slice

MIB, GIB = 2**20, 2**30
PRODUCT_LABEL = "nvidia.com/gpu.product"
GPU_RESOURCE = "nvidia.com/gpu"

Strategy = Literal["mixed", "single"]  # of NVIDIA's device plugin: a resource for each kind of slice, or one for all

# A100 and A30; H100, H200 and GH200; B200 and GB200; RTX PRO 6000.
CAPABLE = ((8, 0), (9, 0), (10, 0), (12, 0))
IN_SEVENTHS, IN_QUARTERS = (1, 2, 3, 4, 7), (1, 2, 4)
EIGHTHS = (1, 2, 4, 8)

# In a product's name, as `slice_profile` writes it and as labels do (NVIDIA-A100-SXM4-40GB-MIG-1g.5gb).
_SLICE = re.compile(r"\bMIG[ -](?P<compute>[1-7])g\.", re.IGNORECASE)

# Memory of slices as `nvidia-smi mig -lgip` and the label nvidia.com/mig-….memory showed it, MiB; the least of several
# drivers.
SEEN_MIB = {
    "NVIDIA-A100-SXM4-40GB": {"1g.5gb": 4864, "1g.10gb": 9856, "2g.10gb": 9856, "3g.20gb": 19968, "4g.20gb": 19968},
    "NVIDIA-A100-SXM4-80GB": {"1g.10gb": 9728, "1g.20gb": 19968, "2g.20gb": 19968, "3g.40gb": 40192, "4g.40gb": 40192},
    "NVIDIA-H100-80GB-HBM3": {"1g.10gb": 9984, "2g.20gb": 20096},
    "NVIDIA-H100-NVL": {"1g.12gb": 11008},
    "NVIDIA-H200": {"1g.18gb": 16384, "2g.35gb": 33280},
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": {"1g.24gb": 24192, "2g.48gb": 48512},
}
# Of a slice's share of the memory, where nothing was seen: the least seen elsewhere (H200: 16.00 of 17.55 GiB).
LEAST_SHARE = 0.91


def slice_profile(
    full: AcceleratorProfileSpec, name: str, *, memory: str | None = None, strategy: Strategy = "mixed"
) -> AcceleratorProfileSpec:
    """The profile of the slice `name` (such as `1g.5gb`) of the GPU that `full` describes.

    `memory` is what the slice really has, as on the label nvidia.com/mig-1g.5gb.memory (MiB); by default the figure
    seen elsewhere, else an estimate on the low side. Raises ValueError for a slice that this GPU does not have.
    """
    found, label = parse_slice(name), _label(full)
    of = _processor_slices(full, label)
    eighths = _memory_eighths(full, found, of)
    compute, band = found.compute / of, eighths / 8
    seen = SEEN_MIB.get(label, {}).get(name)
    estimate = int(device_bytes(full) / MIB * band * LEAST_SHARE) // 128 * 128
    product, resource = f"{label}-MIG-{name}", f"nvidia.com/mig-{name}"
    key = f"{resource}.product" if strategy == "mixed" else PRODUCT_LABEL
    shares = f"{found.compute}/{of} of the rates, {eighths}/8 of memory and its bandwidth"
    size = "given" if memory else "seen" if seen else "an estimate on the low side"
    return full.model_copy(
        update={
            "product": f"{full.product} MIG {name}",
            "resource_name": resource if strategy == "mixed" else GPU_RESOURCE,
            "memory": memory or f"{seen or estimate}Mi",
            "memory_bandwidth_gb_per_second": _scaled(full.memory_bandwidth_gb_per_second, band),
            "fp16_tflops": _scaled(full.fp16_tflops, compute),
            "fp8_tflops": _scaled(full.fp8_tflops, compute),
            "int8_tops": _scaled(full.int8_tops, compute),
            "link_gb_per_second": 0.0,
            "pcie_gb_per_second": _scaled(full.pcie_gb_per_second, compute),
            "devices_per_node": 1,  # for an engine: slices don't work together
            "tdp_watts": None,
            "node_selector_terms": [{"matchExpressions": [{"key": key, "operator": "In", "values": [product]}]}],
            "source": f"{shares} of {full.product} (NVIDIA MIG user guide), memory {size}; {full.source}"[:1024],
        }
    )


def compute_share(profile: AcceleratorProfileSpec) -> Fraction | None:
    """Part of the GPU's processors that the slice of `profile` has, by its product's name; None for a whole GPU."""
    found = _SLICE.search(profile.product)
    return Fraction(int(found["compute"]), _slices_of(profile, profile.product)) if found else None


def _label(full: AcceleratorProfileSpec) -> str:
    """The exact product label of the whole GPU."""
    labels = [
        value
        for term in full.node_selector_terms
        for expression in term.get("matchExpressions") or ()
        if expression.get("key") == PRODUCT_LABEL and expression.get("operator") == "In"
        for value in expression.get("values") or ()
    ]
    if len(labels) != 1:
        raise ValueError(f"{full.product}: nodeSelectorTerms must name its one {PRODUCT_LABEL}")
    return str(labels[0])


def _processor_slices(full: AcceleratorProfileSpec, label: str) -> int:
    cuda = capability(full)
    if cuda not in CAPABLE:
        raise ValueError(f"{full.product} has no MIG")
    return _slices_of(full, label)


def _slices_of(profile: AcceleratorProfileSpec, name: str) -> int:
    """Slices that the processors of a GPU come in."""
    return 4 if capability(profile) == (12, 0) or re.search(r"\bA30\b", name) else 7


def _memory_eighths(full: AcceleratorProfileSpec, found: MigSlice, of: int) -> int:
    """Eighths of the memory, from the size in the slice's name; it is rounded, so a tenth may be off."""
    share = 8 * found.memory_gb * GIB / device_bytes(full)
    eighths = min(EIGHTHS, key=lambda e: abs(e - share))
    plain = found.name == f"{found.compute}g.{found.memory_gb}gb"  # `+me` and the like: not derived here
    there = found.compute in (IN_QUARTERS if of == 4 else IN_SEVENTHS)
    if not plain or not there or abs(eighths - share) > eighths / 10:
        raise ValueError(f"{full.product} has no slice {found.name}: `nvidia-smi mig -lgip` lists those it has")
    return eighths


def _scaled(figure: float | None, share: float) -> float | None:
    return None if figure is None else round(figure * share, 1)
