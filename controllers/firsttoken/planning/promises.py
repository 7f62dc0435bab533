"""The SLOs against what is possible and what is predicted."""

import math
from collections.abc import Mapping, Sequence

from firsttoken.api.service_inputs import SLO
from firsttoken.planning.floors import decode_floor_seconds, prefill_floor_seconds
from firsttoken.planning.forecast import ASSUMED_LOAD, Forecast, Question, describe, rate_of_each
from firsttoken.planning.load.demand import RequestShape
from firsttoken.planning.load.goodput import TTFT, Target, at_least, missed_at, missed_when_idle
from firsttoken.planning.refusal import SLO as SLO_CONSTRAINT
from firsttoken.planning.refusal import InfeasibleError
from firsttoken.planning.sizing import Sized
from firsttoken.planning.types import Plan, Prediction, Reason
from firsttoken.planning.words import IDLE, at_rate, count, milliseconds, number
from firsttoken.planning.workload import ResolvedWorkload

SLO_MISSED = "SLOMissed"
PROMISES_BIND = "PromisesBind"
SEARCH = 1e-3  # percentiles are searched for to a tenth of that, relative


def check_promises(question: Question, sized: Sequence[Sized], slos: Sequence[SLO], work: ResolvedWorkload) -> None:
    """Refuse what the data sheet rules out, for the shape that comes nearest to it. Raises InfeasibleError.

    `slos` are the spec's, in the order of the promises. All that are ruled out are named: to change one would not do.
    `work` says whose the lengths are.
    """
    if not question.promised:
        return
    floors: dict[int, float] = {}
    for index, target in enumerate(question.promises):
        looked = (sized[0] if target.metric == TTFT else sized[-1]).looked
        found = [_floor(question, f, target) for f in looked if not f.device.rough]
        floor = min((f for f in found if f is not None), default=0.0)
        if target.seconds < floor:
            floors[index] = floor
    if floors:
        kept = {index: _kept(question, sized, index, floor) for index, floor in floors.items()}
        raise InfeasibleError(SLO_CONSTRAINT, _ruled_out(question, sized, floors, kept, work), _offered(slos, kept))


def _kept(question: Question, sized: Sequence[Sized], index: int, floor: float) -> float:
    """What may be promised instead so that a replica next to idle is predicted to keep it, seconds.

    Of the shape that misses all promises by least, since they have to be kept by one; what is only not ruled out by
    the data sheet, which nothing reaches, would be offered to be missed.
    """
    target = question.promises[index]
    looked = (sized[0] if target.metric == TTFT else sized[-1]).looked
    nearest = min(looked, key=lambda f: (f.goodput.missed_by, f.gpus))
    return max(floor, at_least(nearest.load, target) * (1 + SEARCH))


def _ruled_out(
    question: Question,
    sized: Sequence[Sized],
    floors: Mapping[int, float],
    kept: Mapping[int, float],
    work: ResolvedWorkload,
) -> str:
    """Each promise with what it takes at least, for which prompt, what is predicted to be kept, and the ways out."""
    said = []
    for index, floor in floors.items():
        target = question.promises[index]
        looked = (sized[0] if target.metric == TTFT else sized[-1]).looked
        widest = max(f.gpus for f in looked)
        prompt = _speaks_of(question, work, target)
        said.append(
            f"spec.slos[{index}] promises {describe(target)}; {widest} x {looked[-1].device.name} at their data-sheet "
            f"peaks, with nothing else to do, take {milliseconds(floor)} for {prompt}: less than "
            f"{_duration(floor)} is ruled out, {_duration(kept[index])} is predicted to be kept under little load"
        )
    return f"{'; '.join(said)}: allow that, or use faster GPUs, a smaller or a quantised model"


def _offered(slos: Sequence[SLO], kept: Mapping[int, float]) -> dict[str, object]:
    """What would have to be promised instead: the one target, or the whole list where several are ruled out."""
    if len(kept) == 1:
        ((index, seconds),) = kept.items()
        return {f"spec.slos[{index}].target": _duration(seconds)}
    wire = [slo.wire() for slo in slos]
    return {"spec.slos": [{**w, "target": _duration(kept[i])} if i in kept else w for i, w in enumerate(wire)]}


def _duration(seconds: float) -> str:
    return f"{math.ceil(seconds * 1000)}ms"


def _floor(question: Question, found: Forecast, target: Target) -> float | None:
    """What `target` takes at least, seconds. None: it speaks of no prompt that can come."""
    facts, ranks, shape = question.facts, found.gpus, question.shape
    tokens = _prompt(shape, target)
    if tokens is None:
        return None
    if target.metric != TTFT:
        return decode_floor_seconds(facts, found.device, found.candidate.tensor_parallel, tokens, found.kv_cache_dtype)
    cached = shape.prompt_class(1.0, tokens).cached
    return prefill_floor_seconds(facts, found.device, ranks, tokens, cached)


def _prompt(shape: RequestShape, target: Target) -> int | None:
    """The prompt that the percentile speaks of; in a bucket the shortest one, since more is not known.

    TPOT of all requests: the median prompt, whatever the percentile, since a long prompt may have a short output.
    """
    if target.bucket == "all":
        share = target.percentile / 100 if target.metric == TTFT else 0.5
        return max(1, round(shape.prompts.quantile(share)))
    low = int(target.bucket.rstrip("+").partition("-")[0])
    return low + 1 if low < shape.prompts.longest else None


