"""From an InferenceService's spec to a Plan with its reasons, or to what would be feasible instead (M1.2, M4, M7).

What needs a restart (engine shape, arguments) is pinned by a revision; replicas are not, see `with_replicas`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from firsttoken.api.engine import EnginePins
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.among import among_others, among_reasons
from firsttoken.planning.attention import choose_backend
from firsttoken.planning.calibration import Calibration
from firsttoken.planning.choice import alternatives, shape_reason
from firsttoken.planning.engine_args import EngineChoice, eager_reason, engine_args, environment
from firsttoken.planning.explain import (
    caching_reason,
    image_reason,
    layout_reason,
    memory_reason,
    model_reason,
    parallelism_reasons,
    router_reason,
)
from firsttoken.planning.forecast import Question, at_work, figures, predict, promises_of, rate_of
from firsttoken.planning.kv_formats import kv_dtype_reason
from firsttoken.planning.kv_groups import window_reason
from firsttoken.planning.lengths import Lengths, choose_lengths, length_reason
from firsttoken.planning.memory import DEFAULT_UTILIZATION, groups_of
from firsttoken.planning.models import model_facts
from firsttoken.planning.nearest import with_nearest
from firsttoken.planning.node_reasons import node_reason, over_nodes, two_nodes, with_links
from firsttoken.planning.numerics import choose_numerics
from firsttoken.planning.promises import check_promises, promise_reasons
from firsttoken.planning.proposals import proposals
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.replicas import may_run_several, with_replicas
from firsttoken.planning.roles import Profiles, Role, disaggregated, labelled, roles_of
from firsttoken.planning.routing import choose_routing, routing_of, routing_reasons
from firsttoken.planning.running import prefix_caching, running_reason, shape_of
from firsttoken.planning.settings import decode_cap
from firsttoken.planning.sizing import Chooser, Forecasting, Sized, Sizes, fewest, size
from firsttoken.planning.start import start_of
from firsttoken.planning.types import Infeasible, LiveSettings, ModelFacts, Plan, Reason, RolePlan, Routing
from firsttoken.planning.workload import resolve

__all__ = ["fits", "make_plan", "with_replicas"]


@dataclass(frozen=True)
class Shared:
    """What all roles have in common."""

    max_model_length: int
    dtype: str | None
    prefix_caching: bool


def make_plan(
    spec: InferenceServiceSpec,
    profiles: Profiles,
    calibration: Calibration | None = None,
    config: Mapping[str, Any] | None = None,
    shapes: Mapping[str, tuple[int, int]] | None = None,
) -> Plan | Infeasible:
    """The deployment for `spec`, replicas included; `profiles` are the cluster's AcceleratorProfiles by name.

    `calibration`: what the live fleet has shown of the time model. `config`: the model's config.json, for a model that
    neither the spec nor the catalogue describes. `shapes`: tensor and pipeline parallelism of roles that have theirs
    already. Pure and deterministic. `Infeasible` names the constraint that binds
    and alternatives, each tried and feasible.
    """
    found = _planned(spec, profiles, calibration or Calibration(), config, shapes or {})
    if isinstance(found, Plan):
        return found
    return with_nearest(found, spec, profiles, partial(_holds, calibration=calibration or Calibration(), config=config))


def _planned(
    spec: InferenceServiceSpec,
    profiles: Profiles,
    calibration: Calibration,
    config: Mapping[str, Any] | None,
    shapes: Mapping[str, tuple[int, int]],
) -> Plan | Infeasible:
    """`make_plan` without a look at what would be feasible instead."""
    facts = model_facts(spec.model, config)
    if isinstance(facts, Infeasible):
        return facts
    try:
        lengths = choose_lengths(spec, facts, resolve(spec.workload))
        # What fits decides the maximum length, so it is known before anything is predicted: no prompt is longer.
        fitting = _sized(spec, facts, profiles, lengths, fewest)
        forecasting = Forecasting(spec, _question(spec, facts, fitting, calibration), shapes)
        sized = _sized(spec, facts, profiles, lengths, forecasting)
        plan = with_replicas(_engines(spec, facts, sized), spec, figures(max(f.interval for f in sized.forecasts)))
    except InfeasibleError as refused:
        return refused.infeasible
    return plan if isinstance(plan, Infeasible) else _explained(plan, forecasting, sized, profiles)


def _holds(
    spec: InferenceServiceSpec, profiles: Profiles, calibration: Calibration, config: Mapping[str, Any] | None
) -> Plan | Infeasible:
    """What an alternative comes to: whether it fits and, where the spec promises something, whether it is possible."""
    found = fits(spec, profiles, config)
    return _planned(spec, profiles, calibration, config, {}) if spec.slos and isinstance(found, Plan) else found


def fits(spec: InferenceServiceSpec, profiles: Profiles, config: Mapping[str, Any] | None = None) -> Plan | Infeasible:
    """A plan without predictions: whether something fits at all."""
    facts = model_facts(spec.model, config)
    if isinstance(facts, Infeasible):
        return facts
    try:
        lengths = choose_lengths(spec, facts, resolve(spec.workload))
        sized = _sized(spec, facts, profiles, lengths, fewest)
        return with_replicas(_engines(spec, facts, sized), spec)
    except InfeasibleError as refused:
        return refused.infeasible


def _question(spec: InferenceServiceSpec, facts: ModelFacts, sizes: Sizes, calibration: Calibration) -> Question:
    shape = shape_of(spec, facts, sizes.roles, sizes.lengths.workload, sizes.max_model_length)
    caching = prefix_caching(spec, sizes.lengths.workload)
    return Question(
        facts=facts,
        shape=shape,
        routing=routing_of(len(sizes.roles), shape, caching=caching),
        promises=promises_of(spec),
        promised=bool(spec.slos),
        bounds=tuple(spec.measurement.prompt_token_buckets),
        rate=sizes.lengths.workload.requests_per_second,
        calibration=calibration,
    )


def _sized(
    spec: InferenceServiceSpec, facts: ModelFacts, profiles: Profiles, lengths: Lengths, chooser: Chooser
) -> Sizes:
    """Raises InfeasibleError."""
    roles = roles_of(spec, profiles, lengths)
    numerics = choose_numerics(facts, [r.profile for r in roles])
    length, sized = size(spec, facts, roles, lengths, chooser)
    if isinstance(chooser, Forecasting):
        check_promises(chooser.question, sized, spec.slos, lengths.workload)
        sized = among_others(chooser, start_of(spec, chooser, roles, sized))
    return Sizes(lengths, roles, numerics.dtype, numerics.reasons, length, sized)


def _engines(spec: InferenceServiceSpec, facts: ModelFacts, sizes: Sizes) -> Plan:
    """The plan with one replica a role. Raises InfeasibleError."""
    lengths, roles, sized, length = sizes.lengths, sizes.roles, sizes.sized, sizes.max_model_length
    shared = Shared(length, sizes.dtype, prefix_caching(spec, lengths.workload))
    engines = [_choose_engine(spec, facts, r, s, shared) for r, s in zip(roles, sized, strict=True)]
    choices = [choice for choice, _ in engines]
    several = may_run_several(spec, sum(s.candidate.gpus for s in sized))
    router = len(roles) > 1 or (shared.prefix_caching and several)
    shape = shape_of(spec, facts, roles, lengths.workload, length)
    routing = choose_routing(shape) if router else Routing()
    reasons = (
        model_reason(facts),
        *sizes.reasons,
        *image_reason(spec, [role.profile for role in roles]),
        layout_reason(spec, len(roles)),
        *lengths.reasons,
        *length_reason(lengths, length, facts),
        *labelled(roles, [said for _, said in engines]),
        caching_reason(spec, lengths.workload, shared.prefix_caching),
        router_reason(len(roles), shared.prefix_caching, several),
        *routing_reasons(shape, routing),
        *among_reasons(sized),
    )
    return Plan(
        layout="Disaggregated" if len(roles) > 1 else "Colocated",
        model=facts.name,
        max_model_length=length,
        roles=tuple(_role_plan(spec, r, c, s) for r, c, s in zip(roles, choices, sized, strict=True)),
        memory=sized[-1].candidate.memory,
        settings=_live(spec, sized, choices),
        router=router,
        routing=routing,
        reasons=reasons,
    )


def _apart(forecasting: Forecasting, sizes: Sizes, profiles: Profiles) -> tuple[Sized, ...]:
    """Prefill and decode as they would be with spec.layout.mode: Disaggregated, for requests as long as those now.
    Raises InfeasibleError.
    """
    spec = disaggregated(forecasting.spec)
    lengths = replace(sizes.lengths, options=(sizes.max_model_length,))
    return _sized(spec, forecasting.question.facts, profiles, lengths, replace(forecasting, spec=spec, shapes={})).sized


def _explained(plan: Plan, forecasting: Forecasting, sizes: Sizes, profiles: Profiles) -> Plan:
    """The plan with what it should bring, what else was looked at, and what to evaluate next."""
    question, replicas = forecasting.question, [role.replicas for role in plan.roles]
    rate = rate_of(question, sizes.forecasts, replicas)
    forecasts = at_work(question, sizes.forecasts, rate, replicas)
    prediction = predict(question, forecasts, replicas, rate)
    last = sizes.sized[-1]
    limits = forecasting.limits()
    if len(plan.roles) > 1:  # what the decode role has now
        limits = replace(limits, gpus=plan.roles[-1].replicas * plan.roles[-1].gpus_per_replica)
    wider = two_nodes(forecasting, sizes.roles, last, sizes.max_model_length)
    others = alternatives(forecasts[-1], (*last.looked, *wider), plan.layout, limits)
    said = (*promise_reasons(prediction, forecasts, replicas, sizes.forecasts), *over_nodes(forecasts[-1], wider))
    apart = partial(_apart, forecasting, sizes, profiles)
    more = proposals(forecasting, sizes.roles, sizes.sized, replicas[0], apart)
    return replace(plan, prediction=prediction, alternatives=others, reasons=(*plan.reasons, *said, *more))


def _choose_engine(
    spec: InferenceServiceSpec, facts: ModelFacts, role: Role, sized: Sized, shared: Shared
) -> tuple[EngineChoice, list[Reason]]:
    """What one role's engine is started with, and why. Raises InfeasibleError for a pin that can't work."""
    pins, candidate, budgets = spec.engine.pins or EnginePins(), sized.candidate, sized.budgets
    kv_dtype, memory = pins.kv_cache_dtype, candidate.memory
    request = f"{role.request_tokens} tokens ({role.request})"
    backend, backend_reasons = choose_backend(pins.attention_backend, facts, role.profile, kv_dtype or "auto")
    choice = EngineChoice(
        role=role.name,
        profile=role.profile,
        candidate=candidate,
        max_model_length=shared.max_model_length,
        ceiling=budgets.ceiling,
        max_num_seqs=memory.max_num_seqs,
        utilization=pins.gpu_memory_utilization or DEFAULT_UTILIZATION,
        dtype=shared.dtype,
        kv_cache_dtype=kv_dtype,
        attention_backend=backend,
        chunked_prefill=pins.chunked_prefill is not False,
        prefix_caching=shared.prefix_caching,
    )
    said = parallelism_reasons(spec, facts, role.profile, candidate)
    said = _by_prediction(said, sized, role.profile.devices_per_node, pinned=pins.tensor_parallel is not None)
    return choice, [
        *said,
        memory_reason(facts, role.profile, candidate, shared.max_model_length),
        *backend_reasons,
        *kv_dtype_reason(kv_dtype, role.profile),
        *eager_reason(spec, role.profile),
        *budgets.reasons,
        *window_reason(facts, groups_of(facts, role.profile), role.profile, role.request_tokens),
        running_reason(pins, budgets.max_num_seqs, memory, budgets.held, request),
    ]


def _by_prediction(said: list[Reason], sized: Sized, node: int, *, pinned: bool) -> list[Reason]:
    """The reasons of a shape, with what was predicted in the place of what can be said without."""
    if sized.forecast is None:
        return said
    better = {"WithinNode": node_reason(sized.forecast, node)}
    better["AcrossNodes"] = next((with_links(r, sized.forecast) for r in said if r.code == "AcrossNodes"), None)
    if not pinned and sized.candidate.useful:
        better["TensorParallel"] = shape_reason(sized.forecast, sized.looked)
    return [better.get(reason.code) or reason for reason in said]


def _role_plan(spec: InferenceServiceSpec, role: Role, choice: EngineChoice, sized: Sized) -> RolePlan:
    found = sized.among or sized.forecast
    return RolePlan(
        role=role.name,
        accelerator=role.accelerator,
        replicas=1,
        tensor_parallel=choice.candidate.tensor_parallel,
        pipeline_parallel=choice.candidate.pipeline_parallel,
        engine_args=engine_args(spec, choice),
        environment=environment(role.profile, choice.candidate.memory.kv_cache_bytes),
        capacity=figures(found.capacity) if found is not None else None,
        keeps_slos=found is None or found.keeps_promises,
        memory=choice.candidate.memory,
        nodes=choice.candidate.nodes,
    )


def _live(spec: InferenceServiceSpec, sized: Sequence[Sized], choices: list[EngineChoice]) -> LiveSettings:
    """The start of live tuning: the budget matters where prompts are computed, the cap where tokens are made."""
    initial, start = spec.engine.initial, sized[0].budgets.start
    cap = decode_cap(initial, choices[-1].max_num_seqs, sized[-1].budgets.start)
    if sized[-1].decode_cap is not None and not (initial and initial.decode_cap):
        cap = min(cap, sized[-1].decode_cap)
    return LiveSettings(
        token_budget=start,
        decode_cap=cap,
        long_prefill_threshold=(initial.long_prefill_threshold or 0) if initial else 0,
    )
