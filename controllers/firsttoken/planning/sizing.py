"""How large a role's replica is: what fits, then the fewest GPUs, or what is predicted to serve best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from firsttoken.api.engine import EnginePins
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.choice import Limits, choose_shape
from firsttoken.planning.forecast import Forecast, Question, forecast, handover_to
from firsttoken.planning.lengths import Lengths
from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.responses import Handover
from firsttoken.planning.memory import DEFAULT_UTILIZATION, EngineLoad
from firsttoken.planning.parallelism import Candidate, candidates, choose
from firsttoken.planning.replicas import least_replicas
from firsttoken.planning.roles import Role
from firsttoken.planning.running import consistent_memory, held_by
from firsttoken.planning.settings import Budgets, choose_budgets
from firsttoken.planning.token_budgets import allowed_budgets, best_budget, near
from firsttoken.planning.too_big import too_big
from firsttoken.planning.types import MemoryBudget, ModelFacts, Reason


@dataclass(frozen=True)
class Sized:
    """A role's replica and its token budgets; with a forecast, what was predicted of it and of the other shapes."""

    budgets: Budgets
    candidate: Candidate
    forecast: Forecast | None = None
    looked: tuple[Forecast, ...] = ()
    among: Forecast | None = None  # the same behind the router of as many as will run
    decode_cap: int | None = None  # below max-num-seqs, where a promise asks for it


@dataclass(frozen=True)
class Sizes:
    """What was decided of a whole layout before its engines are described."""

    lengths: Lengths
    roles: tuple[Role, ...]
    dtype: str | None
    reasons: tuple[Reason, ...]  # about numbers
    max_model_length: int
    sized: tuple[Sized, ...]

    @property
    def forecasts(self) -> tuple[Forecast, ...]:
        """Of the chosen shapes, among their like; empty without predictions."""
        return tuple(s.among or s.forecast for s in self.sized if s.forecast is not None)


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
    shapes: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # of roles whose replica is there already

    def limits(self, taken: int = 0) -> Limits:
        """What the replicas of a role are counted against. `taken`: GPUs of the other role."""
        scaling, gpus = self.spec.scaling, self.spec.accelerator.max_count
        return Limits(
            rate=self.question.rate,
            gpus=None if gpus is None else max(1, gpus - taken),
            fixed=scaling.replicas if scaling.mode == "Planned" else None,
            least=max(1, scaling.min_replicas or 0),
            most=scaling.max_replicas,
        )

    def __call__(
        self, roles: tuple[Role, ...], budgets: Sequence[Budgets], options: Sequence[list[Candidate]], limit: int | None
    ) -> tuple[Sized, ...] | None:
        options = [self._standing(r.name, o) for r, o in zip(roles, options, strict=True)]
        if fewest(roles, budgets, options, limit) is None:
            return None
        if len(roles) == 1:
            room = [c for c in options[0] if limit is None or c.gpus <= limit]
            return (self._size(roles[0], budgets[0], room, self.limits()),)
        return self._split(roles, budgets, options, limit)

    def _standing(self, role: str, options: list[Candidate]) -> list[Candidate]:
        shape = self.shapes.get(role)
        return [c for c in options if shape is None or (c.tensor_parallel, c.pipeline_parallel) == shape]

    def _split(
        self, roles: tuple[Role, ...], budgets: Sequence[Budgets], options: Sequence[list[Candidate]], limit: int | None
    ) -> tuple[Sized, ...]:
        """Decode first, with what the smallest prefill replicas leave; prefill with what decode leaves."""
        least = min(c.gpus for c in options[0])
        room = [c for c in options[1] if limit is None or c.gpus + least <= limit]
        decode = self._size(roles[1], budgets[1], room, _for_each(self.limits(taken=least)))
        assert decode.forecast is not None  # noqa: S101 - as sized here
        room = [c for c in options[0] if limit is None or c.gpus + decode.candidate.gpus <= limit]
        taken = self.limits(taken=least).count(decode.forecast) * decode.candidate.gpus if self.question.rate else least
        limits = _for_each(self.limits(taken=taken))
        return self._size(roles[0], budgets[0], room, limits, handover_to(decode.forecast)), decode

    def _size(
        self, role: Role, budgets: Budgets, room: list[Candidate], limits: Limits, handover: Handover | None = None
    ) -> Sized:
        allowed = allowed_budgets(self.spec, role.name, budgets)
        before: list[Forecast] = []

        def ask(candidate: Candidate) -> Forecast:
            tried: Sequence[int] = allowed
            expected = 0.0
            if before:  # shapes of one model differ little in what suits them
                last = before[-1]
                tried = sorted({*near(allowed, last.load.engine.token_budget), budgets.start})
                expected = last.per_gpu * candidate.gpus
            found = self.ask(role, budgets, candidate, handover=handover, near=expected)
            before.append(best_budget(found, tried, self.running(role, candidate)))
            return before[-1]

        chosen, looked = choose_shape(room, ask, limits, self.question)
        return Sized(budgets, chosen.candidate, chosen, looked)

    def running(self, role: Role, candidate: Candidate) -> int:
        """Requests that run at once at most: what fits, or the decode cap that the spec begins with."""
        initial = self.spec.engine.initial
        cap = initial.decode_cap if initial and role.name != "prefill" else None
        return min(candidate.memory.max_num_seqs, cap) if cap else candidate.memory.max_num_seqs

    def ask(
        self,
        role: Role,
        budgets: Budgets,
        candidate: Candidate,
        *,
        limits: EngineLimits | None = None,
        handover: Handover | None = None,
        near: float = 0.0,
    ) -> Forecast:
        """The forecast of one shape, by default with the limits it would be started with. `near`: requests a second
        that it is expected to carry.
        """
        pins = self.spec.engine.pins or EnginePins()
        if limits is None:
            seqs = self.running(role, candidate)
            limits = EngineLimits(budgets.start, min(seqs, budgets.start), max(1, candidate.memory.kv_cache_tokens))
        return forecast(
            self.question,
            role.name,
            (role.accelerator, role.profile),
            candidate,
            limits,
            kv_cache_dtype=pins.kv_cache_dtype or "auto",
            handover=handover,
            near=near,
        )


