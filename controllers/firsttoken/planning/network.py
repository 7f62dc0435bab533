"""What goes between the nodes of a replica, and whether the network carries it (M4.6): the arithmetic, in words too."""

from dataclasses import dataclass

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.nodes import nodes_of
from firsttoken.planning.timing.collectives import NETWORK_LATENCY_US, NETWORK_SHARE
from firsttoken.planning.timing.device import Device, device_from_profile
from firsttoken.planning.timing.stages import TENSORS
from firsttoken.planning.timing.step import Decodes, StepModel
from firsttoken.planning.types import ModelFacts
from firsttoken.planning.words import milliseconds, number

# A layer's split is carried where its all-reduces take no more than this part of a step: beyond it the devices mostly
# wait for the network, and pipeline stages on the same nodes do more.
CARRIED = 0.5
# Steps that are looked at: one of prompts, which is bound by bytes, and one of decodes, which is bound by latency.
PROMPT_TOKENS = 8192
DECODES = Decodes(requests=32, total_context=32 * 1024, max_context=1024)


@dataclass(frozen=True)
class Split:
    """All-reduces over the network in one step of a model whose layers are split over nodes."""

    sent: float  # bytes through the network port of a device
    count: int
    collectives: float  # seconds
    seconds: float  # of the step, with them

    @property
    def carried(self) -> bool:
        """Whether the step is not mostly waiting for the network."""
        return self.collectives <= CARRIED * self.seconds


def split_over_nodes(
    facts: ModelFacts, device: Device, tensor_parallel: int, tokens: int = 0, decodes: Decodes | tuple[()] = ()
) -> Split:
    """A step of `tokens` of a prompt, or of `decodes`, with each layer split over `tensor_parallel` devices."""
    model = StepModel(facts, device, tensor_parallel=tensor_parallel)
    step = model.step_seconds(((0, tokens),) if tokens else (), decodes)
    rows, ranks = tokens or (decodes.requests if isinstance(decodes, Decodes) else 0), tensor_parallel
    message = rows * facts.hidden_size * 2
    count = 2 * facts.num_hidden_layers
    # What a ring sends leaves a node once for each of its ports.
    sent = count * message * 2 * (ranks - 1) / ranks / min(ranks, device.node)
    return Split(sent, count, step.collectives, step.seconds)


def why_not_over_nodes(facts: ModelFacts, profile: AcceleratorProfileSpec, tensor_parallel: int) -> str | None:
    """Why a layer is not to be split over nodes; None where the profile's network carries it."""
    device = device_from_profile(profile)
    if device.network_assumed:
        return (
            "the AcceleratorProfile says nothing of the network between nodes (networkGbPerSecond), which each layer "
            "would wait for"
        )
    for split, what in (
        (split_over_nodes(facts, device, tensor_parallel, PROMPT_TOKENS), f"a step of {PROMPT_TOKENS} tokens"),
        (split_over_nodes(facts, device, tensor_parallel, 0, DECODES), f"a step of {DECODES.requests} decodes"),
    ):
        if not split.carried:
            return f"{split_in_words(split, network_in_words(device), what)}, more than half of it"
    return None


def split_in_words(split: Split, over: str, what: str) -> str:
    """The arithmetic: bytes over the network and what they take of the step's time. `what`: in which step."""
    return (
        f"{split.count} all-reduces over {over}, of which NCCL reaches {NETWORK_SHARE:.0%}, would send "
        f"{amount(split.sent)} through each device's port in {what} and take {milliseconds(split.collectives)} of "
        f"{milliseconds(split.seconds)}"
    )


def network_in_words(device: Device) -> str:
    """How fast, and who says so."""
    assumed = " (assumed: the AcceleratorProfile names no networkGbPerSecond)" if device.network_assumed else ""
    return f"a network of {device.network / 1e9:.3g} GB/s a GPU{assumed}"


def handover_in_words(facts: ModelFacts, device: Device, shape: tuple[int, int], tokens: int) -> tuple[str, float]:
    """What goes to stages on other nodes in a step of `tokens`, in words, and its seconds. `shape`: tensor, stages."""
    tensor, stages = shape
    crossings = nodes_of(tensor, stages, device.node) - 1
    sent = TENSORS * tokens * facts.hidden_size * 2
    seconds = crossings * (NETWORK_LATENCY_US * 1e-6 + sent / tensor / device.network)
    times = "once" if crossings == 1 else f"{crossings} times"
    return f"{amount(sent)} of activations go {times} over {network_in_words(device)}", seconds


def amount(sent: float) -> str:
    """Bytes for people, three digits."""
    return f"{number(sent / 1e9)} GB" if sent >= 1e9 else f"{number(sent / 1e6)} MB"
