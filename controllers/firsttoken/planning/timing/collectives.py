"""Time of an all-reduce inside a node or across nodes, and of moving KV from one replica to another."""

import math
from dataclasses import dataclass

# An all-reduce across nodes passes the network once each way: latency of a small message over RDMA, two hops.
NETWORK_LATENCY_US = 30.0


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


def transfer_seconds(kv_bytes: float, link: float, efficiency: TransferEfficiency) -> float:
    """Seconds until `kv_bytes` are at the other side of a link of `link` bytes/s."""
    return efficiency.set_up_us * 1e-6 + kv_bytes / (link * efficiency.share)
