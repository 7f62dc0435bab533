"""InferenceService spec, the part that shapes the engine: image, pins, live-tuning start, more flags, buckets."""

from typing import Annotated, ClassVar

from pydantic import Field

from firsttoken.api.base import ApiModel, PositiveInt, Rule, Rules, cel_list, matches, text_budget

# vLLM flags that are the operator's to set; each has a field of its own in the spec or follows from the plan.
# vLLM reads `no-` forms, short forms and (by argparse) unambiguous beginnings as well: those are owned with them.
OWNED_ENGINE_ARGS = (
    "api-key", "async-scheduling", "attention-backend", "attention-config", "config", "data-parallel-address",
    "data-parallel-backend", "data-parallel-external-lb", "data-parallel-hybrid-lb", "data-parallel-rank",
    "data-parallel-rpc-port", "data-parallel-size", "data-parallel-size-local", "data-parallel-start-rank",
    "decode-context-parallel-size", "disable-log-stats", "distributed-executor-backend", "download-dir",
    "enable-chunked-prefill", "enable-logging-iteration-details", "enable-prefix-caching", "gpu-memory-utilization",
    "headless", "hf-token", "host", "kv-cache-dtype", "kv-cache-memory-bytes", "kv-transfer-config", "load-format",
    "long-prefill-token-threshold", "master-addr", "master-port", "max-model-len", "max-num-batched-tokens",
    "max-num-seqs", "middleware", "model", "nnodes", "node-rank", "num-gpu-blocks-override",
    "pipeline-parallel-size", "port", "prefill-context-parallel-size", "quantization", "revision", "root-path",
    "scheduler-cls", "served-model-name", "ssl-ca-certs", "ssl-cert-reqs", "ssl-certfile", "ssl-keyfile",
    "tensor-parallel-size", "trust-remote-code", "uds", "worker-cls",
)  # fmt: skip
OWNED_SHORT_ARGS = ("ac", "dcp", "dp", "dpa", "dpb", "dpl", "dpn", "dpp", "dpr", "pcp", "pp", "q", "r", "tp")
_OWNED_ARG = (
    f"(k in {cel_list(OWNED_SHORT_ARGS)} || "
    f"{cel_list(OWNED_ENGINE_ARGS)}.exists(a, a.startsWith(k) || ('no-' + a).startsWith(k)))"
)


class InitialSettings(ApiModel):
    """Where live tuning starts; tuning may leave these. To hold a value, pin it instead."""

    token_budget: Annotated[
        int | None,
        Field(ge=16, le=1_048_576, description="Tokens of one engine step (max-num-batched-tokens)."),
    ] = None
    decode_cap: Annotated[int | None, Field(ge=1, le=65_536, description="Running requests admitted at once.")] = None
    long_prefill_threshold: Annotated[
        int | None,
        Field(ge=0, le=2**31 - 1, description="Prompts longer than this many tokens count as long; 0: off."),
    ] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "initial-budget-below-decode-cap",
            "!(has(self.tokenBudget) && has(self.decodeCap)) || self.tokenBudget > self.decodeCap",
            "tokenBudget leaves no room for prefill: raise it above decodeCap (each running request takes one token)",
            ".tokenBudget",
        ),
    )


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
        float | None,
        Field(ge=0, le=1, description="Share of GPU memory that vLLM may take, 0.1 to 0.99."),
        # The API server compares whole numbers with truncated bounds (0 would pass `minimum: 0.1`): CEL does not.
        Rule(
            "memory-utilization-range",
            "self >= 0.1 && self <= 0.99",
            "gpuMemoryUtilization is a share of the GPU's memory: use 0.1 to 0.99, such as 0.9",
        ),
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

    RULES: ClassVar[Rules] = (
        Rule(
            "pins-budget-below-seqs",
            "!(has(self.tokenBudget) && has(self.maxNumSeqs)) || self.tokenBudget >= self.maxNumSeqs",
            "tokenBudget is below maxNumSeqs and vLLM won't start: each running request takes one token of a step",
            ".tokenBudget",
        ),
    )


class EngineSpec(ApiModel):
    """vLLM: its image and what is fixed about it."""

    image: Annotated[
        str | None,
        Field(min_length=1, max_length=512, description="Runtime image; default: the operator's."),
        Rule(
            "image-reference",
            matches("^[A-Za-z0-9][-A-Za-z0-9._:/@]*$"),
            "not an image reference: write registry/name:tag or registry/name@sha256:digest",
        ),
    ] = None
    initial: Annotated[InitialSettings | None, Field(description="Where live tuning starts.")] = None
    pins: Annotated[EnginePins | None, Field(description="Values that nothing may change.")] = None
    extra_args: Annotated[
        dict[
            str,
            Annotated[
                str,
                Field(max_length=4096),
                Rule(
                    "extra-args-value",
                    matches("^[^\\x00-\\x1f\\x7f]*$"),
                    "an extra argument holds a newline or control character: write it on one line",
                ),
            ],
        ],
        Field(max_length=64, description="More vLLM flags without dashes, such as seed: '1'; '' is a bare flag."),
        Rule(
            "extra-args-name",
            "self.all(k, k.matches('^[a-z][a-z0-9-]*$') && k.size() <= 63)",
            "extraArgs keys are vLLM's flags without leading dashes, in lower case with '-', such as max-log-len",
            message_cel="'extraArgs has ' + self.filter(k, !k.matches('^[a-z][a-z0-9-]*$') || k.size() > 63)[0]"
            " + ': write vLLM flags without leading dashes, in lower case with -, such as max-log-len'",
        ),
        Rule(
            "extra-args-owned",
            f"!self.exists(k, {_OWNED_ARG})",
            "extraArgs sets a flag the operator owns: use spec.engine.pins, spec.engine.initial or spec.model instead",
            message_cel=f"'extraArgs sets ' + self.filter(k, {_OWNED_ARG})[0]"
            " + ', a flag the operator owns: use spec.engine.pins, spec.engine.initial or spec.model instead'",
        ),
        text_budget("extra-args-budget", "extraArgs", 8_192),
    ] = {}

    RULES: ClassVar[Rules] = (
        Rule(
            "initial-and-pin",
            "!(has(self.initial) && has(self.initial.tokenBudget) && has(self.pins) && has(self.pins.tokenBudget))",
            "initial.tokenBudget and pins.tokenBudget exclude each other: pin the value, or let tuning start from it",
        ),
    )


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
