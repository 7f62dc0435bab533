"""The way of KV from a prefill replica to a decode replica: what is assumed, since no profile knows the network."""

from firsttoken.planning.timing.device import Device

# In the words of a plan. RDMA adapters are on the GPUs' PCIe switches, so with one for each GPU the network is hardly
# slower; over anything else (TCP, one adapter for a node) the first token comes later than predicted.
ASSUMED_LINK = "KV is taken to go from prefill to decode at the speed of PCIe, as with an RDMA adapter for each GPU"

Side = tuple[Device, int]  # the device of a replica, and its ranks, which send and receive at the same time


def link_between(prefill: Side, decode: Side) -> float:
    """Bytes/s that KV goes with: the PCIe of a replica's ranks together, of the side that has less."""
    return min(device.pcie * ranks for device, ranks in (prefill, decode))
