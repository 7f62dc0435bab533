"""Rows of docs/validation.md about tuning, rollout, evaluation, scaling, routing and inspection."""

from firsttoken.api.example import Example, field

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
        "duration-bound",
        "A duration has a unit and a bounded number",
        "spec.rollout.drainTimeout",
        field("spec.rollout.drainTimeout", "9999999999999d"),
    ),
    Example(
        "analysis-deadline",
        "What acts at a deadline has one",
        "spec.rollout.analysis.deadline",
        field("spec.rollout.analysis", "{onInconclusive: Rollback}"),
    ),
    Example(
        "analysis-deadline-zero",
        "… that leaves time to measure",
        "spec.rollout.analysis.deadline",
        field("spec.rollout.analysis.deadline", "0s"),
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
