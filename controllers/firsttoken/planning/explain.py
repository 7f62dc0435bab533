"""The sentences of a plan: each choice with the numbers it was made from, in words."""

from collections.abc import Sequence

from firsttoken.api.engine import EnginePins
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.api.service_inputs import LayoutMode
from firsttoken.planning.accelerators import device_bytes, is_cpu, max_tensor_parallel
from firsttoken.planning.parallelism import (
    USEFUL_CONCURRENCY,
    Candidate,
    why_not_divisible,
)
from firsttoken.planning.timing.links import ASSUMED_LINK
from firsttoken.planning.types import ModelFacts, Plan, Reason
from firsttoken.planning.words import count
from firsttoken.planning.workload import ResolvedWorkload

ENGINE_IMAGE = "EngineImage"
# By AcceleratorProfile.vendor: what the image must hold. Only the last one is built here (docs/install.md).
_VLLM_FOR = {"AMD": "vLLM for ROCm", "Intel": "vLLM for Gaudi", "CPU": "vLLM for CPUs (firsttoken/runtime-cpu)"}


def gigabytes(size: float) -> str:
    """Bytes for people, in 10^9, small amounts in 10^6."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def model_reason(facts: ModelFacts) -> Reason:
    """Which model is planned for, and how that is known."""
    size = (
        f"{facts.parameters / 1e9:.2f} billion" if facts.parameters >= 1e8 else f"{facts.parameters / 1e6:.2f} million"
    )
    return Reason("Model", f"{facts.name}, {size} parameters ({facts.source})")


def image_reason(spec: InferenceServiceSpec, profiles: Sequence[AcceleratorProfileSpec]) -> tuple[Reason, ...]:
    """That the image Firsttoken ships does not run there: it is vLLM for CUDA, and pods would only crash."""
    others = {p.product: _VLLM_FOR.get(p.vendor, f"vLLM for {p.product}") for p in profiles if p.vendor != "NVIDIA"}
    if spec.engine.image is not None or not others:
        return ()
    wanted = " and ".join(dict.fromkeys(others.values()))
    text = (
        f"spec.engine.image is not set, and the default runtime is built for NVIDIA GPUs (CUDA): it does not start on "
        f"{' and '.join(others)}; name an image with {wanted} there, or as the operator's --engine-image"
    )
    return (Reason(ENGINE_IMAGE, text),)


def image_missing(plan: Plan) -> str:
    """The same in a few words, for an answer in one line; empty where an image is named or the default one runs."""
    return "needs spec.engine.image" if any(r.code == ENGINE_IMAGE for r in plan.reasons) else ""


def layout_reason(spec: InferenceServiceSpec, roles: int) -> Reason:
    """Colocated until measurements say otherwise (M4.5, DESIGN §7)."""
    if roles > 1:
        apart = "Disaggregated, as spec.layout.mode says: prefill and decode on GPUs of their own"
        return Reason("Layout", f"{apart}; {ASSUMED_LINK}")
    if spec.layout.mode == LayoutMode.COLOCATED:
        return Reason("Layout", "Colocated, as spec.layout.mode says")
    return Reason("Layout", "Colocated to begin with: a split pays where measurements confirm the imbalance")


def caching_reason(spec: InferenceServiceSpec, work: ResolvedWorkload, caching: bool) -> Reason:
    """Prefix caching from the workload (M4.3)."""
    pins, state = spec.engine.pins, "on" if caching else "off"
    if pins and pins.prefix_caching is not None:
        return Reason("PrefixCaching", f"{state}, as pinned")
    profile = spec.workload.profile.value
    if work.shared_prefix:
        source = "" if work.shared_prefix_given else f", assumed for profile {profile}"
        return Reason("PrefixCaching", f"{state}: prompts share their first {work.shared_prefix} tokens{source}")
    why = "prompts repeat what came before" if caching else "prompts have nothing in common"
    return Reason("PrefixCaching", f"{state}: in profile {profile} {why}")


def router_reason(roles: int, caching: bool, several: bool) -> Reason:
    """Whether vllm-router stands between Envoy and the engines (DESIGN §4)."""
    if roles > 1:
        return Reason("Router", "vllm-router leads each request from prefill to decode")
    if caching and several:
        text = (
            "vllm-router sends a prompt to the replica that holds most of its prefix, since each has its own cache, "
            "unless that one is much busier; one router pod works, so that it sees all prompts, a second stands by"
        )
        return Reason("Router", text)
    why = "the budget allows one replica" if not several else "no prefix cache to aim for"
    return Reason("Router", f"none: {why}, Envoy spreads the requests")


def memory_reason(
    facts: ModelFacts, profile: AcceleratorProfileSpec, candidate: Candidate, max_model_length: int
) -> Reason:
    """Where memory goes, and concurrency by need against by maximum length (M4.4)."""
    m, copies = candidate.memory, _copies(facts, candidate)
    rest = "the process itself" if is_cpu(profile) else "graphs and context"
    return Reason(
        "Memory",
        f"{candidate.gpus} x {gigabytes(device_bytes(profile))}, usable {gigabytes(m.usable_bytes)}: weights "
        f"{gigabytes(m.weights_bytes)}, activations {gigabytes(m.activation_bytes)} and {rest} "
        f"{gigabytes(m.overhead_bytes)} (both estimates), KV {gigabytes(m.kv_cache_bytes)} = {m.kv_cache_tokens} "
        f"tokens of {m.kv_bytes_per_token} bytes{copies}: {m.max_concurrent_requests} requests by need, "
        f"{m.max_concurrent_at_maximum_length} if each kept the maximum of {max_model_length} tokens",
    )


def _copies(facts: ModelFacts, candidate: Candidate) -> str:
    """Why a token takes more than the model's KV of it, where ranks hold the same twice."""
    ranks, heads = candidate.tensor_parallel, facts.num_key_value_heads
    each = f"{candidate.memory.kv_bytes_per_token // ranks} on each of {ranks} ranks"
    if ranks > 1 and facts.kv_lora_rank is not None:
        return f" ({each}: the latent vector of MLA has no heads to split, so every rank keeps all of it)"
    return f" ({each}: the {count(heads, 'KV head')} are replicated)" if ranks > heads else ""


