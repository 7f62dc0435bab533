"""The world file: how long, on which nodes, and what happens when. One line for each fault of it."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from firsttoken.api.quantities import duration_seconds
from firsttoken.rehearsal.errors import WorldError

MOST_SECONDS = 7 * 86_400


def _duration(text: str) -> str:
    duration_seconds(text)
    return text


def _some(text: str) -> str:
    if duration_seconds(text) <= 0:
        raise ValueError("give some time, such as 10m")
    return text


Moment = Annotated[str, AfterValidator(_duration)]
Span = Annotated[str, AfterValidator(_some)]
Factor = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="forbid")


class Traffic(_Part):
    """Requests change, against spec.workload: rate and lengths as factors; for a while, or for good."""

    rate: Factor = 1.0
    prompt_tokens: Factor = 1.0
    output_tokens: Factor = 1.0
    shared_prefix: bool = True  # False: prompts begin differently, so that nothing is shared
    lasts: Span | None = Field(default=None, alias="for")


class Burst(_Part):
    """So many requests at once."""

    requests: Annotated[int, Field(ge=1, le=100_000)]


class LosePods(_Part):
    """Pods are gone from one moment to the next, with the requests they had; their Deployments make new ones."""

    count: Annotated[int, Field(ge=1, le=10_000)] = 1
    role: str = "serve"


class LoseNode(_Part):
    """A node is gone with its pods, for a while or for good."""

    name: str
    lasts: Span | None = Field(default=None, alias="for")


class SlowNode(_Part):
    """Every step of the engines on a node takes `factor` times as long."""

    name: str
    factor: Factor
    lasts: Span | None = Field(default=None, alias="for")


class BadVersion(_Part):
    """Revisions made from then on (those whose inputs hold `where`, if that is given) are bad."""

    where: dict[str, Any] | None = None  # a part of InferenceRevision.spec.inputs
    prefill: Factor = 1.0  # steps with prompt tokens take this many times as long
    errors: Annotated[float, Field(ge=0, le=1)] = 0.0  # share of the requests that are answered 500

    @model_validator(mode="after")
    def _does_something(self) -> "BadVersion":
        if self.prefill == 1.0 and self.errors == 0.0:
            raise ValueError("is not bad: give prefill (a factor) or errors (a share)")
        return self


class Edit(_Part):
    """Somebody edits the service: a merge patch of its spec."""

    spec: dict[str, Any]


class DeleteObject(_Part):
    """Somebody deletes objects of a kind whose names match (`*` stands for anything)."""

    kind: str
    name: str


class EditObject(DeleteObject):
    """Somebody edits such objects: a merge patch."""

    patch: dict[str, Any]


class KillOperator(_Part):
    """The operator dies after so many further writes, before the next one, and is back after `downFor`."""

    after_writes: Annotated[int, Field(ge=0, le=10_000)] = 0
    down_for: Moment = "30s"


class ClockJump(_Part):
    """The clock of the operator's node jumps."""

    seconds: Annotated[float, Field(ge=-MOST_SECONDS, le=MOST_SECONDS, allow_inf_nan=False)]


class MetricsOutage(_Part):
    """Prometheus does not answer, for a while or for good."""

    lasts: Span | None = Field(default=None, alias="for")


class Event(_Part):
    """One thing that happens `at` a time after the service was applied."""

    at: Moment
    traffic: Traffic | None = None
    burst: Burst | None = None
    lose_pods: LosePods | None = None
    lose_node: LoseNode | None = None
    slow_node: SlowNode | None = None
    bad_version: BadVersion | None = None
    edit: Edit | None = None
    delete_object: DeleteObject | None = None
    edit_object: EditObject | None = None
    kill_operator: KillOperator | None = None
    clock_jump: ClockJump | None = None
    metrics_outage: MetricsOutage | None = None

    @model_validator(mode="after")
    def _one(self) -> "Event":
        if len(self.given) != 1:
            names = ", ".join(to_camel(n) for n in self.given) or "none"
            raise ValueError(f"says {names}: give `at` and one thing that happens")
        return self

    @property
    def given(self) -> list[str]:
        """What happens."""
        return [n for n in type(self).model_fields if n != "at" and getattr(self, n) is not None]

    @property
    def seconds(self) -> float:
        """When, since the start."""
        return duration_seconds(self.at)

    @property
    def what(self) -> Any:
        """The one thing."""
        return getattr(self, self.given[0])

    @property
    def name(self) -> str:
        """What it is called in the file."""
        return to_camel(self.given[0])


class NodeGroup(_Part):
    """Nodes that are alike, named `<name>-1`, `<name>-2`, …"""

    name: str = "node"
    count: Annotated[int, Field(ge=0, le=10_000)] = 1
    gpus: Annotated[int, Field(ge=1, le=1024)]
    accelerator: str | None = None  # AcceleratorProfile; default: spec.accelerator.type


class World(_Part):
    """Everything outside the operator."""

    duration: Span = "1h"
    seed: Annotated[int, Field(ge=0)] = 0
    window: Span | None = None  # of the table; default: a twelfth of the duration
    requests_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    startup: Moment = "2m"  # of an engine, from its node to Ready: nobody has measured it yet
    nodes: tuple[NodeGroup, ...] | None = None  # default: as many as are needed
    events: tuple[Event, ...] = ()

    @model_validator(mode="after")
    def _bounded(self) -> "World":
        if duration_seconds(self.duration) > MOST_SECONDS:
            raise ValueError("duration is more than 7d: give less")
        names = [g.name for g in self.nodes or ()]
        if len(set(names)) < len(names):
            raise ValueError("nodes: two groups have the same name: give each its own")
        return self


At = tuple[int | str, ...]


def read_world(value: Any, place: Callable[[At], str]) -> World:
    """The world in a parsed file; `place` says where a part of it is, such as `world.yaml:7`.

    Raises WorldError, one line for each fault.
    """
    if not isinstance(value, Mapping):
        raise WorldError(f"{place(())}: not a mapping: write fields such as duration and events")
    if value.get("kind", "World") != "World":
        raise WorldError(f"{place(('kind',))}: kind is {value['kind']!r}: a world file has kind World or none")
    try:
        return World.model_validate({k: v for k, v in value.items() if k != "kind"})
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        lines = [f"{place(f['loc'])}: {_line(f['loc'], f)}" for f in found]
        raise WorldError("\n".join(dict.fromkeys(lines))) from error


def _line(at: At, fault: Any) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in at).removeprefix(".")
    message = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        message = "unknown field"
    elif fault["type"] == "missing":
        message = "is missing"
    return f"{path}: {message}" if path else message
