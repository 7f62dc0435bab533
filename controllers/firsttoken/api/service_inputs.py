"""InferenceService spec, the part that says what is to be served: model, accelerator, workload, SLOs, layout."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from firsttoken.api.base import ApiModel, DnsName, Duration, PositiveInt, Rule, Rules

Tokens = PositiveInt


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


class InlineArchitecture(ApiModel):
    """Facts of a model that is not in the catalogue, named as in its Hugging Face config.json."""

    hidden_size: Annotated[PositiveInt, Field(description="Width of the residual stream.")]
    num_hidden_layers: Annotated[int, Field(ge=1, le=1000, description="Transformer layers.")]
    num_attention_heads: Annotated[int, Field(ge=1, le=4096, description="Query heads a layer.")]
    num_key_value_heads: Annotated[
        int | None, Field(ge=1, le=4096, description="KV heads a layer (GQA, MQA); default: the query heads.")
    ] = None
    head_dim: Annotated[
        int | None,
        Field(ge=8, le=1024, description="Elements of a head; default: hiddenSize / numAttentionHeads."),
    ] = None
    intermediate_size: Annotated[PositiveInt, Field(description="Width of the (dense) feed-forward layer.")]
    vocab_size: Annotated[PositiveInt, Field(description="Rows of the embedding.")]
    max_position_embeddings: Annotated[Tokens, Field(description="Longest sequence the model was made for, tokens.")]
    tie_word_embeddings: Annotated[bool, Field(description="Input and output embedding share their weights.")] = False
    gated_mlp: Annotated[bool, Field(description="Feed-forward with a gate (SwiGLU): three matrices, not two.")] = True
    sliding_window: Annotated[
        int | None, Field(ge=1, description="Attention window in tokens, if every layer has one.")
    ] = None
    alibi: Annotated[bool, Field(description="Positions by ALiBi (Falcon, MPT): rules out some kernels.")] = False
    num_experts: Annotated[int | None, Field(ge=2, le=4096, description="Experts a layer (MoE).")] = None
    num_experts_per_tok: Annotated[
        int | None, Field(ge=1, le=4096, description="Experts each token is sent to (MoE).")
    ] = None
    moe_intermediate_size: Annotated[
        int | None, Field(ge=1, description="Width of one expert; default: intermediateSize.")
    ] = None
    parameters: Annotated[
        int | None, Field(ge=1, description="Published parameter count; replaces the computed one.")
    ] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "architecture-moe-pair",
            "has(self.numExperts) == has(self.numExpertsPerTok)",
            "numExperts and numExpertsPerTok belong together: give both for a mixture of experts, or neither",
        ),
        Rule(
            "architecture-kv-heads",
            "!has(self.numKeyValueHeads) || self.numAttentionHeads % self.numKeyValueHeads == 0",
            "numKeyValueHeads must divide numAttentionHeads: copy both from the model's config.json",
            ".numKeyValueHeads",
        ),
    )


class Architecture(ApiModel):
    """Where the planner takes the model's shape from: a catalogue entry or facts given here."""

    preset: Annotated[
        str | None, Field(min_length=1, max_length=96, description="Name in Firsttoken's model catalogue.")
    ] = None
    inline: Annotated[InlineArchitecture | None, Field(description="Facts of a model not in the catalogue.")] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "architecture-one-of",
            "has(self.preset) != has(self.inline)",
            "set exactly one of preset (a name in the catalogue) and inline (facts from config.json)",
        ),
    )


class SecretKey(ApiModel):
    """A key of a Secret in the service's namespace."""

    name: Annotated[DnsName, Field(description="Name of the Secret.")]
    key: Annotated[str, Field(min_length=1, max_length=253, description="Key in the Secret.")] = "token"


class ModelCache(ApiModel):
    """Where downloaded weights are kept: a claim (survives pods) or the node's disk (does not)."""

    claim_name: Annotated[
        DnsName | None, Field(description="PersistentVolumeClaim, ReadWriteMany for several pods.")
    ] = None
    size_limit: Annotated[
        str | None,
        Field(max_length=32, description="Limit of the emptyDir, such as 200Gi; default: none."),
        Rule(
            "cache-size-limit",
            "self.matches('^[0-9]+(\\\\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$')",
            "not a quantity: write a number with a unit, such as 200Gi",
        ),
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
            "self.matches('^(hf|pvc|oci|s3)://[^/]')",
            "unknown model source: use hf://org/name, pvc://claim/path, oci://registry/image:tag or s3://bucket/path",
        ),
    ]
    revision: Annotated[
        str | None,
        Field(min_length=1, max_length=128, description="Git revision of an hf:// model; pin a commit."),
    ] = None
    name: Annotated[
        str | None,
        Field(min_length=1, max_length=128, description="Name clients ask for; default: the last part of uri."),
    ] = None
    max_model_length: Annotated[
        Tokens | None,
        Field(description="Longest prompt plus output, tokens; default: what the workload needs."),
    ] = None
    quantization: Annotated[
        str | None,
        Field(
            description="How the weights are stored, in vLLM's names; default: as the model's config says.",
            json_schema_extra={"enum": ["fp8", "awq", "gptq", "compressed-tensors", "bitsandbytes"]},
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
        Field(description="Secret with the token for hf:// or keys for s3://; by reference only."),
    ] = None
    cache: Annotated[ModelCache | None, Field(description="Where downloaded weights are kept.")] = None


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
            description="Hard budget of GPUs over all roles, a canary's surge excluded; default: one replica's.",
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
            "!has(self.sharedPrefixTokens) || !has(self.promptTokens) || self.sharedPrefixTokens <= self.promptTokens.p95",
            "sharedPrefixTokens is above promptTokens.p95: a shared prefix is part of the prompt and can't be longer",
            ".sharedPrefixTokens",
        ),
    )


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
            "self.matches('^(all|[0-9]+-[0-9]+|[0-9]+\\\\+)$')",
            "not a bucket: write all, a range such as 512-1024, or an open end such as 16384+",
        ),
    ] = "all"
    target: Annotated[Duration, Field(description="What the percentile must not exceed, such as 1200ms.")]


class LayoutSpec(ApiModel):
    """Prefill and decode on the same GPUs or apart."""

    mode: Annotated[
        LayoutMode,
        Field(description="Auto starts colocated and proposes a split when measurements say so."),
    ] = LayoutMode.AUTO