def parallelism_reasons(
    spec: InferenceServiceSpec, facts: ModelFacts, profile: AcceleratorProfileSpec, chosen: Candidate
) -> list[Reason]:
    """Why this many GPUs share a layer, and why layers are spread over stages and nodes, if they are."""
    pins = spec.engine.pins or EnginePins()
    tensor, fit = chosen.tensor_parallel, chosen.memory.max_concurrent_requests
    if pins.tensor_parallel is not None:
        slow = tensor > max_tensor_parallel(profile)
        note = f"; {profile.product} has no link for that, all-reduce over PCIe will be slow" if slow else ""
        reasons = [Reason("TensorParallel", f"{tensor}, as pinned{note}")]
    elif chosen.pipeline_parallel > 1:
        text = f"{tensor}: the widest split of a layer that model and {profile.product} allow; stages add the rest"
        reasons = [Reason("TensorParallel", text)]
    elif chosen.useful:
        text = f"{tensor}: the fewest devices that hold the weights and a dozen requests ({fit} fit)"
        reasons = [Reason("TensorParallel", text)]
    else:
        text = (
            f"{tensor}: {fit} requests fit, below the {USEFUL_CONCURRENCY} that a replica should hold; "
            "no allowed shape holds more"
        )
        reasons = [Reason("TensorParallel", text)]
    if chosen.pipeline_parallel > 1:
        reasons.append(_stages_reason(pins, facts, profile, chosen))
    if chosen.nodes > 1:
        reasons.append(_nodes_reason(pins, facts, profile, chosen))
    elif chosen.gpus > 1:
        reasons.append(Reason("WithinNode", "a replica stays in one node: no link between nodes is on its path"))
    return reasons


def _nodes_reason(pins: EnginePins, facts: ModelFacts, profile: AcceleratorProfileSpec, chosen: Candidate) -> Reason:
    """Why one node is not enough."""
    m, nodes = chosen.memory, chosen.nodes
    text = f"a replica lies on {nodes} nodes with {count(chosen.gpus // nodes, 'device')} each, one pod a node"
    if pins.tensor_parallel is not None or pins.pipeline_parallel is not None:
        return Reason("AcrossNodes", f"{text}, as pinned")
    # Of a whole node, in the same share that an engine may use.
    node = m.usable_bytes * profile.devices_per_node // chosen.gpus
    rest = ", which leaves too little for KV beside them" if m.weights_bytes < node else ""
    return Reason(
        "AcrossNodes",
        f"{text}: {facts.name} takes {gigabytes(m.weights_bytes)} of weights, and one node of "
        f"{profile.devices_per_node} x {profile.product} has {gigabytes(node)} usable{rest}",
    )


def _stages_reason(pins: EnginePins, facts: ModelFacts, profile: AcceleratorProfileSpec, chosen: Candidate) -> Reason:
    stages, tensor = chosen.pipeline_parallel, chosen.tensor_parallel
    if pins.pipeline_parallel is not None:
        return Reason("PipelineParallel", f"{stages}, as pinned")
    if tensor >= profile.devices_per_node:
        why = "a layer's split stays inside a node, and stages pass on activations only"
    else:
        why = why_no_wider(facts, profile, tensor)
    return Reason("PipelineParallel", f"{stages} stages of {count(tensor, 'device')}: {why}")


def why_no_wider(facts: ModelFacts, profile: AcceleratorProfileSpec, tensor: int) -> str:
    """Why no more than `tensor` devices of a node share a layer."""
    if tensor >= max_tensor_parallel(profile):
        return f"{profile.product} meets its neighbours over PCIe, which carries no split of a layer beyond {tensor}"
    why = why_not_divisible(facts, tensor * 2) or "memory needs them"
    return f"a split over {tensor * 2} is not possible: {why}"
