"""What the time model knows of a device: data-sheet peaks, and which fitted efficiencies apply to it."""

import math
from dataclasses import dataclass

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.accelerators import capability, device_bytes, is_cpu
from firsttoken.planning.cuda_graphs import graph_limit
from firsttoken.planning.mig import compute_share

GIGA = 1e9
TERA = 1e12

# A tile of a matrix product runs on one streaming multiprocessor (SM), so their number decides how well a shape fills
# the device. NVIDIA's architecture white papers and data sheets; matched in the product's name, longest first.
# AMD: compute units (MI300X data sheet). Gaudi has no such unit: its 8 matrix engines count with the tiles they take.
PROCESSORS = {
    "A100": 108,
    "H100 PCIe": 114,
    "H100": 132,
    "H200": 132,
    "GH200": 132,
    "B200": 148,
    "GB200": 148,
    "B300": 148,
    "L4": 58,
    "L40S": 142,
    "A10": 72,
    "A10G": 80,
    "T4": 40,
    "V100": 80,
    "RTX PRO 6000": 188,
    "RTX 4090": 128,
    "MI300X": 304,
}
# Dense FP16 rate of one SM, TFLOP/s, for products that are not named above: the rows above divided by their count.
TERAFLOPS_PER_PROCESSOR = {7: 1.6, 8: 2.5, 9: 7.4, 10: 15.0, 12: 2.5}

# Which GPUs the kernel tables were measured on (accuracy/data), by name, memory bandwidth in GB/s and FP16 rate in
# TFLOP/s: an A100-40GB and an H200 NVL are other devices than the A100-80GB and the H200 SXM.
MEASURED = {"A100": (2039, 312), "H100": (3350, 989), "H200": (4800, 989), "B200": (7700, 2250), "L40S": (864, 362)}

# Generations whose products resemble each other: HBM, server power, and predicted from one another within the interval.
# Ada's do not: of one chip, an RTX 4090 reaches 93 % of its peak and an L40S 66 %, and an L4 has a fifth of the power.
FAMILIAR = ("ampere", "hopper", "blackwell")

# Generations of which whole steps count in docs/accuracy.md, beside kernels: of A100 and L40S nobody published any of
# an engine of today.
STEPS_MEASURED = ("hopper", "blackwell")

# Blackwell, data centre and workstation (major compute capability; NVIDIA's architecture white papers).
FP4_CAPABILITIES = (10, 12)
# Major compute capabilities that vLLM serves with FlashAttention 2: version 3 needs Hopper, and the B200's default is
# FlashInfer (ENGINE: attention backends).
FLASH_ATTENTION_2 = (8, 12)

# The CPU profile carries no figures, since a node may have any CPU. A server core with AVX-512 does about 0.05 TFLOP/s
# in FP32 and a socket reads about 100 GB/s; 16 cores of one socket are assumed. Good for an order of magnitude.
CPU_FLOPS = 0.8 * TERA
CPU_BANDWIDTH = 100 * GIGA
# Vendors whose devices are joined pair by pair: AMD's Infinity Fabric (MI300X: seven links of 64 GB/s to seven others)
# and Gaudi's ports (Gaudi 3: three to each of seven). NVIDIA's meet in a switch, and who has no link uses PCIe.
MESHES = ("AMD", "Intel")
# V100's six NVLinks of 25 GB/s are a hybrid cube mesh: a pair has none, one or two of them, four devices four each. A
# pod gets any devices that are free, so they count as a full mesh: 21 GB/s for two, 64 for four, all 150 for eight.
CUBE_MESH = (7, 0)

# Between nodes, bytes/s a device, one direction: a port of 400 Gbit/s for each, as large clusters have. The catalogue
# knows no cluster, so this stands unless a profile's networkGbPerSecond says otherwise; PCIe leads to the port.
ASSUMED_NETWORK = 50 * GIGA

# For a GPU whose profile lacks a figure: what an A10 has. The interval is as wide as that deserves.
UNKNOWN_FLOPS = 125 * TERA
UNKNOWN_BANDWIDTH = 600 * GIGA
UNKNOWN_PCIE = 16 * GIGA


