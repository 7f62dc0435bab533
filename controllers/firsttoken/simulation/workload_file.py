"""What `simulate --workload` takes: traffic and engine options beyond spec.workload, checked, as one YAML document."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from firsttoken.planning.workload import ResolvedWorkload
from firsttoken.simulation.arrivals import DAY, Arrivals
from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.policies import CacheAware, LeastLoaded, Policy, PowerOfTwo, RoundRobin
from firsttoken.simulation.requests import PRIORITIES
from firsttoken.simulation.workload import Between, Lengths, LogNormal, SharedPrefixes

Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Tokens = Annotated[int, Field(ge=1, le=2**24)]
POLICIES: dict[str, Policy] = {
    "RoundRobin": RoundRobin(),
    "LeastLoaded": LeastLoaded(),
    "PowerOfTwo": PowerOfTwo(),
    "CacheAware": CacheAware(),
    "CacheAwareOfEvents": CacheAware(held=True),
}
RouterName = Literal["RoundRobin", "LeastLoaded", "PowerOfTwo", "CacheAware", "CacheAwareOfEvents"]


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


class ArrivalsPart(_Part):
    """Seconds. `burstiness` below 1 bursts, 1 is Poisson; `swing`: how far the rate goes up and down in a period."""

    requests_per_second: Above0 | None = None
    burstiness: Above0 = 1.0
    swing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    period_seconds: Above0 = DAY
    peak_seconds: float = DAY / 2


class LengthsPart(_Part):
    """Log-normal through `p50` and `p95`, or even from `low` to `high`; tokens."""

    p50: Tokens | None = None
    p95: Tokens | None = None
    low: Tokens | None = None
    high: Tokens | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> "LengthsPart":
        pairs = (self.p50, self.p95), (self.low, self.high)
        given = [pair for pair in pairs if pair != (None, None)]
        if len(given) != 1 or None in given[0]:
            raise ValueError("give p50 and p95, or low and high")
        first, second = given[0]
        if first is not None and second is not None and first > second:
            raise ValueError("the second length is below the first: give them in order")
        return self

    def drawn(self, longest: int) -> Lengths:
        """What draws them, cut at `longest` tokens."""
        if self.p50 is not None and self.p95 is not None:
            return LogNormal(self.p50, self.p95, longest)
        return Between(min(self.low or 1, longest), min(self.high or 1, longest))


class PrefixesPart(_Part):
    """`count` different beginnings of `tokens`; the k-th is used in proportion to 1 / k ** zipf; see SharedPrefixes."""

    tokens: Annotated[int, Field(ge=0, le=2**24)]
    count: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    zipf: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    share: Share = 1.0


class PriorityPart(_Part):
    """A share of the requests with this priority; smaller is served first, as in vLLM."""

    priority: Annotated[int, Field(ge=PRIORITIES[0], le=PRIORITIES[1])]
    share: Share


class EnginePart(_Part):
    """Options of every engine that the plan does not set."""

    prefill_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    reserve_full_length: bool = False  # KV for the maximum model length at once, the old way (M4.4)
    priorities: bool = False  # vLLM's --scheduling-policy priority
    token_budget: Tokens | None = None


class ClientsPart(_Part):
    """A closed loop: so many clients, each with its next request `thinkSeconds` after the end of the one before."""

    count: Annotated[int, Field(ge=1, le=100_000)]
    requests_each: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    think_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class CanaryPart(_Part):
    """A second revision of the same plan, with options of its own, that gets `weight` of the requests."""

    weight: Annotated[float, Field(gt=0, lt=1)]
    engine: EnginePart


class WorkloadFile(_Part):
    """The whole file; every part is optional, and what is left out is as spec.workload and the plan say."""

    arrivals: ArrivalsPart = ArrivalsPart()
    clients: ClientsPart | None = None
    prompt_tokens: LengthsPart | None = None
    output_tokens: LengthsPart | None = None
    prefixes: PrefixesPart | None = None
    priorities: Annotated[tuple[PriorityPart, ...], Field(max_length=256)] = ()
    router: RouterName | None = None
    engine: EnginePart = EnginePart()
    canary: CanaryPart | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> "WorkloadFile":
        if self.priorities and abs(sum(one.share for one in self.priorities) - 1) > 1e-6:
            raise ValueError("the shares of priorities don't add up to 1: let them")
        if self.clients and "arrivals" in self.model_fields_set:
            raise ValueError("arrivals and clients are given: leave one out")
        if self.clients and self.canary:
            raise ValueError("clients and canary are given: a closed loop is of one engine, so leave one out")
        if self.priorities and not self.engine.priorities:
            raise ValueError("priorities are given, and engine.priorities is off: set it, or leave them out")
        return self

    @property
    def draws(self) -> tuple[str, ...]:
        """Names of the parts given that say what arrives."""
        own = ("arrivals", "clients", "prompt_tokens", "output_tokens", "prefixes", "priorities")
        return tuple(to_camel(name) for name in own if name in self.model_fields_set)

    @property
    def policy(self) -> Policy | None:
        """The router's, in place of the rendered one."""
        return POLICIES[self.router] if self.router else None

    def parts(self, work: ResolvedWorkload, longest: int, rate: float) -> dict[str, Any]:
        """The arguments of workload.Workload, `rate` in requests a second."""
        own, shared = self.arrivals, self.prefixes
        prefixes = SharedPrefixes(work.shared_prefix) if work.shared_prefix else None
        if shared is not None:
            prefixes = SharedPrefixes(shared.tokens, shared.count, shared.zipf, shared.share) if shared.tokens else None
        return {
            "prompts": self.prompt_tokens.drawn(longest) if self.prompt_tokens
            else LogNormal(work.prompt.p50, work.prompt.p95, longest),
            "outputs": self.output_tokens.drawn(longest) if self.output_tokens
            else LogNormal(work.output.p50, work.output.p95, longest),
            "arrivals": Arrivals(rate, own.burstiness, own.swing, own.period_seconds, own.peak_seconds),
            "prefixes": prefixes,
        }  # fmt: skip


AS_PLANNED = WorkloadFile()


def read_workload(document: Any, name: str) -> WorkloadFile:
    """Of a parsed YAML document. Raises SimulationInputError: one line with field, fault and remedy."""
    if not isinstance(document, dict):
        raise SimulationInputError(f"{name}: holds no mapping: see examples/workloads")
    try:
        return WorkloadFile.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        known = ""
        if first["type"] == "extra_forbidden":
            said, known = "is not known", f": give {', '.join(to_camel(n) for n in WorkloadFile.model_fields)}"
        raise SimulationInputError(f"{name}: {place + ': ' if place else ''}{said}{known}") from error
