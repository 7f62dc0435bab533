"""Which shape a replica gets: by what is predicted of it, within what fits and within the budget (M4.2, M4.6)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firsttoken.planning.forecast import Forecast, Question, describe, figures
from firsttoken.planning.parallelism import Candidate
from firsttoken.planning.replicas import replicas_for
from firsttoken.planning.types import Alternative, Reason
from firsttoken.planning.words import milliseconds, number

# Shapes that carry within this much of each other count as equal, since the model may be off by as much: then the
# smaller replica is taken. It is lost alone, scales in smaller steps and depends on fewer links.
ALIKE = 1.25
MOST_SHAPES = 6
DEAR = 0.5  # of what a replica could serve: an SLO that leaves less is said to cost as much


@dataclass(frozen=True)
class Limits:
    """What the replicas of one role are counted against."""

    rate: float | None  # requests a second of the service
    gpus: int | None  # of this role, at most: spec.accelerator.maxCount, less what the other role takes
    fixed: int | None = None  # replicas that the spec names; 0 is a service that sleeps, and says nothing of a shape
    least: int = 1  # spec.scaling.minReplicas
    most: int | None = None  # spec.scaling.maxReplicas

    def room(self, found: Forecast) -> float:
        """Replicas of this shape that the budget and the bounds allow."""
        if self.fixed:
            return self.fixed
        room = math.inf if self.gpus is None else self.gpus // found.gpus
        return min(room, self.most) if self.most is not None else room

    def needed(self, found: Forecast) -> int:
        """Replicas that the spec names, or that the rate takes and the bounds ask for at least."""
        if self.fixed or self.rate is None:
            return self.fixed or self.least
        return max(self.least, replicas_for(self.rate, found.capacity, found.interval))

    def enough(self, found: Forecast) -> bool:
        """Whether the rate is carried, with the margin, by replicas that are allowed."""
        return replicas_for(self.rate or 0.0, found.capacity, found.interval) <= self.room(found)

    def count(self, found: Forecast) -> int:
        """Replicas that will run: as many as are needed and allowed; all that are, where nobody names a rate."""
        room = self.room(found)
        if self.rate is None and self.gpus is not None:
            return int(max(1, room))
        return int(max(1, min(self.needed(found), room)))


def choose_shape(
    candidates: Sequence[Candidate], ask: Callable[[Candidate], Forecast], limits: Limits, question: Question
) -> tuple[Forecast, tuple[Forecast, ...]]:
    """The shape to take, and all that were looked at, in the order of their size.

    A shape that holds a dozen requests goes before one that doesn't; inside a node one without pipeline stages before
    one with them, which only pay there where nothing else fits. Over nodes both are looked at: with stages little is
    sent, with each layer split nobody waits for another stage.
    """
    useful = [c for c in candidates if c.useful] or list(candidates)
    flat = [c for c in useful if c.pipeline_parallel == c.nodes == 1] or useful
    looked = [ask(c) for c in sorted(flat, key=lambda c: (c.gpus, c.pipeline_parallel))[:MOST_SHAPES]]
    keeping = [f for f in looked if f.keeps_promises]
    if question.promised and not keeping:  # missed by as little as can be
        return min(looked, key=lambda f: (f.goodput.missed_by, _size(f))), tuple(looked)
    # For a promise that is only the profile's default nobody buys GPUs, and nobody waits in a queue: where no shape
    # keeps it at the rate, all that is served counts.
    kept = question.promised or limits.rate is None or any(limits.enough(f) for f in keeping)
    return best_shape(keeping if kept and keeping else looked, limits), tuple(looked)


def best_shape(found: Sequence[Forecast], limits: Limits) -> Forecast:
    """The shape for a rate, or for a budget, out of `found`, which is not empty.

    With a rate: what carries it on few GPUs, and where nothing does, what carries most. A growing rate never brings a
    choice that carries less, and it changes shapes only where one no longer suffices, not by how replicas divide.
    Without one: what makes most of the budget, or of each GPU where there is none.
    """
    if limits.rate is not None:
        enough = [f for f in found if limits.enough(f)]
        if enough:
            return _fewest(enough, limits)
        return max(found, key=lambda f: (_carried(f, limits), -f.gpus, -f.candidate.pipeline_parallel))
    if limits.gpus is None:
        return _preferred(found, lambda f: f.per_gpu)
    return _preferred(found, lambda f: _carried(f, limits))


def _preferred(found: Sequence[Forecast], worth: Callable[[Forecast], float]) -> Forecast:
    """The smallest shape whose worth is about the best."""
    best = max(worth(f) for f in found)
    return min((f for f in found if worth(f) * ALIKE >= best), key=_size)


def _fewest(found: Sequence[Forecast], limits: Limits) -> Forecast:
    """The shape that makes most of a GPU; or smaller ones on fewer GPUs, while the least replicas of it are too much.

    To compare numbers of GPUs beyond that would change the shape of a whole fleet back and forth with its rate.
    """
    chosen = _preferred(found, lambda f: f.per_gpu)
    count, smaller = limits.needed(chosen), [f for f in found if f.gpus < chosen.gpus]
    if count > (limits.fixed or limits.least) or not smaller:
        return chosen
    other = _fewest(smaller, limits)
    return other if limits.needed(other) * other.gpus < count * chosen.gpus else chosen


def _size(found: Forecast) -> tuple[int, int]:
    return found.gpus, found.candidate.pipeline_parallel


def _carried(found: Forecast, limits: Limits) -> float:
    """Requests a second of all replicas; where nothing says how many there are, of one GPU."""
    room = limits.room(found)
    return found.per_gpu if room == math.inf else room * found.capacity


def shape_reason(chosen: Forecast, looked: Sequence[Forecast]) -> Reason:
    """Why this many GPUs share a layer, with what the next best would carry."""
    others = [f for f in looked if f.candidate != chosen.candidate]
    text = f"{chosen.candidate.tensor_parallel}: {carries(chosen)}"
    if others:
        best = min(others, key=lambda f: (not f.keeps_promises, -f.per_gpu))
        text += f"; with {width(best)} {carries(best)}"
    if _smaller_alike(chosen, others):
        text += f"; what is within {(ALIKE - 1) * 100:.0f} % a GPU counts as equal, and the smaller replica is taken"
    if chosen.keeps_promises and chosen.goodput.binding is not None:
        text += f"; more would break {describe(chosen.goodput.binding)}"
        if not chosen.uses(DEAR):
            text += f" (without the SLOs a replica could serve {number(chosen.most)})"
    return Reason("TensorParallel", text)


def _smaller_alike(chosen: Forecast, others: Sequence[Forecast]) -> bool:
    """Whether a larger shape is predicted to carry more for each GPU, but not by enough."""
    return any(o.gpus > chosen.gpus and chosen.per_gpu < o.per_gpu <= chosen.per_gpu * ALIKE for o in others)


def carries(found: Forecast) -> str:
    each = f"{number(found.capacity)} requests/s" + ("" if found.gpus == 1 else f", {number(found.per_gpu)} a GPU")
    if found.keeps_promises or found.goodput.binding is None:
        return f"a replica carries {each} within the SLOs"
    if found.goodput.rate > 0:
        return (
            f"a replica serves {each}, and within {describe(found.goodput.binding)} only {number(found.goodput.rate)}"
        )
    floor = milliseconds(found.goodput.floor or 0.0)
    return f"misses {describe(found.goodput.binding)} even when idle ({floor} predicted), and serves {each} at most"


def width(found: Forecast) -> str:
    stages, nodes = found.candidate.pipeline_parallel, found.candidate.nodes
    on = f" on {nodes} nodes" if nodes > 1 else ""
    return f"{found.candidate.tensor_parallel}" + (f" in {stages} stages" if stages > 1 else "") + on


def alternatives(chosen: Forecast, looked: Sequence[Forecast], layout: str, limits: Limits) -> tuple[Alternative, ...]:
    """The other shapes, best first, each with the replicas it would have within the same limits."""
    found = []
    for other in sorted(
        (f for f in looked if f.candidate != chosen.candidate), key=lambda f: (not f.keeps_promises, -f.per_gpu, f.gpus)
    ):
        count, shape = limits.count(other), other.candidate
        if limits.gpus is not None and count * other.gpus > limits.gpus:
            continue
        message = f"tensor parallel {width(other)}: {carries(other)}"
        carried = figures(other.capacity * count)
        found.append(
            Alternative(
                layout,
                shape.tensor_parallel,
                shape.pipeline_parallel,
                count,
                count * other.gpus,
                carried,
                message,
                other.keeps_promises,
                shape.nodes,
            )
        )
    return tuple(found)
