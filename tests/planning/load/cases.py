"""Step models, shapes of requests and engines for the tests of the load model."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from firsttoken.planning.load.curves import EngineLimits
from firsttoken.planning.load.demand import RequestShape
from firsttoken.planning.load.lengths import LengthDistribution
from firsttoken.planning.load.probability import percentile
from firsttoken.planning.load.replica import LoadModel
from firsttoken.planning.load.responses import Replica
from firsttoken.planning.timing.step import StepModel
from planning.timing.models import LLAMA_8B, LLAMA_70B, MIXTRAL, step_model


@dataclass(frozen=True)
class Engine:
    """A model on GPUs, and how vLLM runs it there."""

    uri: str
    gpu: str
    tensor_parallel: int
    limits: EngineLimits
    stages: int = 1

    @property
    def model(self) -> StepModel:
        """Shared between tests."""
        return step_model(self.uri, self.gpu, tensor_parallel=self.tensor_parallel, pipeline_parallel=self.stages)

    def load(self, shape: RequestShape, role: str = "serve") -> LoadModel:
        """One replica of it."""
        return LoadModel(self.model, shape, self.limits, role)


def staged(stages: int) -> Engine:
    """Llama 8B in so many stages of an L40S each, with places and KV in proportion."""
    return Engine(LLAMA_8B, "nvidia-l40s", 1, EngineLimits(2048, 64 * stages, 120_000 * stages), stages)


SMALL = Engine(LLAMA_8B, "nvidia-a100-40gb", 1, EngineLimits(2048, 256, 150_000))
SMALL_CHUNKS = Engine(LLAMA_8B, "nvidia-a100-40gb", 1, EngineLimits(256, 128, 150_000))
LARGE = Engine(LLAMA_70B, "nvidia-h100-80gb", 4, EngineLimits(8192, 1024, 400_000))
EXPERTS = Engine(MIXTRAL, "nvidia-h100-80gb", 2, EngineLimits(8192, 1024, 300_000))
STAGES = Engine(MIXTRAL, "nvidia-l40s", 2, EngineLimits(2048, 256, 500_000), stages=4)
ENGINES = (SMALL, SMALL_CHUNKS, LARGE, EXPERTS, STAGES)


def shape(prompt: tuple[int, int], output: tuple[int, int], cached: int = 0, longest: int = 16384) -> RequestShape:
    """From P50 and P95 of prompt and output."""
    return RequestShape(LengthDistribution(*prompt, longest), LengthDistribution(*output, longest), cached)


CHAT = shape((1024, 4096), (128, 451), 256, 9215)
CODE = shape((1469, 7315), (13, 90), 0, 14847)
ANSWERS = shape((1150, 1500), (400, 500), 448, 4095)
SUMMARIES = shape((6144, 16384), (200, 400), 0, 33791)
SHAPES = (CHAT, CODE, ANSWERS, SUMMARIES)


@cache
def capacity(engine: Engine, wanted: RequestShape, role: str = "serve") -> float:
    """Requests a second at which one replica saturates."""
    load = engine.load(wanted, role)
    low, high = 1e-3, 1e4
    for _ in range(40):
        middle = (low * high) ** 0.5
        if load.at(middle).steady.saturated:
            high = middle
        else:
            low = middle
    return low


def wait(replica: Replica, share: float) -> float:
    """Seconds that `share` of the prompts do not exceed before their own steps."""
    return percentile(replica.waiting.survival(), share, 0.0, replica.waiting.step)


def prefill(replica: Replica, low: float = 0, high: float = math.inf) -> float:
    """Mean seconds of the steps of a prompt with more than `low` and at most `high` tokens, alone with the decodes."""
    prompts = replica.curves.shape.bucket_classes(low, high)
    return sum(p.share * replica.steps(p).seconds for p in prompts) / sum(p.share for p in prompts)


def numbers(value: object) -> Iterator[float]:
    """All floats in a frozen result."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from numbers(one)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from numbers(getattr(value, name))
