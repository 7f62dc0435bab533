"""InferenceService spec, the part that shapes the engine: image, pins, live-tuning start, more flags, buckets."""

from typing import Annotated, ClassVar

from pydantic import Field

from firsttoken.api.base import ApiModel, PositiveInt, Rule, Rules, matches
from firsttoken.api.extra_args import DESCRIPTION, EXTRA_ARGS_RULES


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
            json_schema_extra={
                "enum": [
                    "auto",
                    "fp8",
                    "fp8_e4m3",
                    "fp8_e5m2",
                    "fp8_per_token_head",
                    "int8_per_token_head",
                    "int4_per_token_head",
                    "nvfp4",
                ]
            },
        ),
    ] = None
    attention_backend: Annotated[
        str | None,
        Field(
            description="vLLM's attention backend; those with MLA serve latent attention (DeepSeek) only.",
            json_schema_extra={
                "enum": [
                    "FLASH_ATTN",
                    "FLASHINFER",
                    "TRITON_ATTN",
                    "FLEX_ATTENTION",
                    "FLASHMLA",
                    "FLASH_ATTN_MLA",
                    "FLASHINFER_MLA",
                    "CUTLASS_MLA",
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
        Field(max_length=64, description=DESCRIPTION),
        *EXTRA_ARGS_RULES,
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
