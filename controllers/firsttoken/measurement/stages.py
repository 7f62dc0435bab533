"""Measured over predicted seconds of a stage: the model is asked about what was measured, not about what was planned.

Prefill: the mean over requests of the prefill stage, over what a replay of the measured mix says (replay.py). Decode:
what is left of the mean TPOT without the steps that computed prompts, over the model's steps of decodes alone. How
prompts meet in steps depends on how long steps are, so the replay is repeated with the ratios that it gave.
"""

import math
from dataclasses import dataclass

from firsttoken.measurement.blocks import Window
from firsttoken.measurement.composition import DECODE, PREFILL, Composition, composition, is_bucket
from firsttoken.measurement.replay import Replayed, replay
from firsttoken.measurement.step_curve import step_curve
from firsttoken.planning.timing.step import Decodes, StepModel

LEAST_REQUESTS = 100
LEAST_BLOCKS = 3
MOST_PREEMPTED = 0.05  # a share of the requests: their prompts are computed twice
MOST_STEPS = 500  # that a prompt takes: more is no engine's budget
MOST_CHANGE = 1.15  # of the engines by their scrapes, of which a block has one more or less
TOKENS_AGREE = 0.25  # relative, of prompt tokens by steps and by requests
# Relative, of measured and replayed steps for each prompt, beside the chance of so many requests. Of the tests' engines
# at random arrivals they were 0.96 to 1.03, with prompts in pairs 0.55 to 0.98, in fives 0.25 to 0.94.
STEPS_AGREE = 0.03
# Of TPOT, the time in steps without prompts: with less of it the ratio of decode is mostly the error of the rest.
LEAST_ALONE = 0.45
# Relative half widths beside the scatter of the blocks: what a replay of means is off by. tests/measurement holds that
# the bands cover the truth of simulated engines.
METHOD_BAND, MIXED_BAND = 0.06, 0.06
SETTLED, ROUNDS = 0.02, 6
RANGE = (0.2, 5.0)  # ratios that are tried
# Two-sided 90 % points of Student's distribution by degrees of freedom.
_STUDENT = {2: 2.92, 3: 2.35, 4: 2.13, 5: 2.02, 6: 1.94, 7: 1.89, 8: 1.86, 9: 1.83}


@dataclass(frozen=True)
class StageRatio:
    """Measured over predicted seconds of a stage, the half width of its 90 % band (relative), and of how many."""

    stage: str  # prefill | decode
    value: float
    band: float
    requests: int


@dataclass(frozen=True)
class NotMeasured:
    """Why a window says nothing of a stage: a constant for programs, a sentence for people."""

    stage: str  # prefill | decode, or "" for both
    code: str
    message: str


def measured(window: Window, model: StepModel, stages: tuple[str, ...]) -> list[StageRatio | NotMeasured]:
    """A ratio for each of the role's `stages`, or why there is none. `model`: unscaled, as the engines run."""
    why = unusable(window) or _not_modelled(window, model)
    if why is not None:
        return [why]
    found = composition(window)
    if PREFILL not in stages:
        return [_decodes_only(window, found, model)]
    why = _no_prefill(found)
    if why is not None:
        return [why]
    return _solved(window, found, model, with_decode=DECODE in stages)


def unusable(window: Window) -> NotMeasured | None:
    """What rules a window out, whatever the model; None: nothing does."""
    if len(window.blocks) < LEAST_BLOCKS or any(not block for block in window.blocks):
        return NotMeasured("", "MetricsMissing", "part of the window has no measurements")
    if window.unsound:
        return NotMeasured("", "MetricsNotNumbers", "a value is no finite number, or below zero")
    budget, generation = (window.extremes(f"least_{what}", f"most_{what}") for what in ("budget", "generation"))
    if budget is None or generation is None:
        return NotMeasured("", "MetricsMissing", "token budget or settings generation are not told")
    if budget[0] != budget[1] or generation[0] != generation[1]:
        return NotMeasured("", "SettingsChanged", "settings changed within the window, or differ between engines")
    if not all(map(is_bucket, window.labels("prefills"))):
        return NotMeasured("", "MetricsNotNumbers", "a prompt-length bucket has no bounds in its name")
    if window.total("resets"):
        return NotMeasured("", "CounterReset", "an engine began anew within the window")
    engines = window.extremes("engines", "engines")
    if engines is not None and engines[1] > MOST_CHANGE * engines[0]:
        return NotMeasured("", "EnginesChanged", "engines came or went within the window")
    if max(_count(window, "prefills"), _count(window, "tpots")) < LEAST_REQUESTS:
        return NotMeasured("", "TooFewRequests", f"fewer than {LEAST_REQUESTS} requests in the window")
    return None


def _count(window: Window, question: str) -> float:
    return sum(window.total(question, label) for label in window.labels(question))


def _not_modelled(window: Window, model: StepModel) -> NotMeasured | None:
    if model.stages > 1:
        return NotMeasured("", "PipelineStages", "batches overlap in pipeline stages, so a step's time is not seen")
    failures = window.total("preemptions") / max(_count(window, "prefills"), _count(window, "tpots"))
    if failures > MOST_PREEMPTED:
        return NotMeasured("", "Preempted", "many requests were preempted, and computed twice")
    return None


