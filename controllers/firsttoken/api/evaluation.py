"""InferenceService spec, the offline gate before a change gets traffic (M5.1)."""

from typing import Annotated, ClassVar

from pydantic import Field

from firsttoken.api.base import ApiModel, DataKey, DnsName, Fraction, Rule, Rules, matches


class ConfigMapKey(ApiModel):
    """A key of a ConfigMap in the service's namespace."""

    name: Annotated[DnsName, Field(description="Name of the ConfigMap.")]
    key: Annotated[DataKey, Field(description="Key in the ConfigMap.")] = "prompts.jsonl"


class ClaimPath(ApiModel):
    """A file on a PersistentVolumeClaim."""

    claim_name: Annotated[DnsName, Field(description="Name of the claim.")]
    path: Annotated[
        str,
        Field(min_length=1, max_length=1024, description="File below the claim's root."),
        Rule(
            "prompts-path",
            matches("^[!-.0-~][!-~]*$") + " && !self.contains('..')",
            "not a path below the claim's root: use a relative path without blanks and '..'",
        ),
    ]


class EvaluationPrompts(ApiModel):
    """Where the representative prompts are (M5.1)."""

    config_map: Annotated[ConfigMapKey | None, Field(description="Prompts in a ConfigMap, one JSON a line.")] = None
    pvc: Annotated[ClaimPath | None, Field(description="Prompts on a claim, one JSON a line.")] = None
    uri: Annotated[
        str | None,
        Field(max_length=1024, description="Prompts at s3:// or https://."),
        Rule(
            "prompts-scheme",
            matches("^(s3|https)://[!-~]+$"),
            "unknown source of prompts: use s3://bucket/file.jsonl or https://host/file.jsonl",
        ),
    ] = None

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
