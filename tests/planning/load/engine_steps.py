"""A vLLM-like engine with pipeline stages, batch by batch, which the simulator has not: decodes first, then prompts."""

from collections import deque
from dataclasses import dataclass, field

from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.demand import RequestShape
from firsttoken.planning.timing.step import Decodes, StepModel
from planning.load.traffic import arrivals


@dataclass
class Request:
    """Tokens, and seconds of the simulated clock."""

    arrival: float
    prompt: int
    output: int
    done: int  # prompt tokens in the KV cache
    made: int = 0
    first: float = 0.0
    last: float = 0.0


@dataclass
class Measured:
    """Sorted times of the requests after warm-up, seconds."""

    ttft: list[float] = field(default_factory=list)
    tpot: list[float] = field(default_factory=list)
    running: float = 0.0


@dataclass
class Batch:
    """On its way through the stages."""

    end: float  # seconds of the simulated clock
    decodes: list[Request]
    prefilled: list[Request]  # whose last chunk is in it


class Stepped:
    """With pipeline stages a batch in each (vLLM's step_with_batch_queue): to fill them goes before waiting for one.

    A prompt's next chunk may be in the next batch, a decode only in one that begins after its last token. KV is taken
    as it is needed, a shared prefix once.
    """

    def __init__(self, model: StepModel, shape: RequestShape, limits: EngineLimits) -> None:
        self.model, self.shape, self.limits = model, shape, limits
        self.now, self.busy = 0.0, 0.0
        self.free = [0.0] * model.stages  # when each stage is
        self.waiting: deque[Request] = deque()
        self.prefilling: list[Request] = []  # the last one may have chunks left
        self.ready: list[Request] = []
        self.flight: deque[Batch] = deque()

    def serve(self, requests: list[Request]) -> None:
        """All of them to their end."""
        coming = deque(requests)
        while coming or self.waiting or self.prefilling or self.ready or self.flight:
            while coming and coming[0].arrival <= self.now:
                self.waiting.append(coming.popleft())
            if len(self.flight) < len(self.free) and self._begin():
                continue
            if self.flight:
                self._end(self.flight.popleft())
            else:
                self.now = coming[0].arrival

    def _begin(self) -> bool:
        decodes = self.ready
        chunks, prefilled = self._chunks(self.limits.token_budget - len(decodes))
        if not decodes and not chunks:
            return False
        self.ready, contexts = [], [r.prompt + r.made for r in decodes]
        step = self.model.step_seconds(chunks, Decodes(len(contexts), sum(contexts), max(contexts, default=0)))
        end, slowest = self.now, self.model.interval_seconds(step)
        for stage, free in enumerate(self.free):
            last = stage == len(self.free) - 1
            end = max(end, free) + (slowest if last else (step.seconds - slowest) / (len(self.free) - 1))
            self.free[stage] = end
        self.busy += (end - self.now) * len(decodes)
        self.flight.append(Batch(end, decodes, prefilled))
        return True

    def _chunks(self, room: int) -> tuple[list[tuple[int, int]], list[Request]]:
        running = [*self.ready, *self.prefilling, *(r for b in self.flight for r in b.decodes)]
        used = sum(r.prompt + r.made - self.shape.cached_tokens for r in running)
        places, chunks, prefilled = self.limits.max_running - len(running), [], []
        while room > 0:
            one = self.prefilling[-1] if self.prefilling else None
            if one is None or one.done == one.prompt:
                used += self.waiting[0].prompt - self.shape.cached_tokens if self.waiting else 0
                if not self.waiting or not places or used > self.limits.kv_tokens:
                    break
                one, places = self.waiting.popleft(), places - 1
                self.prefilling.append(one)
            size = min(room, one.prompt - one.done)
            chunks.append((one.done, size))
            one.done, room = one.done + size, room - size
            prefilled += [one] if one.done == one.prompt else []
        return chunks, prefilled

    def _end(self, batch: Batch) -> None:
        self.now = max(self.now, batch.end)
        for r in batch.decodes:
            r.made, r.last = r.made + 1, self.now
        for r in batch.prefilled:
            r.made, r.first, r.last = 1, self.now, self.now
        self.ready += [r for r in (*batch.decodes, *batch.prefilled) if r.made < r.output]
        self.prefilling = [r for r in self.prefilling if not r.made]


def run(model: StepModel, shape: RequestShape, limits: EngineLimits, rate: float, count: int) -> Measured:
    """`count` requests; the first seventh is warm-up."""
    engine = Stepped(model, shape, limits)
    requests = [Request(*drawn) for drawn in arrivals(shape, rate, count)]
    engine.serve(requests)
    counted = requests[count // 7 :]
    return Measured(
        sorted(r.first - r.arrival + model.api_seconds(r.prompt) for r in counted),
        sorted((r.last - r.first) / (r.output - 1) for r in counted if r.output > 1),
        engine.busy / engine.now,
    )


def percentile(ordered: list[float], share: float) -> float:
    """Of sorted values."""
    return ordered[int(share * len(ordered))]
