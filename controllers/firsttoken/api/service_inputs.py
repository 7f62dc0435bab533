"""InferenceService spec, the part that says what is to be served: model, accelerator, workload, SLOs, layout."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from firsttoken.api.architecture import Architecture, InlineArchitecture, Tokens
from firsttoken.api.base import (
    ApiModel,
    DataKey,
    DnsName,
    Duration,
    Rule,
    Rules,
    above_zero,
    matches,
    size_rule,
)

__all__ = [
    "BUCKET_PATTERN",
    "SLO",
    "AcceleratorSpec",
    "Architecture",
    "InlineArchitecture",
    "LayoutMode",
    "LayoutSpec",
    "ModelCache",
    "ModelSpec",
    "Profile",
    "RoleAccelerator",
    "SecretKey",
    "TokenDistribution",
    "Tokens",
    "WorkloadSpec",
]


class Profile(StrEnum):
    """Workload profiles of M7."""

    SUMMARIZATION = "Summarization"
    CHAT = "Chat"
    CODE_COMPLETION = "CodeCompletion"
    OFFLINE_BATCH = "OfflineBatch"
    KNOWLEDGE_QA = "KnowledgeQA"


class LayoutMode(StrEnum):
    """Where prefill and decode run."""

    AUTO = "Auto"
    COLOCATED = "Colocated"
    DISAGGREGATED = "Disaggregated"


class SecretKey(ApiModel):
    """A key of a Secret in the service's namespace."""

    name: Annotated[DnsName, Field(description="Name of the Secret.")]
    key: Annotated[DataKey, Field(description="Key of the token for hf://; s3:// reads keys of fixed names.")] = "token"


class ModelCache(ApiModel):
    """Where downloaded weights are kept: a claim (survives pods) or the node's disk (does not)."""

    claim_name: Annotated[
        DnsName | None, Field(description="PersistentVolumeClaim, ReadWriteMany for several pods.")
    ] = None
    size_limit: Annotated[
        str | None,
        Field(max_length=32, description="Limit of the emptyDir, such as 200Gi; default: none."),
        size_rule("cache-size-limit", "200Gi"),
    ] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "cache-one-of",
            "!(has(self.claimName) && has(self.sizeLimit))",
            "claimName and sizeLimit exclude each other: a claim has its own size, sizeLimit is for the node's disk",
        ),
    )


class ModelSpec(ApiModel):
    """The model and where its weights come from."""

    uri: Annotated[
        str,
        Field(
            min_length=6,
            max_length=1024,
            description="Weights: hf://org/name, pvc://claim/path, oci://registry/image:tag or s3://bucket/path.",
        ),
        Rule(
            "model-scheme",
            matches("^(hf|pvc|oci|s3)://[^/]"),
            "unknown model source: use hf://org/name, pvc://claim/path, oci://registry/image:tag or s3://bucket/path",
        ),
        Rule(
            "model-uri-characters",
            matches("^[!-~]*$") + " && !self.contains('/..')",
            "a model source is ASCII without blanks and without '..': escape other characters as in a URL",
        ),
    ]
    revision: Annotated[
        str | None,
        Field(min_length=1, max_length=128, description="Git revision of an hf:// model; pin a commit."),
        Rule(
            "model-revision-characters",
            matches("^[A-Za-z0-9][-A-Za-z0-9._/]*$"),
            "not a git revision: use a commit, branch or tag",
        ),
    ] = None
    name: Annotated[
        str | None,
        Field(min_length=1, max_length=128, description="Name clients ask for; default: the last part of uri."),
        Rule(
            "model-name-characters",
            matches("^[A-Za-z0-9][-A-Za-z0-9._:/]*$"),
            "not a model name: use letters, digits, '-', '_', '.', ':' and '/', starting with a letter or digit",
        ),
    ] = None
    max_model_length: Annotated[
        Tokens | None,
        Field(description="Longest prompt plus output, tokens; default: what the workload needs."),
    ] = None
    quantization: Annotated[
        str | None,
        Field(
            description="How the weights are stored, in vLLM's names; default: as the model's config says.",
            json_schema_extra={
                "enum": ["fp8", "awq", "gptq", "compressed-tensors", "bitsandbytes", "modelopt", "mxfp4"]
            },
        ),
    ] = None
    architecture: Annotated[
        Architecture | None, Field(description="The model's shape; default: found in the catalogue by uri.")
    ] = None
    trust_remote_code: Annotated[bool, Field(description="Run code that comes with the model. Off unless needed.")] = (
        False
    )
    credentials: Annotated[
        SecretKey | None,
        Field(
            description="Secret with the token for hf:// (at `key`), or for s3:// with AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN and AWS_ENDPOINT_URL if needed); by reference only."
        ),
    ] = None
    cache: Annotated[ModelCache | None, Field(description="Where downloaded weights are kept.")] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "model-revision-scheme",
            "!has(self.revision) || self.uri.startsWith('hf://')",
            "revision is a git revision and belongs to hf://: pin another source by its tag, digest or path",
            ".revision",
        ),
        Rule(
            "model-credentials-scheme",
            "!has(self.credentials) || self.uri.startsWith('hf://') || self.uri.startsWith('s3://')",
            "credentials belong to hf:// and s3://: use podTemplate.spec.imagePullSecrets for oci://, nothing for pvc://",
            ".credentials",
        ),
        Rule(
            "model-credentials-key",
            "!has(self.credentials) || !self.uri.startsWith('s3://') || self.credentials.key == 'token'",
            "s3:// reads the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the Secret: remove credentials.key",
            ".credentials.key",
        ),
        Rule(
            "model-cache-scheme",
            "!has(self.cache) || self.uri.startsWith('hf://') || self.uri.startsWith('s3://')",
            "cache belongs to sources that are downloaded (hf://, s3://): remove it",
            ".cache",
        ),
    )


