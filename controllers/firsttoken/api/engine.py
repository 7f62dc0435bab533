"""InferenceService spec, the part that shapes the engine's pods: image, pins, live-tuning start, pod template."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from firsttoken.api.base import ApiModel, DnsName, Extension, PositiveInt, Rule, Rules

# vLLM flags that are the operator's to set; each has a field of its own in the spec or follows from the plan.
OWNED_ENGINE_ARGS = (
    "api-key", "attention-backend", "decode-context-parallel-size", "enable-chunked-prefill",
    "enable-prefix-caching", "gpu-memory-utilization", "host", "kv-cache-dtype", "kv-transfer-config",
    "load-format", "long-prefill-token-threshold", "max-model-len", "max-num-batched-tokens", "max-num-seqs",
    "middleware", "model", "no-enable-chunked-prefill", "no-enable-prefix-caching", "pipeline-parallel-size",
    "port", "quantization", "revision", "scheduler-cls", "served-model-name", "tensor-parallel-size",
    "trust-remote-code",
)  # fmt: skip


class InitialSettings(ApiModel):
    """Where live tuning starts; tuning may leave these. To hold a value, pin it instead."""

    token_budget: Annotated[
        int | None,
        Field(ge=16, le=1_048_576, description="Tokens of one engine step (max-num-batched-tokens)."),
    ] = None
    decode_cap: Annotated[int | None, Field(ge=1, le=65_536, description="Running requests admitted at once.")] = None
    long_prefill_threshold: Annotated[
        int | None, Field(ge=0, description="Prompts longer than this many tokens count as long; 0: off.")
    ] = None


class EnginePins(ApiModel):
    """Values that neither plan nor tuning may change."""

    token_budget: Annotated[
        int | None,
        Field(ge=16, le=1_048_576, description="Tokens of one engine step (max-num-batched-tokens)."),
    ] = None
    max_num_seqs: Annotated[int | None, Field(ge=1, le=65_536, description="Requests running at once.")] = None
    tensor_parallel: Annotated[int | None, Field(ge=1, le=64, description="GPUs that share each layer.")] = None
    pipeline_parallel: Annotated[
        int | None, Field(ge=1, le=64, description="Groups of GPUs that share the layers.")
    ] = None
    gpu_memory_utilization: Annotated[
        float | None, Field(ge=0.1, le=0.99, description="Share of GPU memory that vLLM may take.")
    ] = None
    kv_cache_dtype: Annotated[
        str | None,
        Field(
            description="Type of the KV cache; anything but auto changes numerics.",
            json_schema_extra={"enum": ["auto", "fp8", "fp8_e4m3", "fp8_e5m2"]},
        ),
    ] = None
    attention_backend: Annotated[
        str | None,
        Field(
            description="vLLM's attention backend.",
            json_schema_extra={
                "enum": [
                    "FLASH_ATTN",
                    "FLASHINFER",
                    "TRITON_ATTN",
                    "FLEX_ATTENTION",
                    "FLASHMLA",
                    "TRITON_MLA",
                ]
            },
        ),
    ] = None
    prefix_caching: Annotated[bool | None, Field(description="Reuse KV of equal prompt prefixes.")] = None
    chunked_prefill: Annotated[bool | None, Field(description="Cut long prompts into pieces of the token budget.")] = (
        None
    )


class EngineSpec(ApiModel):
    """vLLM: its image and what is fixed about it."""

    image: Annotated[
        str | None, Field(min_length=1, max_length=512, description="Runtime image; default: the operator's.")
    ] = None
    initial: Annotated[InitialSettings | None, Field(description="Where live tuning starts.")] = None
    pins: Annotated[EnginePins | None, Field(description="Values that nothing may change.")] = None
    extra_args: Annotated[
        dict[str, Annotated[str, Field(max_length=2048)]],
        Field(max_length=64, description="More vLLM flags without dashes, such as seed: '1'; '' is a bare flag."),
        Rule(
            "extra-args-owned",
            "self.all(k, !(k in [" + ", ".join(f"'{a}'" for a in OWNED_ENGINE_ARGS) + "]))",
            "extraArgs sets a flag the operator owns: use spec.engine.pins, spec.engine.initial or spec.model instead",
        ),
        Rule(
            "extra-args-name",
            "self.all(k, k.matches('^[a-z][a-z0-9-]{0,62}$'))",
            "extraArgs keys are vLLM's flags without the leading dashes, in lower case, such as max-log-len",
        ),
    ] = {}

    RULES: ClassVar[Rules] = (
        Rule(
            "initial-and-pin",
            "!(has(self.initial) && has(self.initial.tokenBudget) && has(self.pins) && has(self.pins.tokenBudget))",
            "initial.tokenBudget and pins.tokenBudget exclude each other: pin the value, or let tuning start from it",
        ),
    )


class TemplateMetadata(ApiModel):
    """Labels and annotations for the engines' pods."""

    labels: Annotated[
        dict[str, Annotated[str, Field(max_length=63)]],
        Field(max_length=32, description="More labels for the pods."),
        Rule(
            "template-own-labels",
            "self.all(k, !k.startsWith('firsttoken.dev/') && !k.startsWith('app.kubernetes.io/'))",
            "labels below firsttoken.dev/ and app.kubernetes.io/ are the operator's: use a prefix of your own",
        ),
    ] = {}
    annotations: Annotated[
        dict[str, Annotated[str, Field(max_length=4096)]],
        Field(max_length=32, description="More annotations for the pods."),
        Rule(
            "template-own-annotations",
            "self.all(k, !k.startsWith('firsttoken.dev/'))",
            "annotations below firsttoken.dev/ are the operator's: use a prefix of your own",
        ),
    ] = {}


