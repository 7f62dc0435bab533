"""Rows of docs/validation.md about engine settings and measurement."""

from firsttoken.api.example import Example, field

_ARGS = "spec.engine.extraArgs"
_LONG_ARGS = ("chat-template", "default-chat-template-kwargs", "mm-processor-kwargs", "override-generation-config")
_MANY_ARGS = ", ".join(f"flag-{i}: x" for i in range(65))

ENGINE = (
    Example(
        "extra-args-owned",
        "extraArgs leave alone what the operator sets",
        _ARGS,
        field(_ARGS, "{max-num-batched-tokens: '4096'}"),
        "Invalid value: extraArgs sets max-num-batched-tokens, a flag the operator owns: use spec.engine.pins, "
        "spec.engine.initial or spec.model instead",
    ),
    Example(
        "extra-args-owned-no",
        "… its `no-` form too",
        _ARGS,
        field(_ARGS, "{no-enable-prefix-caching: ''}"),
        "Invalid value: extraArgs sets no-enable-prefix-caching, a flag the operator owns: use spec.engine.pins, "
        "spec.engine.initial or spec.model instead",
    ),
    Example(
        "extra-args-owned-short",
        "… vLLM's short forms too",
        _ARGS,
        field(_ARGS, "{tp: '4'}"),
        "Invalid value: extraArgs sets tp, a flag the operator owns: use spec.engine.pins, spec.engine.initial or "
        "spec.model instead",
    ),
    Example(
        "extra-args-allowed",
        "… and set nothing else that has consequences for memory, isolation or privacy",
        _ARGS,
        field(_ARGS, "{kv-offloading-size: '64'}"),
        "Invalid value: extraArgs sets kv-offloading-size, which it may not set: remove it; kubectl explain "
        "infsvc.spec.engine.extraArgs lists the flags it may set",
    ),
    Example(
        "extra-args-abbreviation",
        "… nor beginnings of a flag, which argparse completes",
        _ARGS,
        field(_ARGS, "{gpu-memory-util: '0.95'}"),
        "Invalid value: extraArgs sets gpu-memory-util, which it may not set: remove it; kubectl explain "
        "infsvc.spec.engine.extraArgs lists the flags it may set",
    ),
    Example("extra-args-dtype", "A weight has two bytes at most", _ARGS, field(_ARGS, "{dtype: float32}")),
    Example(
        "extra-args-hf-overrides",
        "Overrides leave the model's shape alone",
        _ARGS,
        field(_ARGS, "{hf-overrides: '{\"num_hidden_layers\": 2}'}"),
    ),
    Example(
        "extra-args-structured-outputs-config",
        "Structured outputs without plugins",
        _ARGS,
        field(_ARGS, '{structured-outputs-config: \'{"reasoning_parser_plugin": "/data/x.py"}\'}'),
    ),
    Example(
        "extra-args-uvicorn-log-level",
        "A log without what users send",
        _ARGS,
        field(_ARGS, "{uvicorn-log-level: trace}"),
    ),
    Example(
        "extra-args-name",
        "Flags without leading dashes",
        _ARGS,
        field(_ARGS, "{--max-num-seqs: '64'}"),
        "Invalid value: extraArgs has --max-num-seqs: write vLLM flags without leading dashes, in lower case with -, "
        "such as tokenizer-mode",
    ),
    Example(
        "extra-args-underscore",
        "… with dashes, not underscores",
        _ARGS,
        field(_ARGS, "{max_num_seqs: '64'}"),
        "Invalid value: extraArgs has max_num_seqs: write vLLM flags without leading dashes, in lower case with -, "
        "such as tokenizer-mode",
    ),
    Example(
        "extra-args-upper-case",
        "… in lower case",
        _ARGS,
        field(_ARGS, "{Max-Num-Seqs: '64'}"),
        "Invalid value: extraArgs has Max-Num-Seqs: write vLLM flags without leading dashes, in lower case with -, "
        "such as tokenizer-mode",
    ),
    Example(
        "extra-args-value", "A value is one line", f"{_ARGS}[chat-template]", field(_ARGS, '{chat-template: "a\\nb"}')
    ),
    Example(
        "extra-args-value-type",
        "A value is text",
        f"{_ARGS}.seed",
        field(_ARGS, "{seed: 1}"),
        'Invalid value: "integer": spec.engine.extraArgs.seed in body must be of type string: "integer"',
    ),
    Example(
        "extra-args-many",
        "A spec has a bounded size: so many entries",
        _ARGS,
        field(_ARGS, "{" + _MANY_ARGS + "}"),
        "Too many: 65: must have at most 64 items",
        shown="spec:\n  engine:\n    extraArgs: {…65 flags…}\n",
    ),
    Example(
        "extra-args-budget",
        "… and so many characters",
        _ARGS,
        field(_ARGS, "{" + ", ".join(f"{flag}: {'x' * 4096}" for flag in _LONG_ARGS) + "}"),
        shown="spec:\n  engine:\n    extraArgs: {…4 flags with 4096 characters each…}\n",
    ),
    Example(
        "image-reference",
        "An image is a reference, not a URL",
        "spec.engine.image",
        field("spec.engine.image", "'my image'"),
    ),
    Example(
        "initial-and-pin",
        "A value is pinned or tuned, not both",
        "spec.engine",
        field("spec.engine", "{initial: {tokenBudget: 512}, pins: {tokenBudget: 512}}"),
    ),
    Example(
        "initial-budget-below-decode-cap",
        "A step has room for prefill beside decodes",
        "spec.engine.initial.tokenBudget",
        field("spec.engine.initial", "{tokenBudget: 64, decodeCap: 64}"),
    ),
    Example(
        "initial-outside-tuning",
        "Tuning starts inside its bounds",
        "spec.engine.initial.tokenBudget",
        "spec:\n  engine: {initial: {tokenBudget: 64}}\n  tuning: {tokenBudget: {min: 128, max: 4096}}\n",
    ),
    Example(
        "pins-budget-below-seqs",
        "A step holds every running request",
        "spec.engine.pins.tokenBudget",
        field("spec.engine.pins", "{tokenBudget: 64, maxNumSeqs: 256}"),
    ),
    Example(
        "pins-above-max-count",
        "Pinned parallelism fits the GPU budget",
        "spec.accelerator.maxCount",
        "spec:\n  accelerator: {maxCount: 4}\n  engine: {pins: {tensorParallel: 8}}\n",
    ),
    Example(
        "pins-budget-without-chunks",
        "Without chunked prefill a step holds a whole prompt",
        "spec.engine.pins.tokenBudget",
        "spec:\n  engine: {pins: {chunkedPrefill: false, tokenBudget: 512}}\n  model: {maxModelLength: 4096}\n",
    ),
    Example(
        "memory-utilization-range",
        "A share of memory lies between 0.1 and 0.99",
        "spec.engine.pins.gpuMemoryUtilization",
        field("spec.engine.pins.gpuMemoryUtilization", "0"),
    ),
    Example(
        "bucket-bounds-rising",
        "Bucket bounds rise",
        "spec.measurement.promptTokenBuckets",
        field("spec.measurement.promptTokenBuckets", "[256, 64, 1024]"),
    ),
)
