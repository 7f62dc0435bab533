"""How large a role's replica is: what fits, then the fewest GPUs, or what is predicted to serve best."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from firsttoken.api.engine import EnginePins
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.choice import Limits, choose_shape
from firsttoken.planning.explain import too_big
from firsttoken.planning.forecast import Forecast, Question, forecast, handover_to
from firsttoken.planning.lengths import Lengths
from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.responses import Handover
from firsttoken.planning.memory import DEFAULT_UTILIZATION, EngineLoad, memory_budget
from firsttoken.planning.parallelism import Candidate, candidates, choose
from firsttoken.planning.replicas import least_replicas
from firsttoken.planning.roles import Role
from firsttoken.planning.settings import Budgets, choose_budgets, running_requests
from firsttoken.planning.types import MemoryBudget, ModelFacts


@dataclass(frozen=True)
class Sized:
    """A role's replica and its token budgets; with a forecast, what was predicted of it and of the other shapes."""

    budgets: Budgets
    candidate: Candidate
    forecast: Forecast | None = None
    looked: tuple[Forecast, ...] = ()
    decode_cap: int | None = None  # below max-num-seqs, where a promise asks for it


class Chooser(Protocol):
    """Picks one candidate a role, together within `limit` GPUs; None if nothing is."""

    def __call__(
        self, roles: tuple[Role, ...], budgets: Sequence[Budgets], options: Sequence[list[Candidate]], limit: int | None
    ) -> tuple[Sized, ...] | None: ...


def fewest(
    roles: tuple[Role, ...], budgets: Sequence[Budgets], options: Sequence[list[Candidate]], limit: int | None
) -> tuple[Sized, ...] | None:
    """Without predictions: enough to know whether something fits."""
    del roles
    chosen = choose(options, limit)
    return None if chosen is None else tuple(Sized(b, c) for b, c in zip(budgets, chosen, strict=True))


@dataclass(frozen=True)
class Forecasting:
    """By what is predicted (choice.py), decode before prefill: the hand-over ends there."""

    spec: InferenceServiceSpec
    question: Question

    @property
    def limits(self) -> Limits:
        """What the replicas of a role are counted against."""
        scaling = self.spec.scaling
        fixed = scaling.replicas if scaling.mode == "Planned" else None
        return Limits(self.question.rate, self.spec.accelerator.max_count, fixed, scaling.max_replicas)

    def __call__(
        self, roles: tuple[Role, ...], budgets: Sequence[Budgets], options: Sequence[list[Candidate]], limit: int | None
    ) -> tuple[Sized, ...] | None:
        if fewest(roles, budgets, options, limit) is None:
            return None
        found: dict[str, Sized] = {}
        for index in reversed(range(len(roles))):
            rest = sum(min(c.gpus for c in options[i]) for i in range(index))
            taken = sum(s.candidate.gpus for s in found.values())
            room = [c for c in options[index] if limit is None or c.gpus + rest + taken <= limit]
            found[roles[index].name] = self._size(roles[index], budgets[index], room, found.get("decode"))
        return tuple(found[role.name] for role in roles)

    def _size(self, role: Role, budgets: Budgets, room: list[Candidate], decode: Sized | None) -> Sized:
        handover = handover_to(decode.forecast) if decode is not None and decode.forecast is not None else None
        limits = self.limits
        if decode is not None and limits.gpus is not None:
            limits = replace(limits, gpus=max(1, limits.gpus - decode.candidate.gpus))
        chosen, looked = choose_shape(
            room, lambda c: self.ask(role, budgets, c, handover=handover), limits, self.question
        )
        return Sized(budgets, chosen.candidate, chosen, looked)

    def ask(
        self,
        role: Role,
        budgets: Budgets,
        candidate: Candidate,
        *,
        limits: EngineLimits | None = None,
        handover: Handover | None = None,
    ) -> Forecast:
        """The forecast of one shape, by default with the limits it would be started with."""
        pins = self.spec.engine.pins or EnginePins()
        if limits is None:
            seqs, _ = running_requests(
                pins, budgets.max_num_seqs, candidate.memory.max_concurrent_requests, role.request_tokens, role.request
            )
            limits = EngineLimits(budgets.start, min(seqs, budgets.start), max(1, candidate.memory.kv_cache_tokens))
        kv = pins.kv_cache_dtype or "auto"
        return forecast(
            self.question,
            role.name,
            (role.accelerator, role.profile),
            candidate,
            limits,
            kv_cache_dtype=kv,
            handover=handover,
        )


def size(
    spec: InferenceServiceSpec, facts: ModelFacts, roles: tuple[Role, ...], lengths: Lengths, chooser: Chooser
) -> tuple[int, tuple[Sized, ...]]:
    """The first maximum length at which every role fits, with the chosen shapes. Raises InfeasibleError."""
    limit = spec.accelerator.max_count
    per_set = limit // least_replicas(spec) if limit is not None else None
    for length in lengths.options:
        budgets = [choose_budgets(spec, r.profile, length) for r in roles]
        options = [_fitting(spec, facts, r, b, length) for r, b in zip(roles, budgets, strict=True)]
        sized = chooser(roles, budgets, options, per_set)
        if sized is not None:
            return length, sized
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
