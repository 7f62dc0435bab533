"""Nodes with devices, and where a pod goes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.rehearsal.errors import WorldError
from firsttoken.rehearsal.pods import Pod
from firsttoken.rehearsal.world import World


@dataclass
class Node:
    """One node and its devices."""

    name: str
    accelerator: str
    gpus: int
    losses: int = 0  # events that hold it lost

    @property
    def lost(self) -> bool:
        """Whether it is gone."""
        return self.losses > 0


@dataclass
class Nodes:
    """Where pods with GPUs go: of the nodes of their type with enough free devices that with the fewest of their kind.

    Without `given` nodes there are always enough of them, made when they are needed, of `devices` each.
    """

    given: Sequence[Node] | None
    devices: Callable[[str], int]  # of a node of an accelerator type
    resource: Callable[[str], str]  # what its devices are called
    known: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.known = list(self.given or ())

    def find(self, name: str) -> Node | None:
        """A node by name."""
        return next((n for n in self.known if n.name == name), None)

    def place(self, pod: Pod, pods: Sequence[Pod]) -> None:
        """Give the pod a node, or say why there is none. Pods without GPUs always have room, on nodes of their own."""
        if pod.gpus == 0:
            pod.node = "cpu"
            return
        used: dict[str, int] = {}
        for other in pods:
            used[other.node] = used.get(other.node, 0) + other.gpus
        fitting = [n for n in self.known if n.accelerator == pod.accelerator and not n.lost]
        free = [n for n in fitting if n.gpus - used.get(n.name, 0) >= pod.gpus]
        if free:
            beside = [o.node for o in pods if o.owner == pod.owner]
            pod.node, pod.unplaced = min(free, key=lambda n: beside.count(n.name)).name, ""
            return
        if self.given is None:
            node = Node(f"node-{len(self.known) + 1}", pod.accelerator, max(pod.gpus, self.devices(pod.accelerator)))
            self.known.append(node)
            pod.node, pod.unplaced = node.name, ""
            return
        pod.unplaced = self._why(pod, len(fitting))

    def _why(self, pod: Pod, fitting: int) -> str:
        """In the scheduler's words."""
        there = [n for n in self.known if not n.lost]
        parts = [f"{fitting} Insufficient {self.resource(pod.accelerator)}"] if fitting else []
        if len(there) > fitting:
            parts.append(f"{len(there) - fitting} node(s) didn't match Pod's node affinity/selector")
        return f"0/{len(there)} nodes are available: {', '.join(parts) or 'there is none'}."


def nodes_of(world: World, accelerator: str, profiles: Mapping[str, AcceleratorProfileSpec]) -> Nodes:
    """The world's nodes; their `accelerator` unless they name another. Raises WorldError: nobody knows that."""
    found: list[Node] = []
    for place, group in enumerate(world.nodes or ()):
        name = group.accelerator or accelerator
        if name not in profiles:
            raise WorldError(f"nodes[{place}].accelerator: there is no AcceleratorProfile {name}")
        found += [Node(f"{group.name}-{n + 1}", name, group.gpus) for n in range(group.count)]
    return Nodes(
        None if world.nodes is None else found,
        lambda name: profiles[name].devices_per_node,
        lambda name: profiles[name].resource_name or "",
    )
