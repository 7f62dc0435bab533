"""What may be better and needs a proof first: a split (disaggregation.py), quantised weights or KV (M4.1, M4.4)."""

from dataclasses import dataclass, replace
from functools import cached_property

from firsttoken.api.engine import EnginePins
from firsttoken.planning.accelerators import can_serve_fp8_weights
from firsttoken.planning.attention import choose_backend, loses_flash
from firsttoken.planning.calibration import Calibration, Ratio
from firsttoken.planning.disaggregation import Apart, split_proposal
from firsttoken.planning.forecast import Forecast, figures, forecast, measured_kind
from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.layouts import beyond
from firsttoken.planning.parallelism import Candidate
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.roles import Role
from firsttoken.planning.sizing import Forecasting, Sized, engine_load, memory_of
from firsttoken.planning.token_budgets import allowed_budgets, best_budget, near, with_budget
from firsttoken.planning.types import ModelFacts, Reason
from firsttoken.planning.words import number

NEEDS_PROOF = "a proposal: it changes numerics, so it takes an evaluation (spec.evaluation) and a canary"


def proposals(
    forecasting: Forecasting, roles: tuple[Role, ...], sized: tuple[Sized, ...], replicas: int, apart: Apart
) -> tuple[Reason, ...]:
    """Everything worth trying next, each with what it is predicted to bring. `replicas` of the plan's first role;
    `apart`: see split_proposal.
    """
    found: list[Reason] = []
    if len(roles) == 1 and sized[0].forecast is not None and not sized[0].forecast.device.cpu:
        found += split_proposal(forecasting, roles[0], sized[0], replicas, apart)
    last = sized[-1].forecast
    if last is not None and not last.device.cpu:
        found += _fp8_weights(forecasting, roles, sized[-1], last)
        found += _fp8_kv(forecasting, roles, sized[-1], last)
    return tuple(found)


def _fp8_weights(forecasting: Forecasting, roles: tuple[Role, ...], sized: Sized, last: Forecast) -> list[Reason]:
    question = forecasting.question
    able = last.device.fp8_flops is not None and all(can_serve_fp8_weights(r.profile) for r in roles)
    if question.facts.quantization or not able:
        return []
    facts = replace(question.facts, quantization="fp8", weight_bytes_per_parameter=1.0, activations="fp8")
    others = _variants(forecasting, roles[-1], sized, last, facts=facts, kv_cache_dtype=last.kv_cache_dtype)
    return _gain("Fp8WeightsProposal", "FP8 weights (spec.model.quantization: fp8)", last, others)


def _fp8_kv(forecasting: Forecasting, roles: tuple[Role, ...], sized: Sized, last: Forecast) -> list[Reason]:
    """Where an engine holds and serves more with KV of one byte. Who pinned its type has decided already."""
    pins, facts = forecasting.spec.engine.pins or EnginePins(), forecasting.question.facts
    if pins.kv_cache_dtype is not None or not all(_reads_fp8_kv(facts, r, pins.attention_backend) for r in roles):
        return []
    others = _variants(forecasting, roles[-1], sized, last, facts=facts, kv_cache_dtype="fp8")
    return _gain("Fp8KVProposal", "an FP8 KV cache (spec.engine.pins.kvCacheDtype: fp8)", last, others)


def _reads_fp8_kv(facts: ModelFacts, role: Role, backend: str | None) -> bool:
    if loses_flash(facts, role.profile, "fp8"):
        return False
    try:
        choose_backend(backend, facts, role.profile, "fp8")
    except InfeasibleError:
        return False
    return True


@dataclass(frozen=True)
class Variants:
    """A replica in other number formats, and the token budgets it may have: shorter steps allow another one."""

    found: Forecast
    budgets: tuple[int, ...]
    running: int  # requests that run at once at most

    def any_keeps(self, rate: float) -> bool:
        """Whether one of them keeps the promises at that rate."""
        return any(with_budget(self.found, b, self.running, rate).keeps(rate) for b in self.budgets)

    @cached_property
    def best(self) -> Forecast:
        """The one that carries most."""
        return best_budget(self.found, self.budgets, self.running)


def _variants(
    forecasting: Forecasting, role: Role, sized: Sized, last: Forecast, *, facts: ModelFacts, kv_cache_dtype: str
) -> Variants:
    """The same replica in other number formats, with what its memory holds then. Today's budget is the best of today's
    formats, so it and its neighbours are tried.
    """
    budgets, shape = sized.budgets, last.candidate
    spec, longest = forecasting.spec, forecasting.question.shape.prompts.longest + 1
    load = engine_load(spec, role, budgets, longest, kv_cache_dtype)
    split = (shape.tensor_parallel, shape.pipeline_parallel)
    memory = memory_of(spec, facts, role, budgets, shape=split, load=load)
    candidate = Candidate(shape.tensor_parallel, shape.pipeline_parallel, memory)
    budget, running = last.load.engine.token_budget, forecasting.running(role, candidate)
    if sized.decode_cap is not None:
        running = min(running, last.load.engine.max_running)  # what caps it is no matter of memory
    calibration = _carried_over(last, role.accelerator, facts, kv_cache_dtype)
    found = forecast(
        replace(forecasting.question, facts=facts, calibration=calibration),
        last.role,
        (role.accelerator, role.profile),
        candidate,
        EngineLimits(budget, min(running, budget), max(1, memory.kv_cache_tokens)),
        kv_cache_dtype=kv_cache_dtype,
        handover=last.load.handover,
        near=last.goodput.rate,
    )
    return Variants(found, near(allowed_budgets(forecasting.spec, role.name, budgets), budget), running)


def _carried_over(last: Forecast, accelerator: str, facts: ModelFacts, kv_cache_dtype: str) -> Calibration:
    """What the live fleet has shown of today's formats, taken to hold for others: measured times against those of a
    data sheet would be a gain, or a loss, of the model's error.
    """
    kind = measured_kind(facts, accelerator, last.candidate, kv_cache_dtype)
    return Calibration(
        {replace(kind, stage=c.stage): Ratio(c.ratio, c.band, c.requests, c.tensor_parallel) for c in last.calibrated}
    )


def _gain(code: str, what: str, last: Forecast, others: Variants) -> list[Reason]:
    """Compared at their capacity, or, where today's formats keep the promises at no rate, whether the others do.

    That capacity is only looked for where the others keep the promises at a rate which would be a gain.
    """
    now, off = last.goodput.rate, max(last.interval, others.found.interval)
    if now and not others.any_keeps(now * (1 + off)):
        return []
    other, then = others.best, others.best.goodput.rate
    if not beyond(then, now, off):
        return []
    held = f"KV for {other.load.engine.kv_tokens} tokens instead of {last.load.engine.kv_tokens}"
    rates = f"{number(figures(then))} requests/s a replica instead of {number(figures(now))} (each alone)"
    if not now:
        rates = (
            f"{number(figures(then))} requests/s a replica (alone) within the SLOs, of which one is missed even when "
            "idle now"
        )
    # Kernels of other formats may be unmeasured on this device where today's are measured.
    sure = f", more than step times may be off (+-{off * 100:.0f} %)"
    return [Reason(code, f"{what} would hold {held} and carry {rates}{sure}; {NEEDS_PROOF}")]