def _no_prefill(found: Composition) -> NotMeasured | None:
    if found.requests < LEAST_REQUESTS:
        return NotMeasured("", "TooFewRequests", f"fewer than {LEAST_REQUESTS} first tokens in the window")
    if found.budget < 1 or found.engines < 1 or any(p.uncached > MOST_STEPS * found.room for p in found.prompts):
        return NotMeasured("", "MetricsMissing", "no engine tells a token budget that could be its own")
    apart = abs(found.prefill_tokens / found.uncached - 1)
    if apart > TOKENS_AGREE:
        return NotMeasured("", "TokensDisagree", "steps and requests don't tell of the same prompt tokens")
    return None


def _solved(
    window: Window, found: Composition, model: StepModel, *, with_decode: bool
) -> list[StageRatio | NotMeasured]:
    stage, tpot = _mean(window, "prefill_seconds", "prefills"), _mean(window, "tpot_seconds", "tpots")
    curve = step_curve(model, round(found.room), _decodes(found, found.running), _decodes(found, found.running + 1))
    scale, said = (1.0, 1.0), None
    for _ in range(ROUNDS):
        replayed = replay(found, curve, scale)
        new = _ratios(replayed, stage, tpot)
        settled = all(abs(math.log(n / s)) < SETTLED for n, s in zip(new, scale, strict=True))
        said = (new, replayed) if settled else None
        # The second guess is near, where the engine is not about to fill up; from then on half of each step is taken.
        scale = new if scale == (1.0, 1.0) else (math.sqrt(scale[0] * new[0]), math.sqrt(scale[1] * new[1]))
        if settled:
            break
    if said is None:
        return [NotMeasured("", "NearSaturation", "engines are so full that their queue is no measure of their speed")]
    (prefill, decode), replayed = said
    if _uneven(found, replayed):
        return [NotMeasured("", "ArrivalsUneven", "prompts don't come one by one at random, but together or in turn")]
    first = StageRatio(
        PREFILL,
        prefill,
        math.hypot(_scatter(window, "prefill_seconds", "prefills"), METHOD_BAND),
        round(found.requests),
    )
    return [first, _decode(window, decode, first, replayed)] if with_decode else [first]


def _uneven(found: Composition, replayed: Replayed) -> bool:
    """Whether prompts share steps more, or less, than those that come at random: they then wait for each other so."""
    if not found.steps:  # not told
        return False
    return abs(math.log(found.steps / replayed.steps)) > STEPS_AGREE + 1 / math.sqrt(found.requests)


def _ratios(replayed: Replayed, stage: float, tpot: float) -> tuple[float, float]:
    low, high = RANGE
    prefill = min(high, max(low, stage / replayed.prefill))
    if replayed.alone <= 0:
        return prefill, 1.0
    return prefill, min(high, max(low, (tpot - prefill * replayed.mixed) / replayed.alone))


def _decode(window: Window, ratio: float, prefill: StageRatio, replayed: Replayed) -> StageRatio | NotMeasured:
    requests, tpot = _count(window, "tpots"), _mean(window, "tpot_seconds", "tpots")
    if requests < LEAST_REQUESTS:
        return NotMeasured(DECODE, "TooFewRequests", f"fewer than {LEAST_REQUESTS} requests ended in the window")
    alone = ratio * replayed.alone / tpot if tpot > 0 else 0.0
    if alone < LEAST_ALONE:
        return NotMeasured(DECODE, "PromptsInMostSteps", "most of TPOT is in steps with prompts")
    # What is wrong with the steps that have prompts goes into what is left.
    rest = (1 - alone) / alone
    scatter = _scatter(window, "tpot_seconds", "tpots") / alone
    band = math.hypot(scatter, METHOD_BAND, MIXED_BAND * rest, prefill.band * rest)
    return StageRatio(DECODE, ratio, band, round(requests))


def _decodes_only(window: Window, found: Composition, model: StepModel) -> StageRatio | NotMeasured:
    """Of an engine that gets its prompts computed."""
    requests = _count(window, "tpots")
    if requests < LEAST_REQUESTS:
        return NotMeasured(DECODE, "TooFewRequests", f"fewer than {LEAST_REQUESTS} requests ended in the window")
    step = model.step_seconds((), _decodes(found, found.running + 1)).seconds
    ratio = _mean(window, "tpot_seconds", "tpots") / step
    band = math.hypot(_scatter(window, "tpot_seconds", "tpots"), METHOD_BAND)
    return StageRatio(DECODE, ratio, band, round(requests))


def _decodes(found: Composition, count: float) -> Decodes:
    """So many decodes of the mean context. One that decodes sees itself beside the average of the others."""
    number, context = round(count), round(found.context)
    return Decodes(number, number * context, context) if number else Decodes(0, 0, 0)


def _mean(window: Window, seconds: str, count: str) -> float:
    return _count(window, seconds) / max(1e-9, _count(window, count))


def _scatter(window: Window, seconds: str, count: str) -> float:
    """Half width of the 90 % band of a mean, relative, by the scatter of the blocks around each bucket's own mean."""
    labels = [label for label in window.labels(count) if window.total(count, label) > 0]
    means = {label: window.total(seconds, label) / window.total(count, label) for label in labels}
    logs = []
    for block in window.blocks:
        got = sum(block.get((seconds, label), 0.0) for label in labels)
        expected = sum(block.get((count, label), 0.0) * means[label] for label in labels)
        if got > 0 and expected > 0:
            logs.append(math.log(got / expected))
    if len(logs) < LEAST_BLOCKS:
        return math.inf
    mean = sum(logs) / len(logs)
    spread = math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1))
    return _STUDENT.get(len(logs) - 1, 1.7) * spread / math.sqrt(len(logs))
