"""The catalogue of accelerators that ships with Firsttoken, and what the planner reads from a profile."""

import difflib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from firsttoken.api.quantities import quantity
from firsttoken.api.records import AcceleratorProfileSpec

# ENGINE.md: all-reduce over PCIe gives 18 GB/s with 2 GPUs, 4 with 4 and 2 with 8 (L40S).
MAX_TENSOR_PARALLEL_WITHOUT_LINK = 2


@cache
def _text() -> str:
    return files("firsttoken.planning").joinpath("data/accelerators.yaml").read_text(encoding="utf-8")


def catalogue_manifests() -> list[dict[str, Any]]:
    """AcceleratorProfile objects to apply; a fresh copy each call."""
    return [manifest for manifest in yaml.safe_load_all(_text()) if manifest]


def catalogue() -> dict[str, AcceleratorProfileSpec]:
    """The same by name."""
    return dict(_catalogue())


@cache
def _catalogue() -> dict[str, AcceleratorProfileSpec]:
    return {m["metadata"]["name"]: AcceleratorProfileSpec.model_validate(m["spec"]) for m in catalogue_manifests()}


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three names that `name` begins, or else that resemble it, best first."""
    names = sorted(known)
    longer = sorted((n for n in names if name and n.startswith(name)), key=lambda n: (len(n), n))
    return (longer or difflib.get_close_matches(name, names, n=3))[:3]


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
