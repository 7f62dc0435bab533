"""The catalogue of accelerators that ships with Firsttoken, what the planner reads from a profile, and what the labels
of a node say about its devices.
"""

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from firsttoken.api.quantities import quantity
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.shipped import documents

# ENGINE.md: all-reduce over PCIe gives 18 GB/s with 2 GPUs, 4 with 4 and 2 with 8 (L40S).
MAX_TENSOR_PARALLEL_WITHOUT_LINK = 2


def catalogue_manifests() -> list[dict[str, Any]]:
    """AcceleratorProfile objects to apply; a fresh copy each call."""
    return [manifest for manifest in documents("firsttoken.planning", "data/accelerators.yaml") if manifest]


def catalogue() -> dict[str, AcceleratorProfileSpec]:
    """The same by name."""
    return dict(_catalogue())


@cache
def _catalogue() -> dict[str, AcceleratorProfileSpec]:
    return {m["metadata"]["name"]: AcceleratorProfileSpec.model_validate(m["spec"]) for m in catalogue_manifests()}


# `1g.5gb`, with what NVIDIA appends for media and graphics engines. GPU feature discovery drops or replaces a `+`.
_MIG = r"(?P<compute>[1-7])g\.(?P<memory>[1-9][0-9]*)gb(?:[.+-]?(?:me|gfx)(?:\.all)?)*"
_PRODUCT = re.compile(rf"(?P<name>.+?)(?:-MIG-(?:(?P<invalid>INVALID)|(?P<slice>{_MIG})))?(?P<shared>-SHARED)?")


@dataclass(frozen=True)
class MigSlice:
    """A slice of a GPU by MIG (multi-instance GPU). `name` is what labels and resources call it: `1g.5gb`."""

    name: str
    compute: int  # slices of the processors: of 7, on A30 and RTX PRO 6000 of 4
    memory_gb: int  # as in its name, rounded


@dataclass(frozen=True)
class Product:
    """What a node's `nvidia.com/gpu.product` says. `name` is the label of the whole GPU, to be compared as a whole."""

    name: str
    shared: bool = False  # several pods on one device (time slicing, MPS)
    mig: MigSlice | None = None  # every device of the node is such a slice
    mig_invalid: bool = False  # MIG is on and no usable slices are there


def parse_product(label: str) -> Product:
    """The parts of a product label of GPU feature discovery: the name, then `-MIG-...`, then `-SHARED`.

    An ending of another form belongs to the name, and so matches nothing that is known.
    """
    found = _PRODUCT.fullmatch(label)
    if found is None:  # empty, or with line breaks: no label of Kubernetes
        return Product(label)
    part = found.groupdict()
    mig = MigSlice(part["slice"], int(part["compute"]), int(part["memory"])) if part["slice"] else None
    return Product(part["name"], part["shared"] is not None, mig, part["invalid"] is not None)


def parse_slice(name: str) -> MigSlice:
    """The slice of a MIG profile's name, such as `3g.20gb`. Raises ValueError for anything else."""
    found = re.fullmatch(_MIG, name)
    if found is None:
        raise ValueError(f"not a MIG profile: {name!r}; write it as nvidia-smi does, such as 1g.5gb")
    return MigSlice(name, int(found["compute"]), int(found["memory"]))


def near_names(name: str, known: Mapping[str, AcceleratorProfileSpec]) -> list[str]:
    """Up to three names of profiles that `name` may stand for, best first: those that all its parts lead to by name or
    product (`h100-sxm` is nvidia-h100-80gb, an NVIDIA H100 SXM), else those that resemble it.
    """
    parts = _parts(name)
    scores = {n: [_likeness(part, {*_parts(n), *_parts(p.product)}) for part in parts] for n, p in known.items()}
    meant = sorted((n for n, s in scores.items() if s and all(s)), key=lambda n: (-sum(scores[n]), len(n), n))
    return (meant or difflib.get_close_matches(name.lower(), sorted(known), n=3))[:3]


def _parts(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _likeness(part: str, words: Collection[str]) -> int:
    """2: one of the words; 1: the beginning of one, or longer than one (`sxm4` than `sxm`)."""
    if part in words:
        return 2
    return int(any(len(w) > 2 and (w.startswith(part) or part.startswith(w)) for w in words))


def device_bytes(profile: AcceleratorProfileSpec) -> int:
    """Memory of one device, bytes."""
    return int(quantity(profile.memory))


def capability(profile: AcceleratorProfileSpec) -> tuple[int, int] | None:
    """CUDA compute capability, such as (8, 0); None where there is none (AMD, Intel, CPU)."""
    if profile.compute_capability is None:
        return None
    major, _, minor = profile.compute_capability.partition(".")
    return int(major), int(minor or 0)


def is_cpu(profile: AcceleratorProfileSpec) -> bool:
    """Whether the engine runs on the CPU, without an extended resource."""
    return profile.vendor == "CPU"


def has_bf16(profile: AcceleratorProfileSpec) -> bool:
    """BF16 exists from compute capability 8.0 on; T4 (7.5) and V100 (7.0) have FP16 only (ENGINE.md)."""
    cuda = capability(profile)
    return cuda is None or cuda >= (8, 0)


def can_serve_fp8_weights(profile: AcceleratorProfileSpec) -> bool:
    """FP8 units (8.9, 9.0 and later), or vLLM's weight-only kernel on 8.0 and 8.6, which saves memory but no time."""
    cuda = capability(profile)
    return cuda >= (8, 0) if cuda is not None else profile.fp8_tflops is not None


def max_tensor_parallel(profile: AcceleratorProfileSpec) -> int:
    """Tensor parallelism stays inside a node, and below 3 where GPUs only meet over PCIe (M4.6).

    `link_gb_per_second` above 0 says that links join all devices of the node, so that an all-reduce stays on them.
    """
    if profile.link_gb_per_second:
        return profile.devices_per_node
    return min(profile.devices_per_node, MAX_TENSOR_PARALLEL_WITHOUT_LINK)
