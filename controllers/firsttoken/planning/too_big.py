"""Why no shape of a replica fits, with the arithmetic of the largest that is allowed."""

import math
from collections.abc import Sequence

from firsttoken.api.engine import EnginePins
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import device_bytes, is_cpu
from firsttoken.planning.explain import gigabytes, why_no_wider
from firsttoken.planning.memory import GIB, EngineLoad, memory_budget
from firsttoken.planning.mig import compute_share
from firsttoken.planning.nodes import MOST_NODES
from firsttoken.planning.parallelism import LEAST_KV_SHARE, NO_STAGES, fits, kv_share, shapes, shapes_over_nodes
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.replicas import least_replicas
from firsttoken.planning.types import MemoryBudget, ModelFacts
from firsttoken.planning.words import count

RoleLoad = tuple[str, AcceleratorProfileSpec, EngineLoad]

LARGER = "choose GPUs with more memory or more of them in a node, quantised weights, or a smaller model"
ONE_SLICE = (
    "an engine is one MIG slice, several can't be joined: let it need less (shorter requests, a smaller step, fewer at "
    "once, quantised weights, a smaller model), or choose a larger slice or a whole GPU"
)
NOT_OVER_NODES = (
    f"prefill and decode roles stay inside one, since vLLM's NixlConnector does not work with pipeline stages: {LARGER}"
)
NOT_WIDER = (
    "prefill and decode roles have no pipeline stages (vLLM's NixlConnector): choose GPUs with more memory or with "
    "links between them, quantised weights, or a smaller model"
)


def too_big(spec: InferenceServiceSpec, facts: ModelFacts, roles: Sequence[RoleLoad]) -> InfeasibleError:
    """Why no shape of some role fits into the budget, with the arithmetic of the largest allowed one."""
    limit, least = spec.accelerator.max_count, least_replicas(spec)
    allowed = limit // least if limit is not None else None
    if limit is not None and len(roles) > 1 and limit < 2 * least:
        text = f"prefill and decode need a GPU each for {count(least, 'replica')}, spec.accelerator.maxCount is {limit}"
        return InfeasibleError("MaxCount", text)
    if limit is not None and limit < least:
        return InfeasibleError("MaxCount", f"{least} replicas need a GPU each, spec.accelerator.maxCount is {limit}")
    _check_any_number_holds(spec, facts, roles)
    shares = [(role, _largest(spec, facts, role, allowed)) for role in roles]
    (name, profile, load), (gpus, memory) = next(
        ((role, best) for role, best in shares if not fits(best[1], role[1])), shares[0]
    )
    prefix = f"{name}: " if len(roles) > 1 else ""
    budget = f"; spec.accelerator.maxCount is {limit}" if limit is not None else ""
    constraint = "MaxCount" if least > 1 or len(roles) > 1 else "Memory"
    return InfeasibleError(
        constraint if limit is not None else "Memory",
        prefix + _arithmetic(facts, profile, load, gpus, memory) + budget + _whole_node(profile, load, memory),
        _shorter(spec, memory, profile),
    )


def _check_any_number_holds(spec: InferenceServiceSpec, facts: ModelFacts, roles: Sequence[RoleLoad]) -> None:
    """Raises InfeasibleError when a role fits on no number of GPUs that it may have, so a larger budget would not help.

    With a pinned shape it is the pin that binds, and on CPU a node is one device.
    """
    pins = spec.engine.pins or EnginePins()
    if pins.tensor_parallel is not None or pins.pipeline_parallel is not None:
        return
    for name, profile, load in roles:
        if is_cpu(profile) or _holds(facts, profile, load, name):
            continue
        gpus, memory = _largest(spec, facts, (name, profile, load), None)
        stages = name != "serve" and _holds(facts, profile, load, "serve")
        constraint, why = _beyond_a_node(facts, profile, name, gpus, stages=stages)
        raise InfeasibleError(
            constraint,
            f"{name + ': ' if len(roles) > 1 else ''}{_arithmetic(facts, profile, load, gpus, memory)}; {why}",
            {**_shorter(spec, memory, profile), **({"spec.layout.mode": "Colocated"} if stages else {})},
        )


