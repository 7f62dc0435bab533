"""Rows of docs/validation.md about engine settings, tuning, rollout, evaluation, scaling, routing and inspection."""

from firsttoken.api.example import Example, field

_ARGS = "spec.engine.extraArgs"
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
        "extra-args-owned-abbreviation",
        "… and beginnings of a flag, which argparse completes",
        _ARGS,
        field(_ARGS, "{gpu-memory-util: '0.95'}"),
        "Invalid value: extraArgs sets gpu-memory-util, a flag the operator owns: use spec.engine.pins, "
        "spec.engine.initial or spec.model instead",
    ),
    Example(
        "extra-args-name",
        "Flags without leading dashes",
        _ARGS,
        field(_ARGS, "{--max-num-seqs: '64'}"),
        "Invalid value: extraArgs has --max-num-seqs: write vLLM flags without leading dashes, in lower case with -, "
        "such as max-log-len",
    ),
    Example(
        "extra-args-underscore",
        "… with dashes, not underscores",
        _ARGS,
        field(_ARGS, "{max_num_seqs: '64'}"),
        "Invalid value: extraArgs has max_num_seqs: write vLLM flags without leading dashes, in lower case with -, "
        "such as max-log-len",
    ),
    Example(
        "extra-args-upper-case",
        "… in lower case",
        _ARGS,
        field(_ARGS, "{Max-Num-Seqs: '64'}"),
        "Invalid value: extraArgs has Max-Num-Seqs: write vLLM flags without leading dashes, in lower case with -, "
        "such as max-log-len",
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
        field(_ARGS, "{" + ", ".join(f"flag-{i}: {'x' * 4096}" for i in range(4)) + "}"),
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

CHANGE = (
    Example(
        "token-budget-range",
        "A range is not upside down",
        "spec.tuning.tokenBudget.max",
        field("spec.tuning.tokenBudget", "{min: 4096, max: 256}"),
    ),
    Example(
        "weights-rising",
        "Canary weights rise",
        "spec.rollout.steps",
        field("spec.rollout.steps", "[{weight: 50}, {weight: 10}]"),
    ),
    Example(
        "weight-above-100",
        "A weight is at most 100",
        "spec.rollout.steps[1].weight",
        field("spec.rollout.steps", "[{weight: 10}, {weight: 150}]"),
        "Invalid value: 150: spec.rollout.steps[1].weight in body should be less than or equal to 100",
    ),
    Example(
        "steps-empty",
        "A rollout has a step",
        "spec.rollout.steps",
        field("spec.rollout.steps", "[]"),
        "Invalid value: 0: spec.rollout.steps in body should have at least 1 items",
    ),
    Example(
        "split-header",
        "A header belongs to HeaderHash",
        "spec.rollout.split.header",
        field("spec.rollout.split", "{mode: HeaderHash}"),
    ),
    Example(
        "split-header-name",
        "A header's name",
        "spec.rollout.split.header",
        field("spec.rollout.split", "{mode: HeaderHash, header: 'user id'}"),
    ),
    Example(
        "prompts-one-of",
        "Prompts come from one place",
        "spec.evaluation.prompts",
        field("spec.evaluation.prompts", "{configMap: {name: prompts}, uri: 's3://bucket/prompts.jsonl'}"),
    ),
    Example(
        "prompts-path",
        "A path below the claim's root",
        "spec.evaluation.prompts.pvc.path",
        field("spec.evaluation.prompts.pvc", "{claimName: prompts, path: ../other}"),
    ),
    Example(
        "prompts-scheme",
        "Known sources of prompts",
        "spec.evaluation.prompts.uri",
        field("spec.evaluation.prompts.uri", "ftp://host/prompts.jsonl"),
    ),
    Example(
        "replicas-range",
        "The smallest number of replicas is not above the largest",
        "spec.scaling.minReplicas",
        field("spec.scaling", "{minReplicas: 8, maxReplicas: 2}"),
    ),
    Example(
        "replicas-one-of",
        "A fixed number or a range",
        "spec.scaling.replicas",
        field("spec.scaling", "{replicas: 4, maxReplicas: 8}"),
    ),
    Example(
        "replicas-external",
        "An autoscaler finds a number to start with",
        "spec.scaling.replicas",
        field("spec.scaling.mode", "External"),
    ),
    Example(
        "scaling-disaggregated",
        "An autoscaler has one number, two roles have two",
        "spec.scaling.mode",
        "spec:\n  layout: {mode: Disaggregated}\n  scaling: {mode: External, replicas: 2}\n",
    ),
    Example(
        "hostnames-without-gateway",
        "Host names need a Gateway",
        "spec.routing.gateway",
        field("spec.routing.hostnames", "[kb.example.com]"),
    ),
    Example(
        "hostname",
        "A host name",
        "spec.routing.hostnames[0]",
        field("spec.routing", "{gateway: {name: public}, hostnames: ['https://kb.example.com']}"),
    ),
    Example(
        "hostnames-duplicate",
        "Each host name once",
        "spec.routing.hostnames[1]",
        field("spec.routing", "{gateway: {name: public}, hostnames: [kb.example.com, kb.example.com]}"),
        'Duplicate value: "kb.example.com"',
    ),
    Example(
        "cron",
        "A schedule is a cron expression",
        "spec.inspection.schedule",
        field("spec.inspection.schedule", "every month"),
    ),
    Example(
        "cron-range",
        "… whose ranges rise",
        "spec.inspection.schedule",
        field("spec.inspection.schedule", "'0 6 * * FRI-MON'"),
    ),
    Example(
        "time-zone",
        "A time zone is an IANA name",
        "spec.inspection.timeZone",
        field("spec.inspection.timeZone", "'+02:00'"),
    ),
)

EXAMPLES = (*ENGINE, *CHANGE)
