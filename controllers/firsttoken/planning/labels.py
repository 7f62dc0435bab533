"""What the node labels of an AcceleratorProfile say about its devices, held against what the profile says.

A profile finds its nodes by the whole value of a product label. GPU feature discovery appends to it what makes the
devices less than a whole GPU (`-SHARED`, `-MIG-...`): a profile that asks for such nodes with the figures of a whole
one is planned for memory that isn't there.
"""

from collections.abc import Iterator

from firsttoken.api.engine import EnginePins
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.accelerators import Product, device_bytes, parse_product
from firsttoken.planning.mig import GIB
from firsttoken.planning.refusal import InfeasibleError

ROUNDED = 1.05  # the size in a slice's name is rounded, by up to a twentieth


def products(profile: AcceleratorProfileSpec) -> Iterator[tuple[str, Product]]:
    """Product labels of NVIDIA that its nodes may have, of whole GPUs and of slices, with their parts."""
    for term in profile.node_selector_terms:
        for expression in term.get("matchExpressions") or ():
            key = str(expression.get("key"))
            if key.startswith("nvidia.com/") and key.endswith(".product") and expression.get("operator") == "In":
                for value in expression.get("values") or ():
                    yield str(value), parse_product(str(value))


def check_labels(name: str, profile: AcceleratorProfileSpec, pins: EnginePins | None) -> None:
    """Raises InfeasibleError for nodes on which an engine would not find what the profile `name` promises.

    Who shares devices on purpose pins the part of the memory that an engine takes.
    """
    for label, product in products(profile):
        where = f"AcceleratorProfile {name}: nodeSelectorTerms ask for nodes labelled {label}"
        if product.mig_invalid:
            why = "MIG is on there and its slices are missing or differ"
            raise InfeasibleError("Accelerator", f"{where}: {why}; name nodes with slices of one kind, or with MIG off")
        if product.shared and (pins is None or pins.gpu_memory_utilization is None):
            why = "several pods share each device there, and an engine takes 92 % of its memory"
            remedy = "name nodes that share none, or pin each engine's part (spec.engine.pins.gpuMemoryUtilization)"
            raise InfeasibleError("Accelerator", f"{where}: {why}; {remedy}")
        if product.mig is not None:
            _check_slice(where, profile, product)


def _check_slice(where: str, profile: AcceleratorProfileSpec, product: Product) -> None:
    found = product.mig
    if found is None:
        return
    has, most = device_bytes(profile), found.memory_gb * GIB * ROUNDED
    if has > most:
        text = f"a slice there has {found.memory_gb} GB, and the profile says {profile.memory}"
    elif profile.devices_per_node > 1:
        text = f"slices see nothing of one another, and the profile joins {profile.devices_per_node} of them"
    else:
        return
    remedy = f"take the figures of the slice: firsttoken profile NAME --mig {found.name}, NAME that of the whole GPU"
    raise InfeasibleError("Accelerator", f"{where}: {text}; {remedy}")
