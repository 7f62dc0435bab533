"""How many GPUs a replica takes: tensor parallelism first, pipeline stages for what is left (M4.6).

Inside one node where anything fits there. What doesn't takes whole nodes: stages lie on several, each layer's split
inside one, unless the network carries that, too (network.py), and it then serves about as much.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from firsttoken.api.engine import EnginePins
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.planning.accelerators import is_cpu, max_tensor_parallel
from firsttoken.planning.mig import compute_share
from firsttoken.planning.network import why_not_over_nodes
from firsttoken.planning.nodes import MOST_NODES, nodes_of, stages_over_nodes
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.types import MemoryBudget, ModelFacts
from firsttoken.planning.words import count

# M4.4: the case began with room for "a dozen" requests and suffered from it. Below that a larger replica is worth
# its GPUs: weights are read once a step however many requests share the step.
USEFUL_CONCURRENCY = 12
# Activations, graphs and context are estimates. What is left for KV must be more than their error: with less than a
# tenth of the memory, an engine that dies at start and one that serves a handful of requests differ by an estimate.
LEAST_KV_SHARE = 0.10

NO_STAGES = (
    "vLLM's NixlConnector, which carries KV from prefill to decode, does not work with pipeline stages: Colocated can "
    "have them, or choose GPUs on which tensor parallelism is enough"
)


@dataclass(frozen=True)
class Candidate:
    """One way to run a replica, and its memory."""

    tensor_parallel: int
    pipeline_parallel: int
    memory: MemoryBudget
    nodes: int = 1

    @property
    def gpus(self) -> int:
        """Devices of one replica."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def useful(self) -> bool:
        """Whether it holds a dozen requests of the workload."""
        return self.memory.max_concurrent_requests >= USEFUL_CONCURRENCY


Budget = Callable[[int, int], MemoryBudget]  # tensor parallel, pipeline parallel -> memory


def kv_share(memory: MemoryBudget) -> float:
    """Part of the usable memory that is left for KV."""
    return memory.kv_cache_bytes / memory.usable_bytes


def fits(memory: MemoryBudget, profile: AcceleratorProfileSpec) -> bool:
    """One request of the maximum length (vLLM does not start otherwise), and KV beyond the error of the estimates.

    On CPU the KV space is an allotment, not what is left, so only the first rule applies.
    """
    if memory.max_concurrent_at_maximum_length < 1:
        return False
    return is_cpu(profile) or kv_share(memory) >= LEAST_KV_SHARE


def shapes(facts: ModelFacts, profile: AcceleratorProfileSpec, pins: EnginePins, role: str) -> list[tuple[int, int]]:
    """(tensor, pipeline) pairs inside a node, pins obeyed. Raises InfeasibleError for a pin that can't work."""
    tensor = _tensor_sizes(facts, profile, pins, role)
    if pins.pipeline_parallel is not None:
        _check_stages(facts, profile, pins.pipeline_parallel, role)
        return [(t, pins.pipeline_parallel) for t in tensor if fits_a_node(t * pins.pipeline_parallel, profile)]
    alone = [(t, 1) for t in tensor if fits_a_node(t, profile)]
    if role != "serve":
        return alone
    return alone + [(tensor[-1], stages) for stages in _stages(facts, profile, tensor[-1])]


def shapes_over_nodes(
    facts: ModelFacts, profile: AcceleratorProfileSpec, pins: EnginePins, role: str
) -> list[tuple[int, int]]:
    """(tensor, pipeline) pairs on two nodes and more, pins obeyed, smallest first. Raises like `shapes`.

    None for a role of a split, whose connector has no stages, and none of slices or CPUs, which nothing joins.
    """
    if role != "serve" or is_cpu(profile) or compute_share(profile) is not None:
        return []
    tensor, node = _tensor_sizes(facts, profile, pins, role), profile.devices_per_node
    if pins.pipeline_parallel is not None:
        found = [(t, pins.pipeline_parallel) for t in tensor if not fits_a_node(t * pins.pipeline_parallel, profile)]
    elif tensor[-1] > node:
        found = [(tensor[-1], 1)]
    else:
        found = [(tensor[-1], stages) for stages in stages_over_nodes(tensor[-1], facts.num_hidden_layers, node)]
        wider = [node * n for n in range(2, MOST_NODES + 1)] if pins.tensor_parallel is None else []
        found += [(t, 1) for t in wider if _divisible(facts, t) and why_not_over_nodes(facts, profile, t) is None]
    return sorted(found, key=lambda shape: (shape[0] * shape[1], shape[1]))


def fits_a_node(gpus: int, profile: AcceleratorProfileSpec) -> bool:
    """Whether a replica of `gpus` devices is one pod."""
    return gpus <= profile.devices_per_node


def _divisible(facts: ModelFacts, tensor_parallel: int) -> bool:
    return why_not_divisible(facts, tensor_parallel) is None


def why_not_divisible(facts: ModelFacts, tensor_parallel: int) -> str | None:
    """vLLM splits heads and feed-forward columns evenly; KV heads are split or replicated evenly."""
    heads, kv_heads = facts.num_attention_heads, facts.num_key_value_heads
    if heads % tensor_parallel:
        return f"it does not divide the {heads} attention heads of {facts.name}"
    if facts.kv_lora_rank is None and kv_heads % tensor_parallel and tensor_parallel % kv_heads:
        return f"the {kv_heads} KV heads of {facts.name} can be neither split nor replicated evenly"
    width = facts.moe_intermediate_size or facts.intermediate_size
    if width % tensor_parallel:
        return f"it does not divide the {width} columns of the feed-forward layer of {facts.name}"
    return _why_not_in_groups(facts, tensor_parallel)


