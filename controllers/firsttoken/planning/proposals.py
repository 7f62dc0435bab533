"""What may be better and needs a proof first: prefill and decode apart (M4.5), quantised weights or KV (M4.1, M4.4)."""

from dataclasses import replace

from firsttoken.api.service_inputs import LayoutMode
from firsttoken.planning.forecast import (
    ASSUMED_LOAD,
    TPOT_P95,
    TTFT_P95,
    Forecast,
    figures,
    forecast,
    handover_to,
    milliseconds,
)
from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.goodput import Goodput, value
from firsttoken.planning.load.layouts import RoleGoodput, best_split, compare
from firsttoken.planning.load.steady import KV_MEMORY
from firsttoken.planning.roles import Role
from firsttoken.planning.sizing import Forecasting, Sized
from firsttoken.planning.types import Reason

# Tokens that come this many times faster are worth a split even where it carries no more requests (M7: long prompts
# with short outputs): every long prompt would otherwise hold up everybody's streams.
STEADIER = 2.0
NEEDS_PROOF = "a proposal: it changes numerics, so it takes an evaluation (spec.evaluation) and a canary"


def proposals(forecasting: Forecasting, roles: tuple[Role, ...], sized: tuple[Sized, ...]) -> tuple[Reason, ...]:
    """Everything worth trying next, each with what it is predicted to bring."""
    found: list[Reason] = []
    if len(roles) == 1 and sized[0].forecast is not None and not sized[0].forecast.device.cpu:
        found += _split(forecasting, roles[0], sized[0], sized[0].forecast)
    last = sized[-1].forecast
    if last is not None and not last.device.cpu:
        found += _fp8_weights(forecasting, roles[-1], last)
        found += _fp8_kv(last)
    return tuple(found)


def _split(forecasting: Forecasting, role: Role, sized: Sized, serve: Forecast) -> list[Reason]:
    """Prefill and decode apart, on the same GPUs and in the same shape."""
    spec, limit = forecasting.spec, forecasting.spec.accelerator.max_count
    if spec.layout.mode != LayoutMode.AUTO or sized.candidate.pipeline_parallel > 1:
        return []
    if limit is not None and limit < 2 * serve.gpus:
        return []
    limits = serve.load.engine
    # Without prompts in its steps a decode engine needs no budget, and a prefill engine keeps vLLM's whole one.
    decode = forecasting.ask(replace(role, name="decode"), sized.budgets, sized.candidate, limits=limits)
    wide = EngineLimits(sized.budgets.ceiling, limits.max_running, limits.kv_tokens)
    prefill = forecasting.ask(
        replace(role, name="prefill"), sized.budgets, sized.candidate, limits=wide, handover=handover_to(decode)
    )
    split = best_split(_role(prefill), _role(decode), limit)
    if split is None:
        return []
    interval = serve.interval
    found = compare(serve.goodput, serve.gpus, split, limit, interval)
    if found.gain is None:
        return []
    gpus = limit or split.gpus
    rate = found.colocated * ASSUMED_LOAD
    each = rate / max(1, gpus // serve.gpus)
    together = _answers(serve, serve, each, each)
    apart = _answers(prefill, decode, rate / split.prefill, rate / split.decode)
    text = (
        f"{split.prefill} prefill and {split.decode} decode replicas of the same shape would carry "
        f"{found.disaggregated:.3g} requests/s within the SLOs on {gpus} GPUs, colocated {found.colocated:.3g} "
        f"({found.gain * 100:+.0f} %); at {rate:.3g} requests/s TTFT P95 would be {milliseconds(apart[0])} instead of "
        f"{milliseconds(together[0])}, TPOT P95 {milliseconds(apart[1])} instead of {milliseconds(together[1])}"
    )
    steadier = together[1] / apart[1] >= STEADIER and found.gain > -interval
    if not found.clear and not steadier:
        return [Reason("NoDisaggregation", f"{text}: too little, the model may be off by {interval * 100:.0f} %")]
    ask = "confirm the imbalance by measurements, then set spec.layout.mode: Disaggregated"
    return [Reason("DisaggregationProposal", f"{text}; {ask}")]


def _role(found: Forecast) -> RoleGoodput:
    return RoleGoodput(found.goodput.rate, found.gpus)


def _answers(first: Forecast, last: Forecast, prompts: float, tokens: float) -> tuple[float, float]:
    """TTFT and TPOT at P95 when a replica of the one has so many requests a second, and one of the other."""
    return value(first.load.at(prompts), TTFT_P95), value(last.load.at(tokens), TPOT_P95)


def _fp8_weights(forecasting: Forecasting, role: Role, last: Forecast) -> list[Reason]:
    question = forecasting.question
    if question.facts.quantization or last.device.fp8_flops is None:
        return []
    facts = replace(question.facts, quantization="fp8", weight_bytes_per_parameter=1.0)
    other = forecast(
        replace(question, facts=facts),
        last.role,
        (role.accelerator, role.profile),
        last.candidate,
        last.load.engine,
        handover=last.load.handover,
    )
    return _gain("Fp8WeightsProposal", "FP8 weights", last.goodput, other.goodput)


def _fp8_kv(last: Forecast) -> list[Reason]:
    """Only where KV memory is what binds: a shorter KV is slower below some thousand tokens of context."""
    if last.goodput.binds != KV_MEMORY or (last.device.generation, last.device.fp8_flops) == ("ampere", None):
        return []
    text = f"KV memory binds: an FP8 KV cache would hold twice the tokens; {NEEDS_PROOF}"
    return [Reason("Fp8KVProposal", text)]


def _gain(code: str, what: str, now: Goodput, then: Goodput) -> list[Reason]:
    if now.rate <= 0 or then.rate < now.rate * 1.1:
        return []
    text = f"{what} would carry {figures(then.rate):.3g} requests/s a replica instead of {figures(now.rate):.3g}"
    return [Reason(code, f"{text}; {NEEDS_PROOF}")]
