"""Time of an all-reduce inside a node or across nodes, and of moving KV from one replica to another."""

import math
from dataclasses import dataclass

# Handing a small message to another node over RDMA, with a launch on each side.
NETWORK_LATENCY_US = 30.0
# An all-reduce of a small message over two nodes: 46-48 us with 16 H20 and NCCL 2.21 (NVIDIA/nccl#1244). Further nodes
# make NCCL's trees deeper, by a message each way with each doubling.
OVER_NODES_US = 47.0
# Part of the ports' rate that NCCL's all-reduce reaches: 216.5 GB/s of bus bandwidth for 1 GiB (231 for 8 GiB) with
# 2 x 8 H100 and 8 ports of 50 GB/s each, so 0.54 (NVIDIA/nccl#2409). NVLink SHARP goes beyond it where it works.
NETWORK_SHARE = 0.54


@dataclass(frozen=True)
class LinkEfficiency:
    """All-reduce in CUDA graphs over one kind of link. Two regimes: direct reads of peers, then NCCL's rings or trees.

    Traffic of a rank is 2 (r - 1) / r times the message for r ranks.
    """

    latency_us: float  # of the smallest message, two ranks
    rank_latency_us: float  # for each further rank
    direct: float  # part of the link's bandwidth for small and middling messages
    set_up_us: float  # of the second regime
    large: float  # part of the link's bandwidth for large ones
    rank_decay: float  # exponent with which the share falls as ranks are added (0 behind a switch)


@dataclass(frozen=True)
class TransferEfficiency:
    """KV transfer by RDMA: set-up, then a share of the line rate."""

    set_up_us: float
    share: float


def all_reduce_seconds(message_bytes: float, ranks: int, link: float, efficiency: LinkEfficiency) -> float:
    """Seconds for one all-reduce of `message_bytes` over `ranks` ranks with `link` bytes/s each way; 0 for one rank."""
    if ranks <= 1:
        return 0.0
    e = efficiency
    traffic = message_bytes * 2 * (ranks - 1) / ranks / (link * math.pow(2 / ranks, e.rank_decay))
    moved = min(traffic / e.direct, e.set_up_us * 1e-6 + traffic / e.large)
    return (e.latency_us + e.rank_latency_us * (ranks - 2)) * 1e-6 + moved


def over_nodes_seconds(
    message_bytes: float, ranks: int, node: int, rates: tuple[float, float], efficiency: LinkEfficiency
) -> float:
    """Seconds for one all-reduce over `ranks` ranks, `node` of them on each of several nodes.

    NCCL's rings leave a node once for each port: what a rank sends inside, 2 (r - 1) / r times the message, goes out
    over all ports of its node together, so each carries 1 / `node` of it. The slower bounds it. `rates`: bytes/s
    of a rank, one direction, over the links inside its node and through its port; messages get a share of them.
    """
    link, network = rates
    outside = node * network * NETWORK_SHARE
    inside = link * efficiency.large * math.pow(2 / node, efficiency.rank_decay) if node > 1 else outside
    depth = math.ceil(math.log2(-(-ranks // node)))
    latency = OVER_NODES_US + (depth - 1) * NETWORK_LATENCY_US
    return latency * 1e-6 + message_bytes * 2 * (ranks - 1) / ranks / min(inside, outside)


def transfer_seconds(kv_bytes: float, link: float, efficiency: TransferEfficiency) -> float:
    """Seconds until `kv_bytes` are at the other side of a link of `link` bytes/s."""
    return efficiency.set_up_us * 1e-6 + kv_bytes / (link * efficiency.share)