@dataclass(frozen=True)
class Device:
    """One accelerator as the time model sees it. Rates are dense peaks of the data sheet, FLOP/s and bytes/s."""

    name: str
    generation: str  # set of efficiencies: ampere, ada, hopper, blackwell, other, cpu
    flops: float  # BF16 or FP16 (on CPU FP32)
    fp8_flops: float | None  # None: weights in FP8 are expanded before they are multiplied
    int8_flops: float | None
    bandwidth: float  # memory
    memory_bytes: int
    link: float  # to the other GPUs of the node together, one direction; 0: PCIe only
    pcie: float  # one direction
    processors: int  # SMs; 1 on a CPU
    measured: bool  # kernel times of this very product are in the fit
    familiar: bool  # those of another product with the like memory and power are
    steps_measured: bool = False  # whole steps of its generation were held against the model, not kernels alone
    rough: bool = False  # figures assumed, not from a data sheet
    fp4: bool = False  # multiplies 4-bit floats; profiles name no rate for it
    flash_attention_2: bool = False  # vLLM's attention here, for KV in 16 bits
    graph_limit: int = 512  # tokens of the largest CUDA graph that vLLM captures here
    mesh: int = 0  # devices of a node that are joined pair by pair, each pair with its part of `link`; 0: by a switch
    node: int = 8  # devices of a node
    network: float = ASSUMED_NETWORK  # between nodes for each device, one direction
    network_assumed: bool = True  # the profile names none

    @property
    def cpu(self) -> bool:
        """Whether the engine runs on the CPU."""
        return self.generation == "cpu"

    def link_among(self, ranks: int) -> float:
        """What a device has to `ranks - 1` others of its node together, bytes/s: all of `link` behind a switch.

        In a mesh an all-reduce uses the links of its ranks and no other: two MI300X have 64 of 448 GB/s.
        """
        return self.link * (ranks - 1) / (self.mesh - 1) if self.mesh > ranks > 1 else self.link


def device_from_profile(profile: AcceleratorProfileSpec) -> Device:
    """The device behind an AcceleratorProfile. A figure that is missing is assumed, and `rough` says so."""
    if is_cpu(profile):
        return _cpu(profile)
    generation = _generation(profile)
    flops = (profile.fp16_tflops or 0) * TERA or UNKNOWN_FLOPS
    pcie = (profile.pcie_gb_per_second or 0) * GIGA or UNKNOWN_PCIE
    network = (profile.network_gb_per_second or 0) * GIGA
    bandwidth = (profile.memory_bandwidth_gb_per_second or 0) * GIGA or UNKNOWN_BANDWIDTH
    return Device(
        name=profile.product,
        generation=generation,
        flops=flops,
        fp8_flops=profile.fp8_tflops * TERA if profile.fp8_tflops else None,
        int8_flops=profile.int8_tops * TERA if profile.int8_tops else None,
        bandwidth=bandwidth,
        memory_bytes=device_bytes(profile),
        link=(profile.link_gb_per_second or 0) * GIGA,
        pcie=pcie,
        processors=_processors(profile, flops),
        measured=_measured(profile),
        familiar=generation in FAMILIAR,
        steps_measured=generation in STEPS_MEASURED,
        rough=profile.fp16_tflops is None or profile.memory_bandwidth_gb_per_second is None,
        fp4=(capability(profile) or (0, 0))[0] in FP4_CAPABILITIES,
        flash_attention_2=(capability(profile) or (0, 0))[0] in FLASH_ATTENTION_2,
        graph_limit=graph_limit(profile),
        mesh=profile.devices_per_node if profile.vendor in MESHES or capability(profile) == CUBE_MESH else 0,
        node=profile.devices_per_node,
        network=network or min(ASSUMED_NETWORK, pcie),
        network_assumed=not network,
    )


def _generation(profile: AcceleratorProfileSpec) -> str:
    """Compute capability 8.0 is A100; 8.6 shares GDDR memory and small L2 slices with Ada rather than HBM with A100."""
    cuda = capability(profile)
    if cuda is None:
        return "other"
    if cuda == (8, 0):
        return "ampere"
    return {8: "ada", 9: "hopper", 10: "blackwell"}.get(cuda[0], "other")


def _processors(profile: AcceleratorProfileSpec, flops: float) -> int:
    product = profile.product.replace("-", " ").lower()
    names = [name for name in PROCESSORS if name.lower() in product]
    if names:
        whole = PROCESSORS[max(names, key=len)]
        share = compute_share(profile)
        return whole if share is None else max(1, math.floor(whole * share))
    cuda = capability(profile)
    rate = TERAFLOPS_PER_PROCESSOR.get(cuda[0], 2.5) if cuda else 4.0
    return max(8, math.ceil(flops / TERA / rate))


def _measured(profile: AcceleratorProfileSpec) -> bool:
    rates = (profile.memory_bandwidth_gb_per_second, profile.fp16_tflops)
    words = profile.product.replace("-", " ").split()
    return any(name in words and rates == known for name, known in MEASURED.items())


def _cpu(profile: AcceleratorProfileSpec) -> Device:
    return Device(
        name=profile.product,
        generation="cpu",
        flops=CPU_FLOPS,
        fp8_flops=None,
        int8_flops=None,
        bandwidth=CPU_BANDWIDTH,
        memory_bytes=device_bytes(profile),
        link=0,
        pcie=UNKNOWN_PCIE,
        processors=1,
        measured=False,
        familiar=False,
        rough=True,
    )
