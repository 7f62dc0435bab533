"""InferenceService spec, the part that says how change happens: tuning, rollout, scaling, routing, inspection."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from firsttoken.api.base import UNDEFAULTED, ApiModel, DnsName, Duration, Extension, Rule, Rules, above_zero, matches
from firsttoken.api.cron import CRON_NUMBERS, CRON_PATTERN


class TuningMode(StrEnum):
    """What the operator does with what it learns."""

    OFF = "Off"
    RECOMMEND = "Recommend"
    AUTO = "Auto"


class TokenBudgetRange(ApiModel):
    """Bounds of live tuning for the token budget."""

    min: Annotated[int, Field(ge=16, le=1_048_576, description="Smallest token budget tried, tokens.")] = 128
    max: Annotated[int, Field(ge=16, le=1_048_576, description="Largest token budget tried, tokens.")] = 8192

    RULES: ClassVar[Rules] = (
        Rule(
            "token-budget-range",
            "self.max >= self.min",
            "tokenBudget.max is below tokenBudget.min: swap them",
            ".max",
        ),
    )


class TuningSpec(ApiModel):
    """Live tuning of chunk size and decode cap."""

    mode: Annotated[TuningMode, Field(description="Off, Recommend (say, don't do) or Auto.")] = TuningMode.RECOMMEND
    token_budget: Annotated[TokenBudgetRange | None, Field(description="Bounds of the token budget.")] = None


class RolloutStep(ApiModel):
    """One weight and how long it is held at least."""

    weight: Annotated[int, Field(ge=1, le=100, description="Share of requests for the canary, percent.")]
    hold: Annotated[Duration, Field(description="Shortest time at this weight, such as 2h.")] = "0s"


class RolloutCapacity(ApiModel):
    """GPUs for a change."""

    surge_gpus: Annotated[
        int | None,
        Field(ge=0, le=100_000, description="GPUs beyond maxCount during a rollout; default: as needed."),
    ] = None
    when_full: Annotated[
        str,
        Field(
            description="With no spare GPU: Refuse (say so, change nothing) or ShrinkStable.",
            json_schema_extra={"enum": ["Refuse", "ShrinkStable"]},
        ),
    ] = "Refuse"


class RolloutSplit(ApiModel):
    """How requests are divided between canary and stable."""

    mode: Annotated[
        str,
        Field(
            description="Random, or HeaderHash: a user stays on one side.",
            json_schema_extra={"enum": ["Random", "HeaderHash"]},
        ),
    ] = "Random"
    header: Annotated[
        str | None,
        Field(max_length=128, description="Header that identifies the user, for HeaderHash."),
        Rule(
            "split-header-name",
            matches("^[A-Za-z0-9-]+$"),
            "not a header name: use letters, digits and '-', such as x-user-id",
        ),
    ] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "split-header",
            "(self.mode == 'HeaderHash') == has(self.header)",
            "header belongs to mode HeaderHash: set both, or neither",
            ".header",
        ),
    )


class RolloutAnalysis(ApiModel):
    """What the comparison is made with, how long it may take and what an undecided one does."""

    baseline: Annotated[
        str,
        Field(
            description="Compare with Stable's pods, or with Fresh pods of stable (cold caches on both sides).",
            json_schema_extra={"enum": ["Stable", "Fresh"]},
        ),
    ] = "Stable"
    on_inconclusive: Annotated[
        str,
        Field(
            description="At `deadline` without a verdict: Hold, Rollback or Manual (wait for promote or abort).",
            json_schema_extra={"enum": ["Hold", "Rollback", "Manual"]},
        ),
    ] = "Hold"
    deadline: Annotated[
        Duration | None,
        Field(description="Longest time at one weight without a verdict, such as 24h; default: none, it holds."),
        above_zero("analysis-deadline-zero", "a deadline of zero ends before anything is measured: such as 24h"),
    ] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "analysis-deadline",
            "self.onInconclusive == 'Hold' || has(self.deadline)",
            "onInconclusive acts at a deadline: set analysis.deadline too, such as 24h",
            ".deadline",
        ),
    )


class RolloutSpec(ApiModel):
    """How a change of what needs a restart reaches users."""

    steps: Annotated[
        list[RolloutStep],
        Field(
            min_length=1,
            max_length=20,
            description="Canary weights in order; after the last one the revision takes everything. Default: 10 % for "
            "2h, 50 % for 1h, then 100 %.",
        ),
        # Not stored by the API server, so that what was written out can be told from what was left out.
        Extension(UNDEFAULTED, True),
        Rule(
            "weights-rising",
            "self.map(s, s.weight).isSorted() && self.all(a, self.exists_one(b, b.weight == a.weight))",
            "step weights must rise strictly: sort the steps by weight and remove repeated weights",
        ),
    ] = [RolloutStep(weight=10, hold="2h"), RolloutStep(weight=50, hold="1h"), RolloutStep(weight=100)]
    capacity: Annotated[RolloutCapacity | None, Field(description="GPUs for a change.")] = None
    split: Annotated[RolloutSplit | None, Field(description="How requests are divided.")] = None
    analysis: Annotated[RolloutAnalysis | None, Field(description="How canary and stable are compared.")] = None
    approval: Annotated[
        str,
        Field(
            description="Automatic, or Manual: promotion waits for the promote command.",
            json_schema_extra={"enum": ["Automatic", "Manual"]},
        ),
    ] = "Automatic"
    drain_timeout: Annotated[
        Duration, Field(description="How long a revision without traffic is kept to finish its streams.")
    ] = "2m"


class ScalingSpec(ApiModel):
    """How many replicas (colocated) run."""

    mode: Annotated[
        str,
        Field(
            description="Planned: from the plan; External: `replicas` is set through /scale by HPA or KEDA.",
            json_schema_extra={"enum": ["Planned", "External"]},
        ),
    ] = "Planned"
    replicas: Annotated[
        int | None, Field(ge=0, le=10_000, description="Replicas wanted; what /scale reads and writes.")
    ] = None
    min_replicas: Annotated[int | None, Field(ge=0, le=10_000, description="Never fewer.")] = None
    max_replicas: Annotated[int | None, Field(ge=1, le=10_000, description="Never more.")] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "replicas-range",
            "!(has(self.minReplicas) && has(self.maxReplicas)) || self.minReplicas <= self.maxReplicas",
            "minReplicas is above maxReplicas: swap them",
            ".minReplicas",
        ),
        Rule(
            "replicas-one-of",
            "!(self.mode == 'Planned' && has(self.replicas) && (has(self.minReplicas) || has(self.maxReplicas)))",
            "replicas fixes the number, minReplicas and maxReplicas give a range: set one kind, or mode: External",
            ".replicas",
        ),
        Rule(
            "replicas-external",
            "self.mode != 'External' || has(self.replicas)",
            "mode External needs replicas, the number to start with: HPA and KEDA can't read /scale without it",
            ".replicas",
        ),
    )


class GatewayRef(ApiModel):
    """A Gateway of the Gateway API."""

    name: Annotated[DnsName, Field(description="Name of the Gateway.")]
    namespace: Annotated[DnsName | None, Field(description="Its namespace; default: the service's.")] = None
    section_name: Annotated[DnsName | None, Field(description="Listener of the Gateway.")] = None


class RoutingSpec(ApiModel):
    """How clients reach the service beside its ClusterIP."""

    gateway: Annotated[GatewayRef | None, Field(description="Gateway that an HTTPRoute is attached to.")] = None
    hostnames: Annotated[
        list[
            Annotated[
                str,
                Field(min_length=1, max_length=253),
                Rule(
                    "hostname",
                    matches(r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
                    "not a host name: use lower-case letters, digits, '-' and '.', such as kb.example.com",
                ),
            ]
        ],
        Field(max_length=16, description="Host names of the HTTPRoute."),
        Extension("x-kubernetes-list-type", "set"),
    ] = []

    RULES: ClassVar[Rules] = (
        Rule(
            "hostnames-without-gateway",
            "!has(self.hostnames) || has(self.gateway)",
            "hostnames belong to an HTTPRoute: name the Gateway it is attached to in routing.gateway",
            ".gateway",
        ),
    )


class InspectionSpec(ApiModel):
    """The scheduled check whether settings still fit the traffic (M6.1)."""

    schedule: Annotated[
        str,
        Field(max_length=128, description="Cron expression or @monthly."),
        Rule(
            "cron",
            matches(CRON_PATTERN),
            "not a cron expression: write five fields such as '0 6 1 * *', or @monthly",
        ),
        Rule(
            "cron-range",
            f"{CRON_NUMBERS}.findAll('[0-9]{{1,9}}-[0-9]{{1,9}}').all(r, int(r.split('-')[0]) <= int(r.split('-')[1]))",
            "a range of the cron expression runs backwards: write the smaller value first (SUN is 0)",
        ),
    ] = "@monthly"
    time_zone: Annotated[
        str,
        Field(max_length=64, description="IANA time zone of the schedule."),
        Rule(
            "time-zone",
            matches("^[A-Za-z]+([_+-]?[A-Za-z0-9]+)*(/[A-Za-z0-9_+-]+)*$"),
            "not a time zone: use an IANA name such as Europe/Berlin or UTC",
        ),
    ] = "UTC"
    history_limit: Annotated[int, Field(ge=1, le=100, description="Reports kept.")] = 12
