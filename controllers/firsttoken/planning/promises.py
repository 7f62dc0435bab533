"""The SLOs against what is possible and what is predicted."""

import math
from collections.abc import Sequence

from firsttoken.planning.floors import decode_floor_seconds, prefill_floor_seconds
from firsttoken.planning.forecast import Forecast, Question, describe, milliseconds
from firsttoken.planning.load.demand import RequestShape
from firsttoken.planning.load.goodput import TTFT, Target
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.sizing import Sized
from firsttoken.planning.types import Prediction, Reason


def check_promises(question: Question, sized: Sequence[Sized]) -> None:
    """Refuse what the data sheet rules out, for the widest shape that was looked at. Raises InfeasibleError."""
    if not question.promised:
        return
    for index, target in enumerate(question.promises):
        looked = (sized[0] if target.metric == TTFT else sized[-1]).looked
        floors = [_floor(question, f, target) for f in looked if not f.device.rough]
        floor = min((f for f in floors if f is not None), default=0.0)
        if target.seconds < floor:
            least = f"{math.ceil(floor * 1000)}ms"
            widest = max(f.gpus for f in looked)
            raise InfeasibleError(
                "SLO",
                f"spec.slos[{index}] promises {describe(target)}; {widest} x {looked[-1].device.name} at their "
                f"data-sheet peaks, with nothing else to do, take {milliseconds(floor)}: allow at least {least}, or "
                "use faster GPUs, a smaller or a quantised model",
                {f"spec.slos[{index}].target": least},
            )


def _floor(question: Question, found: Forecast, target: Target) -> float | None:
    """What `target` takes at least, seconds. None: it speaks of no prompt that can come."""
    facts, ranks, shape = question.facts, found.gpus, question.shape
    if target.metric != TTFT:
        return decode_floor_seconds(facts, found.device, found.candidate.tensor_parallel, shape.prompts.p50)
    tokens = _prompt(shape, target)
    if tokens is None:
        return None
    cached = shape.prompt_class(1.0, tokens).cached
    return prefill_floor_seconds(facts, found.device, ranks, tokens, cached)


def _prompt(shape: RequestShape, target: Target) -> int | None:
    """The prompt that the percentile speaks of; in a bucket the shortest one, since more is not known."""
    if target.bucket == "all":
        return max(1, int(shape.prompts.quantile(target.percentile / 100)))
    low = int(target.bucket.rstrip("+").partition("-")[0])
    return low + 1 if low < shape.prompts.longest else None


def promise_reasons(question: Question, prediction: Prediction, forecasts: Sequence[Forecast]) -> tuple[Reason, ...]:
    """What the prediction says of each promise, and how far it may be trusted."""
    near = f"+-{prediction.relative_interval * 100:.0f} %"
    at = f"{prediction.requests_per_second:.3g} requests/s"
    at += (
        " (70 % of what the replicas carry; name yours in spec.workload.requestsPerSecond)"
        if prediction.assumed_rate
        else ""
    )
    said = [
        Reason(
            "Predicted",
            f"at {at}: TTFT P50 {milliseconds(prediction.ttft.p50)}, P95 {milliseconds(prediction.ttft.p95)}, TPOT P95 "
            f"{milliseconds(prediction.tpot.p95)}; step times are {_measured(forecasts)}, {near}",
        )
    ]
    missed = [f.goodput for f in forecasts if f.goodput.rate <= 0 and f.goodput.binding is not None]
    for goodput in missed:
        assert goodput.binding is not None  # noqa: S101 - as filtered
        floor = milliseconds(goodput.floor or 0.0)
        whose = "" if question.promised else ", which is the profile's default and not yours"
        text = f"{describe(goodput.binding)}{whose}: {floor} is predicted even for an idle replica"
        said.append(Reason("SLOMissed", text))
    return tuple(said)


def _measured(forecasts: Sequence[Forecast]) -> str:
    if all(f.device.measured for f in forecasts):
        return "modelled on measurements of this GPU"
    if any(f.device.rough for f in forecasts):
        return "guessed, since the profile names no rates"
    if all(f.device.familiar for f in forecasts):
        return "modelled on measurements of GPUs of the same generation"
    return "modelled on measurements of other GPUs"
