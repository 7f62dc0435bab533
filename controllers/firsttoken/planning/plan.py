"""From an InferenceService's spec to a Plan with its reasons, or to what would be feasible instead (M1.2, M4, M7).

What needs a restart (engine shape, arguments) is pinned by a revision; replicas are not, see `with_replicas`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from firsttoken.api.engine import EnginePins
from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.api.service_inputs import LayoutMode
from firsttoken.planning.accelerators import near_names
from firsttoken.planning.attention import choose_backend
from firsttoken.planning.engine_args import EngineChoice, eager_reason, engine_args, environment
from firsttoken.planning.explain import (
    caching_reason,
    layout_reason,
    memory_reason,
    model_reason,
    parallelism_reasons,
    router_reason,
    too_big,
)
from firsttoken.planning.kv_formats import kv_dtype_reason
from firsttoken.planning.lengths import Lengths, choose_lengths, length_reason
from firsttoken.planning.memory import DEFAULT_UTILIZATION, EngineLoad, memory_budget
from firsttoken.planning.models import model_facts
from firsttoken.planning.nearest import with_nearest
from firsttoken.planning.numerics import choose_numerics
from firsttoken.planning.parallelism import Candidate, candidates, choose
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.replicas import least_replicas, may_run_several, with_replicas
from firsttoken.planning.settings import Budgets, choose_budgets, decode_cap, running_requests
from firsttoken.planning.types import Infeasible, LiveSettings, MemoryBudget, ModelFacts, Plan, Reason, RolePlan
from firsttoken.planning.workload import resolve

__all__ = ["make_plan", "with_replicas"]

Profiles = Mapping[str, AcceleratorProfileSpec]


@dataclass(frozen=True)
class Role:
    """One role to be filled: its name, its AcceleratorProfile, and the tokens one request keeps in its KV cache.

    `request` says where that number is from: P95, as named in the spec or assumed for the profile.
    """

    name: str
    accelerator: str
    profile: AcceleratorProfileSpec
    request_tokens: int
    request: str


@dataclass(frozen=True)
class Sized:
    """How large a role's replica is, and its token budgets."""

    budgets: Budgets
    candidate: Candidate


@dataclass(frozen=True)
class Shared:
    """What all roles have in common."""

    max_model_length: int
    dtype: str | None
    prefix_caching: bool


def make_plan(spec: InferenceServiceSpec, profiles: Profiles) -> Plan | Infeasible:
    """The deployment for `spec`, replicas included; `profiles` are the cluster's AcceleratorProfiles by name.

    Pure and deterministic. `Infeasible` names the constraint that binds and alternatives, each tried and feasible.
    """
    outcome = _attempt(spec, profiles)
    return with_nearest(outcome, spec, profiles, _attempt) if isinstance(outcome, Infeasible) else outcome


def _attempt(spec: InferenceServiceSpec, profiles: Profiles) -> Plan | Infeasible:
    facts = model_facts(spec.model)
    if isinstance(facts, Infeasible):
        return facts
    try:
        return with_replicas(_engines(spec, facts, profiles), spec)
    except InfeasibleError as refused:
        return refused.infeasible


def _engines(spec: InferenceServiceSpec, facts: ModelFacts, profiles: Profiles) -> Plan:
    """The plan with one replica a role. Raises InfeasibleError."""
    lengths = choose_lengths(spec, facts, resolve(spec.workload))
    roles = _roles(spec, profiles, lengths)
    numerics = choose_numerics(facts, [r.profile for r in roles])
    length, sized = _size(spec, facts, roles, lengths)
    shared = Shared(length, numerics.dtype, _prefix_caching(spec, lengths))
    engines = [_choose_engine(spec, facts, r, s, shared) for r, s in zip(roles, sized, strict=True)]
    choices = [choice for choice, _ in engines]
    several = may_run_several(spec, sum(s.candidate.gpus for s in sized))
    reasons = (
        model_reason(facts),
        *numerics.reasons,
        layout_reason(spec, len(roles)),
        *lengths.reasons,
        *length_reason(lengths, length, facts),
        *_labelled(roles, [said for _, said in engines]),
        caching_reason(spec, lengths.workload, shared.prefix_caching),
        router_reason(len(roles), shared.prefix_caching, several),
    )
    return Plan(
        layout="Disaggregated" if len(roles) > 1 else "Colocated",
        model=facts.name,
        max_model_length=length,
        roles=tuple(_role_plan(spec, r, c) for r, c in zip(roles, choices, strict=True)),
        memory=sized[-1].candidate.memory,
        settings=_live(spec, [s.budgets for s in sized], choices),
        router=len(roles) > 1 or (shared.prefix_caching and several),
        reasons=reasons,
    )


def _prefix_caching(spec: InferenceServiceSpec, lengths: Lengths) -> bool:
    pinned = spec.engine.pins.prefix_caching if spec.engine.pins else None
    return lengths.workload.prefix_caching if pinned is None else pinned


def _labelled(roles: tuple[Role, ...], said: list[list[Reason]]) -> list[Reason]:
    """Reasons of all roles in order; with two roles each sentence begins with its role."""
    if len(roles) == 1:
        return said[0]
    return [
        replace(reason, message=f"{role.name}: {reason.message}")
        for role, reasons in zip(roles, said, strict=True)
        for reason in reasons
    ]


