"""Which vLLM flags `spec.engine.extraArgs` may set (docs/decisions/0009): names for vLLM 0.32, without the dashes."""

from typing import NamedTuple

from firsttoken.api.base import Rule, cel_list, cel_text, text_budget


class Group(NamedTuple):
    """Flags that are allowed for one reason; `switches` are boolean and have a `no-` form too."""

    why: str
    flags: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


GROUPS = (
    Group(
        "how text becomes tokens, and defaults of sampling",
        (
            "chat-template", "chat-template-content-format", "code-revision", "config-format",
            "default-chat-template-kwargs", "generation-config", "hf-overrides", "model-impl",
            "override-generation-config", "response-role", "tokenizer", "tokenizer-mode", "tokenizer-revision",
        ),
    ),
    Group(
        "how answers are taken apart and what they say",
        ("logprobs-mode", "max-logprobs", "reasoning-parser", "structured-outputs-config", "tool-call-parser"),
        (
            "enable-auto-tool-choice", "enable-force-include-usage", "enable-prompt-tokens-details",
            "enable-request-id-headers", "exclude-tools-when-tool-choice-none", "return-tokens-as-token-ids",
        ),
    ),
    Group(
        "numerics and kernels that take no more memory than planned",
        ("dtype", "linear-backend", "moe-backend", "seed"),
        ("disable-cascade-attn", "disable-custom-all-reduce", "enable-flashinfer-autotune", "enforce-eager"),
    ),
    Group(
        "images, audio and video in prompts",
        ("allowed-media-domains", "limit-mm-per-prompt", "media-io-kwargs", "mm-processor-kwargs"),
        ("interleave-mm-strings", "language-model-only"),
    ),
    Group(
        "less to log and to show",
        ("disable-access-log-for-endpoints", "show-hidden-metrics-for-version", "uvicorn-log-level"),
        ("disable-fastapi-docs", "disable-uvicorn-access-log", "use-tqdm-on-load"),
    ),
)  # fmt: skip
FLAGS = tuple(sorted(flag for group in GROUPS for flag in (*group.flags, *group.switches)))
ALLOWED_ARGS = tuple(sorted({*FLAGS, *(f"no-{flag}" for group in GROUPS for flag in group.switches)}))

# Flags that are the operator's to set; each has a field of its own in the spec or follows from the plan. They have a
# message of their own; what else isn't allowed has another, abbreviations included (argparse would complete them).
OWNED_ENGINE_ARGS = (
    "api-key", "async-scheduling", "attention-backend", "attention-config", "config", "data-parallel-address",
    "data-parallel-backend", "data-parallel-external-lb", "data-parallel-hybrid-lb", "data-parallel-rank",
    "data-parallel-rpc-port", "data-parallel-size", "data-parallel-size-local", "data-parallel-start-rank",
    "decode-context-parallel-size", "disable-log-stats", "distributed-executor-backend", "download-dir",
    "enable-chunked-prefill", "enable-logging-iteration-details", "enable-prefix-caching", "gpu-memory-utilization",
    "headless", "hf-token", "host", "kv-cache-dtype", "kv-cache-memory-bytes", "kv-transfer-config", "load-format",
    "long-prefill-token-threshold", "master-addr", "master-port", "max-model-len", "max-num-active-seqs",
    "max-num-batched-tokens", "max-num-scheduled-tokens", "max-num-seqs", "middleware", "model", "nnodes", "node-rank",
    "num-gpu-blocks-override", "pipeline-parallel-size", "port", "prefill-context-parallel-size", "quantization",
    "revision", "root-path", "scheduler-cls", "served-model-name", "ssl-ca-certs", "ssl-cert-reqs", "ssl-certfile",
    "ssl-keyfile", "tensor-parallel-size", "trust-remote-code", "uds", "worker-cls",
)  # fmt: skip
OWNED_SHORT_ARGS = ("ac", "dcp", "dp", "dpa", "dpb", "dpl", "dpn", "dpp", "dpr", "pcp", "pp", "q", "r", "tp")

_NAME = "(k.matches('^[a-z][a-z0-9-]*$') && k.size() <= 63)"
_OWNED = f"(k in {cel_list((*OWNED_SHORT_ARGS, *OWNED_ENGINE_ARGS, *(f'no-{a}' for a in OWNED_ENGINE_ARGS)))})"
_UNKNOWN = f"({_NAME} && !(k in {cel_list(ALLOWED_ARGS)}) && !{_OWNED})"
_REMEDY = "use spec.engine.pins, spec.engine.initial or spec.model instead"
_LIST = "remove it; kubectl explain infsvc.spec.engine.extraArgs lists the flags it may set"

# Values by which an allowed flag would change the model's shape, load code or log what users write.
_ROPE = r'^\{ *"(rope_parameters|rope_scaling)" *: *\{[^{}]*\} *\}$'
_STRUCTURED = (
    r'^\{ *("(backend|disable_fallback|disable_any_whitespace|disable_additional_properties|enable_in_reasoning)"'
    r' *: *("[a-z-]+"|true|false) *,? *)+\}$'
)


def _value(flag: str, pattern: str, message: str) -> Rule:
    at = f"self[{cel_text(flag)}]"
    cel = f"!({cel_text(flag)} in self) || {at}.matches({cel_text(pattern)})"
    return Rule(f"extra-args-{flag}", cel, message)


EXTRA_ARGS_RULES = (
    Rule(
        "extra-args-name",
        f"self.all(k, {_NAME})",
        "extraArgs keys are vLLM's flags without leading dashes, in lower case with '-', such as tokenizer-mode",
        message_cel=f"'extraArgs has ' + self.filter(k, !{_NAME})[0]"
        " + ': write vLLM flags without leading dashes, in lower case with -, such as tokenizer-mode'",
    ),
    Rule(
        "extra-args-owned",
        f"!self.exists(k, {_OWNED})",
        f"extraArgs sets a flag the operator owns: {_REMEDY}",
        message_cel=f"'extraArgs sets ' + self.filter(k, {_OWNED})[0] + ', a flag the operator owns: {_REMEDY}'",
    ),
    Rule(
        "extra-args-allowed",
        f"!self.exists(k, {_UNKNOWN})",
        f"extraArgs sets a flag that it may not set: {_LIST}",
        message_cel=f"'extraArgs sets ' + self.filter(k, {_UNKNOWN})[0] + ', which it may not set: {_LIST}'",
    ),
    _value(
        "dtype",
        "^(auto|half|float16|bfloat16)$",
        "extraArgs dtype takes more memory than planned: use auto, half, float16 or bfloat16 (CPUs get float32 anyway)",
    ),
    _value(
        "hf-overrides",
        _ROPE,
        'extraArgs hf-overrides may only set the rotary embedding, such as {"rope_parameters": {"factor": 4}}: '
        "give shapes in model.architecture",
    ),
    _value(
        "structured-outputs-config",
        _STRUCTURED,
        'extraArgs structured-outputs-config may not load plugins: write {"backend": "xgrammar"} and disable_… only',
    ),
    _value(
        "uvicorn-log-level",
        "^(critical|error|warning|info)$",
        "extraArgs uvicorn-log-level would log what users send: use critical, error, warning or info",
    ),
    text_budget("extra-args-budget", "extraArgs", 8_192),
)
DESCRIPTION = (
    "More vLLM flags without dashes, such as seed: '1'; '' is a bare flag. Allowed, with their no- forms: "
    + ", ".join(FLAGS)
    + "."
)