def _speaks_of(question: Question, work: ResolvedWorkload, target: Target) -> str:
    """The prompt that a promise is held against, and whose its length is: named in the spec, or the profile's."""
    tokens = _prompt(question.shape, target) or 0
    percentile = target.percentile if target.metric == TTFT else 50
    which = f"P{percentile}{work.assumed(output=False)}" if target.bucket == "all" else "the shortest of the bucket"
    if target.metric != TTFT:
        return f"a token after a prompt of {tokens} tokens ({which})"
    cached = question.shape.prompt_class(1.0, tokens).cached
    source = "" if work.shared_prefix_given else f" (assumed for profile {work.profile.value})"
    return f"a prompt of {tokens} tokens ({which}), {f'{cached} of them cached{source}' if cached else 'none cached'}"


def promise_reasons(
    prediction: Prediction, forecasts: Sequence[Forecast], replicas: Sequence[int], planned: Sequence[Forecast]
) -> tuple[Reason, ...]:
    """What the prediction says of each promise, and how far it may be trusted. `replicas` of each forecast's role;
    `planned`: the forecasts whose capacities the plan names.
    """
    near = f"+-{prediction.ttft_interval * 100:.0f} % in TTFT and +-{prediction.tpot_interval * 100:.0f} % in TPOT"
    at = at_rate(prediction.requests_per_second)
    if prediction.requests_per_second > 0:
        at += _of_which(prediction, replicas)
    text = (
        f"{at}: TTFT P50 {milliseconds(prediction.ttft.p50)}, P95 {milliseconds(prediction.ttft.p95)}, TPOT P95 "
        f"{milliseconds(prediction.tpot.p95)}; step times are {_known_from(forecasts)}, {near}{_calibrated(prediction)}"
        f"{_impossible(forecasts)}"
    )
    return Reason("Predicted", text), *_binding(planned, replicas), *_missed(prediction, forecasts, replicas)


def _of_which(prediction: Prediction, replicas: Sequence[int]) -> str:
    """Whose rate it is, and of how many replicas."""
    part = f"{ASSUMED_LOAD * 100:.0f} % of what"
    if not min(replicas):
        one = "one replica" if len(replicas) == 1 else "one replica of each role"
        what = f"{part} {one} would carry" if prediction.assumed_rate else f"as if {one} were there"
        return f" (no replica is to run; {what})"
    yours = "name yours in spec.workload.requestsPerSecond"
    return f" ({part} the replicas carry; {yours})" if prediction.assumed_rate else ""


def _binding(forecasts: Sequence[Forecast], replicas: Sequence[int]) -> tuple[Reason, ...]:
    """The promise that ends the rate of the role that carries least, where it is not full before."""
    found, _ = min(zip(forecasts, replicas, strict=True), key=lambda pair: pair[0].capacity * max(1, pair[1]))
    goodput = found.goodput
    if goodput.binding is None or not found.keeps_promises:
        return ()
    used = found.load.at(goodput.rate).steady.utilization
    text = (
        f"{describe(goodput.binding)} ends the rate of a {found.role} replica at {number(found.capacity)} requests/s, "
        f"with {used * 100:.0f} % of what fills first in use ({goodput.binds})"
    )
    return (Reason(PROMISES_BIND, text),)


def _missed(prediction: Prediction, forecasts: Sequence[Forecast], replicas: Sequence[int]) -> list[Reason]:
    """Every promise that is predicted to be missed: by an idle replica, else at the rate of the prediction."""
    said = []
    for found, number_of in zip(forecasts, replicas, strict=True):
        idle = missed_when_idle(found.load, found.promises)
        texts = [f"{describe(t)}: {milliseconds(s)} is predicted even {IDLE}" for t, s in idle]
        rate = prediction.requests_per_second
        loaded = missed_at(found.load, found.promises, rate_of_each(rate, number_of)) if not idle else ()
        texts += [f"{describe(t)}: {milliseconds(s)} is predicted {at_rate(rate)}" for t, s in loaded]
        said += [Reason(SLO_MISSED, text) for text in texts]
    return said


def missed(plan: Plan) -> tuple[str, ...]:
    """What an answer in one line must not leave out: each promise that is predicted to be missed, and by what."""
    return tuple(reason.message for reason in plan.reasons if reason.code == SLO_MISSED)


def _known_from(forecasts: Sequence[Forecast]) -> str:
    """What the step times rest on, by role where they are of several devices."""
    if len({f.device for f in forecasts}) > 1:
        return ", ".join(f"{_known_from([f])} for {f.role} ({f.device.name})" for f in forecasts)
    if any(f.device.rough for f in forecasts):
        return "guessed, since the profile names no rates"
    if all(f.device.measured for f in forecasts):
        text = "modelled on measurements of this GPU"
    elif all(f.device.familiar for f in forecasts):
        text = "modelled on measurements of GPUs of the same generation"
    else:
        text = "modelled on measurements of other GPUs"
    without = dict.fromkeys(what for f in forecasts for what in f.load.curves.model.unmeasured)
    return f"{text}, none of them of {' or '.join(without)}" if without else text


def _calibrated(prediction: Prediction) -> str:
    """Which stages follow the live fleet (DESIGN §5), and by how much."""
    said = [
        f"{s.stage} x{number(s.ratio)} +-{s.band * 100:.0f} % "
        f"({count(s.requests, 'request')}, tensor parallel {s.tensor_parallel})"
        for s in prediction.calibrated
    ]
    return f"; calibrated by what this fleet was measured at: {', '.join(said)}" if said else ""


def _impossible(forecasts: Sequence[Forecast]) -> str:
    said = ", ".join(what for f in forecasts for what in f.impossible)
    return f"; measured times that no such GPU can reach are left out: {said}" if said else ""