def _why_not_in_groups(facts: ModelFacts, tensor_parallel: int) -> str | None:
    """Weights that share a scale can't be cut apart (vLLM: "input size is not aligned with the quantized weight").

    On one rank nothing is cut: whatever groups the checkpoint has, they fit its layers.
    """
    group = facts.weight_group if tensor_parallel > 1 else None
    inputs = {"columns of the feed-forward layer": facts.moe_intermediate_size or facts.intermediate_size}
    if facts.kv_lora_rank is None:
        inputs["columns of the attention's output"] = facts.num_attention_heads * facts.head_dim
    for what, width in inputs.items():
        if group and width // tensor_parallel % group:
            share = f"{width} / {tensor_parallel} = {width // tensor_parallel} {what} of {facts.name}"
            return f"{share} are no multiple of {group}, the {facts.quantization} weights that share a scale"
    return None


def candidates(
    facts: ModelFacts,
    profile: AcceleratorProfileSpec,
    pins: EnginePins,
    role: str,
    *,
    budget: Budget,
) -> list[Candidate]:
    """Every shape inside a node that fits, smallest first; where none does, those on several nodes."""
    for group in (shapes, shapes_over_nodes):
        found = [
            Candidate(t, p, budget(t, p), nodes_of(t, p, profile.devices_per_node))
            for t, p in group(facts, profile, pins, role)
        ]
        fitting = [c for c in found if fits(c.memory, profile)]
        if fitting:
            return sorted(fitting, key=lambda c: (c.gpus, c.pipeline_parallel))
    return []


def choose(per_role: Sequence[Sequence[Candidate]], limit: int | None) -> tuple[Candidate, ...] | None:
    """One candidate a role, together within `limit` GPUs; None if nothing is.

    Preferred, in this order: a dozen requests at once; then the fewest GPUs, or, where nobody reaches a dozen, the
    most requests. A larger limit only adds choices, so it never takes a feasible one away.
    """
    within = [c for c in product(*per_role) if limit is None or sum(x.gpus for x in c) <= limit]
    return min(within, key=_preference) if within else None


def _preference(chosen: Sequence[Candidate]) -> tuple[int, ...]:
    not_useful = sum(not c.useful for c in chosen)
    fewest = sum(0 if c.useful else -c.memory.max_concurrent_requests for c in chosen)
    gpus = sum(c.gpus for c in chosen)
    return (not_useful, fewest, gpus, sum(c.pipeline_parallel for c in chosen))


def _tensor_sizes(facts: ModelFacts, profile: AcceleratorProfileSpec, pins: EnginePins, role: str) -> list[int]:
    if pins.tensor_parallel is not None:
        _check_tensor_pin(facts, profile, pins.tensor_parallel, role)
        return [pins.tensor_parallel]
    powers = [2**n for n in range(7) if 2**n <= max_tensor_parallel(profile)]
    return [t for t in powers if _divisible(facts, t)]


def _check_tensor_pin(facts: ModelFacts, profile: AcceleratorProfileSpec, pinned: int, role: str) -> None:
    node = profile.devices_per_node
    why = why_not_divisible(facts, pinned)
    if pinned > node:
        inside = f"a node has {count(node, 'device')}"
        if role != "serve" or compute_share(profile) is not None:
            why = f"{inside}, and each layer's split needs the links inside it"
        elif pinned % node:
            why = f"{inside}, and on several nodes a layer's split takes all of each"
        elif why is None and (slow := why_not_over_nodes(facts, profile, pinned)):
            why = f"{inside}, and {slow}"
    if why is not None:
        sizes = [t for t in range(1, node + 1) if _divisible(facts, t)]
        usable = [t for t in sizes if t < pinned] or sizes
        raise InfeasibleError(
            "TensorParallel",
            f"spec.engine.pins.tensorParallel is {pinned}: {why}; use one of {', '.join(map(str, sizes))}",
            {"spec.engine.pins.tensorParallel": usable[-1]},
        )


def _check_stages(facts: ModelFacts, profile: AcceleratorProfileSpec, stages: int, role: str) -> None:
    alone = "a node is one device on CPU" if is_cpu(profile) else "an engine is one MIG slice, several can't be joined"
    if stages > 1 and (is_cpu(profile) or compute_share(profile) is not None):
        raise InfeasibleError(
            "PipelineParallel",
            f"spec.engine.pins.pipelineParallel is {stages}: {alone}; pin 1, or no number",
            {"spec.engine.pins.pipelineParallel": 1},
        )
    if role != "serve" and stages > 1:
        raise InfeasibleError(
            "PipelineParallel",
            f"spec.engine.pins.pipelineParallel is {stages}: {NO_STAGES}",
            {"spec.engine.pins.pipelineParallel": 1, "spec.layout.mode": "Colocated"},
        )
    if stages > facts.num_hidden_layers:
        raise InfeasibleError(
            "PipelineParallel",
            f"spec.engine.pins.pipelineParallel is {stages}, {facts.name} has {facts.num_hidden_layers} layers: a "
            "stage needs at least one",
            {"spec.engine.pins.pipelineParallel": facts.num_hidden_layers},
        )


def _stages(facts: ModelFacts, profile: AcceleratorProfileSpec, tensor_parallel: int) -> Iterator[int]:
    """Pipeline stages on top of the largest tensor size."""
    if not is_cpu(profile):
        powers = (2**n for n in range(1, 7))
        yield from (s for s in powers if fits_a_node(s * tensor_parallel, profile) and s <= facts.num_hidden_layers)