# Kubernetes' own types, passed through as they are; the API server validates them when the Deployment is applied.
Passthrough = Annotated[dict[str, Any], Extension("x-kubernetes-preserve-unknown-fields", True)]


class TemplatePodSpec(ApiModel):
    """Pod fields a user may set; everything else of the pod is the operator's."""

    node_selector: Annotated[
        dict[str, Annotated[str, Field(max_length=63)]],
        Field(max_length=32, description="Labels a node must have, beside those of the AcceleratorProfile."),
    ] = {}
    tolerations: Annotated[list[Passthrough], Field(max_length=32, description="Taints the pods accept.")] = []
    image_pull_secrets: Annotated[list[Passthrough], Field(max_length=16, description="Registry credentials.")] = []
    service_account_name: Annotated[DnsName | None, Field(description="Identity of the engines' pods.")] = None
    priority_class_name: Annotated[DnsName | None, Field(description="Scheduling priority.")] = None
    runtime_class_name: Annotated[DnsName | None, Field(description="Container runtime, such as nvidia.")] = None
    scheduler_name: Annotated[DnsName | None, Field(description="Scheduler, such as volcano.")] = None
    termination_grace_period_seconds: Annotated[
        int | None, Field(ge=1, le=86_400, description="Time a pod gets to finish its streams, seconds.")
    ] = None
    volumes: Annotated[list[Passthrough], Field(max_length=32, description="More volumes.")] = []


class TemplateEngine(ApiModel):
    """What a user may add to the engine's container."""

    env: Annotated[list[Passthrough], Field(max_length=64, description="More environment variables.")] = []
    resources: Annotated[
        Passthrough | None,
        Field(description="CPU and memory; GPUs follow from the plan and can't be set here."),
    ] = None
    volume_mounts: Annotated[list[Passthrough], Field(max_length=32, description="More mounts.")] = []


class PodTemplate(ApiModel):
    """Overlay on the engines' pods for what the operator does not know."""

    metadata: Annotated[TemplateMetadata | None, Field(description="More labels and annotations.")] = None
    spec: Annotated[TemplatePodSpec | None, Field(description="Pod fields.")] = None
    engine: Annotated[TemplateEngine | None, Field(description="Container fields of the engine.")] = None


class MeasurementSpec(ApiModel):
    """How latency is counted."""

    prompt_token_buckets: Annotated[
        list[PositiveInt],
        Field(
            min_length=1,
            max_length=16,
            description="Upper bounds of the prompt-length buckets, tokens, rising.",
        ),
        Rule(
            "bucket-bounds-rising",
            "self.isSorted() && self.all(a, self.exists_one(b, b == a))",
            "bucket bounds must rise strictly: sort promptTokenBuckets and remove repeated bounds",
        ),
    ] = [64, 256, 512, 1024, 4096, 16384]