def _roles(spec: InferenceServiceSpec, profiles: Profiles, lengths: Lengths) -> tuple[Role, ...]:
    """`serve`, or `prefill` and `decode`, each with its device (DESIGN §7: Auto starts colocated)."""
    accelerator, work = spec.accelerator, lengths.workload
    if spec.layout.mode != LayoutMode.DISAGGREGATED:
        named = [("serve", accelerator.type, work.p95_total, work.assumed(), "spec.accelerator.type")]
    else:
        # A prefill engine keeps a prompt until decode has fetched it, and never the output.
        tokens = {"prefill": work.prompt.p95, "decode": work.p95_total}
        own = {"prefill": accelerator.prefill, "decode": accelerator.decode}
        named = [
            (
                role,
                given.type if given else accelerator.type,
                tokens[role],
                work.assumed(output=role == "decode"),
                f"spec.accelerator.{role}.type" if given else "spec.accelerator.type",
            )
            for role, given in own.items()
        ]
    for _, name, _, _, path in named:
        if name not in profiles:
            near = near_names(name, profiles)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            there = ", ".join(sorted(profiles)) or "none"
            text = f"{path}: no AcceleratorProfile is named {name!r}{meant}; there are: {there}"
            raise InfeasibleError("UnknownAccelerator", text, {path: near[0]} if near else {})
    return tuple(Role(role, name, profiles[name], tokens, f"P95{said}") for role, name, tokens, said, _ in named)


def _size(
    spec: InferenceServiceSpec, facts: ModelFacts, roles: tuple[Role, ...], lengths: Lengths
) -> tuple[int, tuple[Sized, ...]]:
    """The first maximum length at which every role fits, with the preferred shapes. Raises InfeasibleError."""
    limit = spec.accelerator.max_count
    per_set = limit // least_replicas(spec) if limit is not None else None
    for length in lengths.options:
        budgets = [choose_budgets(spec, r.profile, length) for r in roles]
        options = [_fitting(spec, facts, r, b, length) for r, b in zip(roles, budgets, strict=True)]
        chosen = choose(options, per_set)
        if chosen is not None:
            return length, tuple(Sized(b, c) for b, c in zip(budgets, chosen, strict=True))
    loads = [_load(spec, r, b, length) for r, b in zip(roles, budgets, strict=True)]
    raise too_big(spec, facts, [(r.name, r.profile, load) for r, load in zip(roles, loads, strict=True)])


def _load(spec: InferenceServiceSpec, role: Role, budgets: Budgets, length: int) -> EngineLoad:
    pins = spec.engine.pins or EnginePins()
    return EngineLoad(
        token_budget=budgets.ceiling,
        max_num_seqs=budgets.max_num_seqs,
        max_model_length=length,
        request_tokens=role.request_tokens,
        utilization=pins.gpu_memory_utilization or DEFAULT_UTILIZATION,
        kv_cache_dtype=pins.kv_cache_dtype or "auto",
    )


def _fitting(
    spec: InferenceServiceSpec, facts: ModelFacts, role: Role, budgets: Budgets, length: int
) -> list[Candidate]:
    load, pins = _load(spec, role, budgets, length), spec.engine.pins or EnginePins()

    def budget(tensor: int, stages: int) -> MemoryBudget:
        return memory_budget(facts, role.profile, tensor, stages, load)

    return candidates(facts, role.profile, pins, role.name, max_model_length=length, budget=budget)


def _choose_engine(
    spec: InferenceServiceSpec, facts: ModelFacts, role: Role, sized: Sized, shared: Shared
) -> tuple[EngineChoice, list[Reason]]:
    """What one role's engine is started with, and why. Raises InfeasibleError for a pin that can't work."""
    pins, candidate, budgets = spec.engine.pins or EnginePins(), sized.candidate, sized.budgets
    kv_dtype, fits = pins.kv_cache_dtype, candidate.memory.max_concurrent_requests
    backend, backend_reasons = choose_backend(pins.attention_backend, facts, role.profile, kv_dtype or "auto")
    seqs, seqs_reason = running_requests(pins, budgets.max_num_seqs, fits, role.request_tokens, role.request)
    choice = EngineChoice(
        role=role.name,
        profile=role.profile,
        candidate=candidate,
        max_model_length=shared.max_model_length,
        ceiling=budgets.ceiling,
        max_num_seqs=seqs,
        utilization=pins.gpu_memory_utilization or DEFAULT_UTILIZATION,
        dtype=shared.dtype,
        kv_cache_dtype=kv_dtype,
        attention_backend=backend,
        chunked_prefill=pins.chunked_prefill is not False,
        prefix_caching=shared.prefix_caching,
    )
    return choice, [
        *parallelism_reasons(spec, facts, role.profile, candidate),
        memory_reason(role.profile, candidate, shared.max_model_length),
        *backend_reasons,
        *kv_dtype_reason(kv_dtype, role.profile),
        *eager_reason(spec, role.profile),
        *budgets.reasons,
        seqs_reason,
    ]


def _role_plan(spec: InferenceServiceSpec, role: Role, choice: EngineChoice) -> RolePlan:
    return RolePlan(
        role=role.name,
        accelerator=role.accelerator,
        replicas=1,
        tensor_parallel=choice.candidate.tensor_parallel,
        pipeline_parallel=choice.candidate.pipeline_parallel,
        engine_args=engine_args(spec, choice),
        environment=environment(role.profile, choice.candidate.memory.kv_cache_bytes),
    )


def _live(spec: InferenceServiceSpec, budgets: list[Budgets], choices: list[EngineChoice]) -> LiveSettings:
    """The start of live tuning: the budget matters where prompts are computed, the cap where tokens are made."""
    initial, start = spec.engine.initial, budgets[0].start
    return LiveSettings(
        token_budget=start,
        decode_cap=decode_cap(initial, choices[-1].max_num_seqs, budgets[-1].start),
        long_prefill_threshold=(initial.long_prefill_threshold or 0) if initial else 0,
    )