def _beyond_a_node(
    facts: ModelFacts, profile: AcceleratorProfileSpec, role: str, gpus: int, *, stages: bool
) -> tuple[str, str]:
    """The constraint, and what there is to say of it. `gpus`: of the largest replica that the role may have. `stages`:
    a colocated one would fit with pipeline stages.
    """
    if compute_share(profile) is not None:
        return "Memory", ONE_SLICE
    if role != "serve" and gpus < profile.devices_per_node:
        return "PipelineParallel", f"{why_no_wider(facts, profile, gpus)}, and {NO_STAGES if stages else NOT_WIDER}"
    if role != "serve":
        return "AcrossNodes", f"a node has {count(profile.devices_per_node, 'device')}, and {NOT_OVER_NODES}"
    more = (
        "choose GPUs with more memory or a profile with more of them in a node, quantised weights, or a smaller model"
    )
    return "AcrossNodes", f"a replica lies on {MOST_NODES} nodes at most, and {more}"


def _holds(facts: ModelFacts, profile: AcceleratorProfileSpec, load: EngineLoad, role: str) -> bool:
    return any(
        fits(memory_budget(facts, profile, t, p, load), profile)
        for group in (shapes, shapes_over_nodes)
        for t, p in group(facts, profile, EnginePins(), role)
    )


def _largest(
    spec: InferenceServiceSpec, facts: ModelFacts, role: RoleLoad, allowed: int | None
) -> tuple[int, MemoryBudget]:
    """The shape within `allowed` GPUs that leaves most KV; beyond it the smallest shape there is."""
    name, profile, load = role
    pins = spec.engine.pins or EnginePins()
    every = shapes(facts, profile, pins, name) + shapes_over_nodes(facts, profile, pins, name)
    within = [s for s in every if allowed is None or s[0] * s[1] <= allowed] or every[:1]
    budgets = [(t * p, memory_budget(facts, profile, t, p, load)) for t, p in within]
    return max(budgets, key=lambda b: (b[1].kv_cache_tokens, b[0]))


def _arithmetic(
    facts: ModelFacts, profile: AcceleratorProfileSpec, load: EngineLoad, gpus: int, m: MemoryBudget
) -> str:
    held = f"{facts.name} takes {gigabytes(m.weights_bytes)} of weights"
    where = f"{gpus} x {profile.product} (usable {gigabytes(m.usable_bytes)})"
    if m.kv_cache_tokens == 0:
        beside = f"activations {gigabytes(m.activation_bytes)}, graphs and context {gigabytes(m.overhead_bytes)}"
        return f"{held}, which do not fit on {where} beside {beside} (both estimates)"
    left = f"{held}; on {where} that leaves KV for {m.kv_cache_tokens} tokens"
    if m.max_concurrent_at_maximum_length < 1:
        return f"{left}, one request may take {load.max_model_length}"
    if not is_cpu(profile) and kv_share(m) < LEAST_KV_SHARE:
        return (
            f"{left}, {100 * kv_share(m):.0f} % of the memory; below {100 * LEAST_KV_SHARE:.0f} % the estimates of "
            f"activations and graphs decide whether the engine starts"
        )
    return f"{left}: enough for one replica, but not for all that must run"


def _whole_node(profile: AcceleratorProfileSpec, load: EngineLoad, m: MemoryBudget) -> str:
    """What to do where a CPU's profile names less memory than an engine takes; "" for a GPU, whose memory is fixed."""
    if not is_cpu(profile):
        return ""
    kv = math.ceil(m.kv_bytes_per_token * load.max_model_length / GIB) * GIB  # vLLM takes whole ones
    need = (m.weights_bytes + m.activation_bytes + m.overhead_bytes + kv) / load.utilization
    return (
        f"; the AcceleratorProfile lets an engine use {device_bytes(profile) / GIB:.0f} GiB, and this one takes some "
        f"{math.ceil(need / GIB)} GiB: if your nodes have that, name a profile that says so in spec.accelerator.type, "
        "else choose a smaller model"
    )


def _shorter(spec: InferenceServiceSpec, m: MemoryBudget, profile: AcceleratorProfileSpec) -> dict[str, int]:
    """A shorter maximum, where that is what does not fit (tried before it is offered)."""
    asked = spec.model.max_model_length
    enough = is_cpu(profile) or kv_share(m) >= LEAST_KV_SHARE
    if asked is None or not enough or m.kv_cache_tokens < 16:
        return {}
    shorter = m.kv_cache_tokens // 256 * 256 or m.kv_cache_tokens
    return {"spec.model.maxModelLength": shorter} if shorter < asked else {}
