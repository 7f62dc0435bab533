"""How a model is cut into pipeline stages, which of them the others wait for, and what they hand on."""

from firsttoken.planning.nodes import nodes_of
from firsttoken.planning.timing.collectives import NETWORK_LATENCY_US
from firsttoken.planning.timing.device import Device

# vLLM passes on the hidden states and the residual (`make_empty_intermediate_tensors_factory` of its models).
TENSORS = 2


def handover_seconds(message: float, tensor_parallel: int, stages: int, device: Device) -> float:
    """Seconds in which `message` bytes of hidden states go through all `stages`, from stage to stage.

    Each rank sends its part of both tensors; stages on other nodes are reached over the network.
    Source: vllm/v1/worker/gpu_worker.py (`send_tensor_dict`).
    """
    part = TENSORS * message / tensor_parallel
    crossings = nodes_of(tensor_parallel, stages, device.node) - 1
    inside = device.link_among(2) or device.pcie
    moved = crossings * part / device.network + (stages - 1 - crossings) * part / inside
    return (stages - 1) * NETWORK_LATENCY_US * 1e-6 + moved


def slowest_stage(layers: float, count: int, head: float, stages: int) -> float:
    """Seconds of the slowest of `stages`: `count` layers take `layers` seconds together, the output embedding `head`.

    vLLM spreads layers evenly (`get_pp_indices`); the last stage has the output embedding and the sampler, so it takes
    none of those left over. Source: vllm/distributed/utils.py.
    """
    each, left_over = divmod(count, stages)
    return max((each + (left_over > 0)) * layers / count, each * layers / count + head)
