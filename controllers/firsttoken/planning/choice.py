"""Which shape a replica gets and which token budget it starts with: by prediction, within what fits (M4.2, M4.6)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firsttoken.planning.forecast import Forecast, Question, describe, figures, milliseconds
from firsttoken.planning.parallelism import Candidate
from firsttoken.planning.replicas import replicas_for
from firsttoken.planning.timing.step import StepModel
from firsttoken.planning.types import Alternative, Reason

# Shapes whose total is within this much of each other count as equal, since the model may be off by as much: then the
# smaller replica is taken. It is lost alone, scales in smaller steps and depends on fewer links.
ALIKE = 1.25
MOST_SHAPES = 6
NETWORK = 50e9  # bytes/s a GPU, one direction: a port of 400 Gbit/s for each, as large clusters have


@dataclass(frozen=True)
class Limits:
    """What replicas are counted against. `fixed`: replicas that the spec names or that must run at least."""

    rate: float | None
    gpus: int | None  # spec.accelerator.maxCount
    fixed: int | None
    most: int | None = None  # spec.scaling.maxReplicas


def choose_shape(
    candidates: Sequence[Candidate], ask: Callable[[Candidate], Forecast], limits: Limits, question: Question
) -> tuple[Forecast, tuple[Forecast, ...]]:
    """The shape to take, and all that were looked at, in the order of their size.

    A shape that holds a dozen requests goes before one that doesn't; one without pipeline stages before one with them,
    which only pay where nothing else fits. Larger shapes are asked as long as they carry more for each GPU.
    """
    useful = [c for c in candidates if c.useful] or list(candidates)
    flat = [c for c in useful if c.pipeline_parallel == 1] or useful
    looked: list[Forecast] = []
    for candidate in sorted(flat, key=lambda c: (c.gpus, c.pipeline_parallel))[:MOST_SHAPES]:
        looked.append(ask(candidate))
        if len(looked) > 1 and looked[-1].per_gpu < looked[-2].per_gpu and looked[-2].goodput.rate > 0:
            break
    return _best(looked, limits, question), tuple(looked)


def _best(looked: Sequence[Forecast], limits: Limits, question: Question) -> Forecast:
    """Promises kept first, then the rate carried, then the fewest GPUs."""
    keeping = [f for f in looked if f.goodput.rate > 0]
    if not keeping:
        # A promise that somebody made is missed by as little as can be; for a profile's default nobody buys GPUs.
        return min(looked, key=lambda f: (f.goodput.floor or 0.0 if question.promised else 0.0, _size(f)))
    if limits.rate is not None:
        enough = [f for f in keeping if not _short(f, limits)]
        if enough:
            return min(enough, key=lambda f: (_replicas(f, limits) * f.gpus, _size(f)))
    best = max(_carried(f, limits) for f in keeping)
    return min((f for f in keeping if _carried(f, limits) * ALIKE >= best), key=_size)


def _size(found: Forecast) -> tuple[int, int]:
    return found.gpus, found.candidate.pipeline_parallel


def _room(found: Forecast, limits: Limits) -> float:
    """Replicas of this shape that the budget and the bounds allow."""
    room = math.inf if limits.gpus is None else limits.gpus // found.gpus
    return min(room, limits.most) if limits.most is not None else room


def _replicas(found: Forecast, limits: Limits) -> int:
    """Replicas that the rate takes, or that the spec names."""
    return limits.fixed or replicas_for(limits.rate or 0.0, found.goodput.rate, found.interval)


def _short(found: Forecast, limits: Limits) -> bool:
    count = _replicas(found, limits)
    return count > _room(found, limits) or count * found.goodput.rate < (limits.rate or 0.0)


def _carried(found: Forecast, limits: Limits) -> float:
    """Requests a second of all replicas; where nothing says how many there are, and for a split, of one GPU.

    A split's GPUs are shared out between the roles afterwards, in the proportion that carries most.
    """
    if limits.fixed is not None:
        return limits.fixed * found.goodput.rate
    if found.role != "serve" or _room(found, limits) == math.inf:
        return found.per_gpu
    return _room(found, limits) * found.goodput.rate


def shape_reason(chosen: Forecast, looked: Sequence[Forecast]) -> Reason:
    """Why this many GPUs share a layer, with what the next best would carry."""
    others = [f for f in looked if f.candidate != chosen.candidate]
    text = f"{chosen.candidate.tensor_parallel}: {_carries(chosen)}"
    if others:
        best = min(others, key=lambda f: (f.goodput.rate <= 0, -f.per_gpu))
        text += f"; with {_width(best)} {_carries(best)}"
    if chosen.goodput.rate > 0 and chosen.goodput.binding is not None:
        text += f"; more would break {describe(chosen.goodput.binding)}"
    return Reason("TensorParallel", text)


def _carries(found: Forecast) -> str:
    if found.goodput.rate <= 0 and found.goodput.binding is not None:
        floor = milliseconds(found.goodput.floor or 0.0)
        return f"misses {describe(found.goodput.binding)} even when idle ({floor} predicted)"
    each = f"a replica carries {found.goodput.rate:.3g} requests/s within the SLOs"
    return each if found.gpus == 1 else f"{each}, {found.per_gpu:.3g} a GPU"


def _width(found: Forecast) -> str:
    stages = found.candidate.pipeline_parallel
    return f"{found.candidate.tensor_parallel}" + (f" in {stages} stages" if stages > 1 else "")


def alternatives(chosen: Forecast, looked: Sequence[Forecast], layout: str, limits: Limits) -> tuple[Alternative, ...]:
    """The other shapes, best first, each with the replicas it would need."""
    found = []
    for other in sorted(
        (f for f in looked if f.candidate != chosen.candidate), key=lambda f: (f.goodput.rate <= 0, -f.per_gpu, f.gpus)
    ):
        count = limits.fixed or 1
        if limits.rate is not None and not limits.fixed:
            count = replicas_for(limits.rate, other.goodput.rate, other.interval)
        elif limits.gpus is not None and not limits.fixed:
            count = max(1, limits.gpus // other.gpus)
            count = min(count, limits.most) if limits.most is not None else count
        message = f"tensor parallel {_width(other)}: {_carries(other)}"
        carried = figures(other.goodput.rate * count)
        shape = other.candidate
        found.append(
            Alternative(
                layout, shape.tensor_parallel, shape.pipeline_parallel, count, count * other.gpus, carried, message
            )
        )
    return tuple(found)


def node_reason(chosen: Forecast, budget: int) -> Reason | None:
    """Why a layer's split stays inside a node: what its all-reduces take there, and over a network (M4.6)."""
    model, tensor = chosen.load.curves.model, chosen.candidate.tensor_parallel
    if tensor == 1 or not chosen.device.link:
        return None
    apart = StepModel(model.facts, chosen.device, tensor_parallel=tensor, link=NETWORK)
    inside, outside = (m.step_seconds(((0, budget),)) for m in (model, apart))
    links, network = (
        f"{chosen.device.link / 1e9:.0f} GB/s links",
        f"a network of {NETWORK / 1e9:.0f} GB/s a GPU (assumed)",
    )
    text = (
        f"a replica stays in one node: the all-reduces of a step of {budget} tokens take "
        f"{milliseconds(inside.collectives)} of {milliseconds(inside.seconds)} over {links}, and would take "
        f"{milliseconds(outside.collectives)} over {network}"
    )
    return Reason("WithinNode", text)