def _for_each(limits: Limits) -> Limits:
    """Of one role of two. Without a rate the GPUs are shared out afterwards, in the proportion that carries most, so
    what counts is what a GPU carries.
    """
    return limits if limits.rate is not None else replace(limits, gpus=None, fixed=None)


def size(
    spec: InferenceServiceSpec, facts: ModelFacts, roles: tuple[Role, ...], lengths: Lengths, chooser: Chooser
) -> tuple[int, tuple[Sized, ...]]:
    """The first maximum length at which every role fits, with the chosen shapes. A shorter one inside a node goes
    before a longer one over several. Raises InfeasibleError.
    """
    limit = spec.accelerator.max_count
    per_set = limit // least_replicas(spec) if limit is not None else None
    over_nodes: tuple[int, tuple[Sized, ...]] | None = None
    for length in lengths.options:
        budgets = [_budgets(spec, facts, r, lengths, length) for r in roles]
        options = [_fitting(spec, facts, r, b, length) for r, b in zip(roles, budgets, strict=True)]
        sized = chooser(roles, budgets, options, per_set)
        if sized is not None and all(s.candidate.nodes == 1 for s in sized):
            return length, sized
        if sized is not None:
            over_nodes = over_nodes or (length, sized)
    if over_nodes is not None:
        return over_nodes
    # Whoever names no number of running requests is refused where not even one has room.
    least = [b if (spec.engine.pins or EnginePins()).max_num_seqs else replace(b, max_num_seqs=1) for b in budgets]
    loads = [engine_load(spec, r, b, length) for r, b in zip(roles, least, strict=True)]
    raise too_big(spec, facts, [(r.name, r.profile, load) for r, load in zip(roles, loads, strict=True)])


def _budgets(spec: InferenceServiceSpec, facts: ModelFacts, role: Role, lengths: Lengths, length: int) -> Budgets:
    held = held_by(spec, facts, role, work=lengths.workload, max_model_length=length)
    return replace(choose_budgets(spec, role.profile, length), held=held)


def engine_load(
    spec: InferenceServiceSpec, role: Role, budgets: Budgets, length: int, kv_cache_dtype: str | None = None
) -> EngineLoad:
    """What decides the memory of a role's replica, with the most requests that may run. By default in the pinned KV
    format; `length`: of the longest request, tokens.
    """
    pins = spec.engine.pins or EnginePins()
    return EngineLoad(
        token_budget=budgets.ceiling,
        max_num_seqs=budgets.max_num_seqs,
        max_model_length=length,
        request_tokens=role.request_tokens,
        utilization=pins.gpu_memory_utilization or DEFAULT_UTILIZATION,
        kv_cache_dtype=kv_cache_dtype or pins.kv_cache_dtype or "auto",
    )


def memory_of(
    spec: InferenceServiceSpec,
    facts: ModelFacts,
    role: Role,
    budgets: Budgets,
    *,
    shape: tuple[int, int],
    load: EngineLoad,
) -> MemoryBudget:
    """Memory of one shape (tensor, pipeline), counted for the requests that will run in it."""
    pinned = (spec.engine.pins or EnginePins()).max_num_seqs is not None
    return consistent_memory(facts, role.profile, shape, load, budgets.held, pinned=pinned)


def _fitting(
    spec: InferenceServiceSpec, facts: ModelFacts, role: Role, budgets: Budgets, length: int
) -> list[Candidate]:
    load, pins = engine_load(spec, role, budgets, length), spec.engine.pins or EnginePins()

    def budget(tensor: int, stages: int) -> MemoryBudget:
        return memory_of(spec, facts, role, budgets, shape=(tensor, stages), load=load)

    return candidates(facts, role.profile, pins, role.name, budget=budget)
