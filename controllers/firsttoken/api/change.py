"""InferenceService spec, the part that says how change happens: tuning, rollout, evaluation, scaling, inspection."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from firsttoken.api.base import ApiModel, DnsName, Duration, Fraction, Rule, Rules

# Minute, hour, day of month, month, day of week; or a macro. Names (JAN, MON) are accepted as cron does.
_NUMBER = {
    "minute": "[0-5]?[0-9]",
    "hour": "([01]?[0-9]|2[0-3])",
    "day": "(0?[1-9]|[12][0-9]|3[01])",
    "month": "(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)",
    "weekday": "([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)",
}


def _cron_field(number: str) -> str:
    part = f"(\\\\*|{number}(-{number})?)(/[1-9][0-9]*)?"
    return f"{part}(,{part})*"


CRON_PATTERN = (
    "^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|"
    + " +".join(_cron_field(_NUMBER[f]) for f in ("minute", "hour", "day", "month", "weekday"))
    + ")$"
)


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
            "self.matches('^[A-Za-z0-9-]+$')",
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
    """What the comparison is made with and what an undecided one does."""

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
            description="At the deadline without a verdict: Hold, Rollback or Manual.",
            json_schema_extra={"enum": ["Hold", "Rollback", "Manual"]},
        ),
    ] = "Hold"


class RolloutSpec(ApiModel):
    """How a change of what needs a restart reaches users."""

    steps: Annotated[
        list[RolloutStep],
        Field(min_length=1, max_length=20, description="Canary weights in order."),
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


class ConfigMapKey(ApiModel):
    """A key of a ConfigMap in the service's namespace."""

    name: Annotated[DnsName, Field(description="Name of the ConfigMap.")]
    key: Annotated[str, Field(min_length=1, max_length=253, description="Key in the ConfigMap.")] = "prompts.jsonl"


class ClaimPath(ApiModel):
    """A file on a PersistentVolumeClaim."""

    claim_name: Annotated[DnsName, Field(description="Name of the claim.")]
    path: Annotated[str, Field(min_length=1, max_length=1024, description="File below the claim's root.")]


class EvaluationPrompts(ApiModel):
    """Where the representative prompts are (M5.1)."""

    config_map: Annotated[ConfigMapKey | None, Field(description="Prompts in a ConfigMap, one JSON a line.")] = None
    pvc: Annotated[ClaimPath | None, Field(description="Prompts on a claim, one JSON a line.")] = None
    uri: Annotated[str | None, Field(max_length=1024, description="Prompts at s3:// or https://.")] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "prompts-one-of",
            "[has(self.configMap), has(self.pvc), has(self.uri)].exists_one(x, x)",
            "set exactly one of configMap, pvc and uri",
        ),
    )


class EvaluationThresholds(ApiModel):
    """Similarity a candidate must keep, relative to stable against itself."""

    rouge_l: Annotated[Fraction | None, Field(description="ROUGE-L, 0 to 1.")] = None
    embedding_cosine: Annotated[Fraction | None, Field(description="Cosine of embeddings, 0 to 1.")] = None
    exact_match: Annotated[Fraction | None, Field(description="Share of equal answers, 0 to 1.")] = None


class HumanReview(ApiModel):
    """Answers a person looks at before traffic moves."""

    fraction: Annotated[Fraction, Field(description="Share of the prompts published for review, 0 to 1.")] = 0.1
    required: Annotated[bool, Field(description="Wait for the approve command.")] = False


class EvaluationSpec(ApiModel):
    """The offline gate before a change gets traffic (M5.1)."""

    prompts: Annotated[EvaluationPrompts | None, Field(description="Representative prompts; without: no gate.")] = None
    min_prompts: Annotated[int, Field(ge=1, le=100_000, description="Fewest prompts that count as evidence.")] = 100
    thresholds: Annotated[EvaluationThresholds | None, Field(description="Default: the profile's.")] = None
    human_review: Annotated[HumanReview | None, Field(description="Review by a person.")] = None


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
    )


class GatewayRef(ApiModel):
    """A Gateway of the Gateway API."""

    name: Annotated[DnsName, Field(description="Name of the Gateway.")]
    namespace: Annotated[DnsName | None, Field(description="Its namespace; default: the service's.")] = None
    section_name: Annotated[DnsName | None, Field(description="Listener of the Gateway.")] = None


class RoutingSpec(ApiModel):
    """How clients reach the service beside its ClusterIP."""

    gateway: Annotated[GatewayRef | None, Field(description="Gateway that an HTTPRoute is attached to.")] = None
    hostnames: Annotated[list[DnsName], Field(max_length=16, description="Host names of the HTTPRoute.")] = []


class InspectionSpec(ApiModel):
    """The scheduled check whether settings still fit the traffic (M6.1)."""

    schedule: Annotated[
        str,
        Field(max_length=128, description="Cron expression or @monthly."),
        Rule(
            "cron",
            f"self.matches('{CRON_PATTERN}')",
            "not a cron expression: write five fields such as '0 6 1 * *', or @monthly",
        ),
    ] = "@monthly"
    time_zone: Annotated[
        str,
        Field(max_length=64, description="IANA time zone of the schedule."),
        Rule(
            "time-zone",
            "self.matches('^[A-Za-z]+([_+-]?[A-Za-z0-9]+)*(/[A-Za-z0-9_+-]+)*$')",
            "not a time zone: use an IANA name such as Europe/Berlin or UTC",
        ),
    ] = "UTC"
    history_limit: Annotated[int, Field(ge=1, le=100, description="Reports kept.")] = 12