class RoleAccelerator(ApiModel):
    """GPU type of one role of a disaggregated layout."""

    type: Annotated[DnsName, Field(description="Name of an AcceleratorProfile.")]


class AcceleratorSpec(ApiModel):
    """Which GPUs, and how many at most."""

    type: Annotated[DnsName, Field(description="Name of an AcceleratorProfile, such as nvidia-a100-40gb.")]
    max_count: Annotated[
        int | None,
        Field(
            ge=1,
            le=100_000,
            description="Hard budget of GPUs over all roles, a canary's surge excluded; without it "
            "spec.scaling decides (one replica if that says nothing).",
        ),
    ] = None
    prefill: Annotated[
        RoleAccelerator | None, Field(description="GPU type of prefill when it differs (compute counts).")
    ] = None
    decode: Annotated[
        RoleAccelerator | None,
        Field(description="GPU type of decode when it differs (memory bandwidth counts)."),
    ] = None


class TokenDistribution(ApiModel):
    """Two quantiles of a token count."""

    p50: Annotated[Tokens, Field(description="Median, tokens.")]
    p95: Annotated[Tokens, Field(description="95th percentile, tokens.")]

    RULES: ClassVar[Rules] = (
        Rule(
            "tokens-p95-below-p50",
            "self.p95 >= self.p50",
            "p95 is below p50: the 95th percentile can't be smaller than the median",
            ".p95",
        ),
    )


class WorkloadSpec(ApiModel):
    """What clients send. Everything left out comes from the profile (M7)."""

    profile: Annotated[Profile, Field(description="Kind of load; sets defaults for lengths, SLOs and tuning.")] = (
        Profile.CHAT
    )
    prompt_tokens: Annotated[
        TokenDistribution | None,
        Field(description="Prompt length after the chat template, cached part included."),
    ] = None
    output_tokens: Annotated[TokenDistribution | None, Field(description="Output length.")] = None
    requests_per_second: Annotated[
        float | None,
        Field(gt=0, le=1_000_000, description="Arrival rate at the busy hour, requests a second."),
    ] = None
    shared_prefix_tokens: Annotated[
        int | None, Field(ge=0, le=2**31 - 1, description="Tokens at the start that most prompts share.")
    ] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "shared-prefix-above-p95",
            "!has(self.sharedPrefixTokens) || !has(self.promptTokens)"
            " || self.sharedPrefixTokens <= self.promptTokens.p95",
            "sharedPrefixTokens is above promptTokens.p95: a shared prefix is part of the prompt and can't be longer",
            ".sharedPrefixTokens",
        ),
    )


BUCKET_PATTERN = r"^((0|[1-9][0-9]{0,9})-[1-9][0-9]{0,9}|[1-9][0-9]{0,9}\+)$"


class SLO(ApiModel):
    """One promise: a percentile of a metric, for one prompt-length bucket or all."""

    metric: Annotated[
        str,
        Field(
            description="TTFT (time to first token) or TPOT (time per output token after it).",
            json_schema_extra={"enum": ["TTFT", "TPOT"]},
        ),
    ]
    percentile: Annotated[int, Field(description="Which percentile.", json_schema_extra={"enum": [50, 90, 95, 99]})] = (
        95
    )
    prompt_tokens: Annotated[
        str,
        Field(max_length=32, description="Prompt-length bucket such as 512-1024 or 16384+; all: every request."),
        Rule(
            "slo-bucket",
            matches(BUCKET_PATTERN.replace("^(", "^(all|")),
            "not a bucket: write all, a range such as 512-1024, or an open end such as 16384+",
        ),
    ] = "all"
    target: Annotated[
        Duration,
        Field(description="What the percentile must not exceed, such as 1200ms."),
        above_zero("slo-target-zero", "a target of zero can't be met: write what users accept, such as 1200ms"),
    ]


class LayoutSpec(ApiModel):
    """Prefill and decode on the same GPUs or apart."""

    mode: Annotated[
        LayoutMode,
        Field(description="Auto starts colocated and proposes a split when measurements say so."),
    ] = LayoutMode.AUTO
