"""Rows of docs/validation.md about names, model, accelerator, workload, SLOs and layout."""

from firsttoken.api.example import Example, field

_INLINE = (
    "{hiddenSize: 4096, numHiddenLayers: 32, numAttentionHeads: 32, intermediateSize: 11008, vocabSize: 32000,"
    " maxPositionEmbeddings: 4096, %s}"
)


def _inline(facts: str) -> str:
    return field("spec.model.architecture.inline", _INLINE % facts)


IDENTITY = (
    Example(
        "unknown-field",
        "Fields that don't exist are refused (with strict decoding, kubectl's default)",
        "spec.accelerater",
        field("spec.accelerater", "{type: nvidia-h200}"),
        'unknown field "spec.accelerater"',
    ),
    Example(
        "required-field",
        "`model` and `accelerator.type` are required",
        "spec.accelerator.type",
        field("spec.accelerator.type", "null"),
        "Required value",
    ),
    Example(
        "wrong-type",
        "Values have the type of their field",
        "spec.accelerator.maxCount",
        field("spec.accelerator.maxCount", "eight"),
        'Invalid value: "string": spec.accelerator.maxCount in body must be of type integer: "string"',
    ),
    Example(
        "name-too-long",
        "A name leaves room for the names of child objects",
        "metadata.name",
        field("metadata.name", "a-name-that-is-much-too-long-for-the-child-objects"),
    ),
    Example(
        "name-dns-label", "A name is the name of a Service too", "metadata.name", field("metadata.name", "kb.assistant")
    ),
)

MODEL = (
    Example("model-scheme", "Known model sources", "spec.model.uri", field("spec.model.uri", "https://hf.co/org/name")),
    Example(
        "model-uri-characters",
        "A model source has no blanks and no `..`",
        "spec.model.uri",
        field("spec.model.uri", "pvc://claim/../other"),
    ),
    Example(
        "model-revision-characters",
        "A revision is a git revision",
        "spec.model.revision",
        field("spec.model.revision", "the newest"),
    ),
    Example(
        "model-revision-scheme",
        "A git revision only with hf://",
        "spec.model.revision",
        field("spec.model", "{uri: 'oci://registry.example.com/model:1', revision: main}"),
    ),
    Example(
        "model-name-characters",
        "A served name clients can send",
        "spec.model.name",
        field("spec.model.name", "'my model'"),
    ),
    Example(
        "model-quantization",
        "Known quantizations",
        "spec.model.quantization",
        field("spec.model.quantization", "int3"),
        'Unsupported value: "int3": supported values: "fp8", "awq", "gptq", "compressed-tensors", "bitsandbytes", '
        '"modelopt", "mxfp4"',
    ),
    Example(
        "model-credentials-scheme",
        "Credentials only where something is downloaded with them",
        "spec.model.credentials",
        field("spec.model", "{uri: 'pvc://models/qwen', credentials: {name: hf-token}}"),
    ),
    Example(
        "model-credentials-key",
        "Keys for s3:// have fixed names",
        "spec.model.credentials.key",
        field("spec.model", "{uri: 's3://bucket/qwen', credentials: {name: aws, key: secret}}"),
    ),
    Example(
        "model-cache-scheme",
        "A cache only for what is downloaded",
        "spec.model.cache",
        field("spec.model", "{uri: 'pvc://models/qwen', cache: {sizeLimit: 100Gi}}"),
    ),
    Example(
        "object-name",
        "References are names of objects",
        "spec.model.credentials.name",
        field("spec.model.credentials.name", "HF_Token"),
    ),
    Example(
        "data-key",
        "Keys of Secrets and ConfigMaps",
        "spec.model.credentials.key",
        field("spec.model.credentials", "{name: hf-token, key: a key}"),
    ),
    Example(
        "cache-one-of",
        "A claim or the node's disk",
        "spec.model.cache",
        field("spec.model.cache", "{claimName: weights, sizeLimit: 100Gi}"),
    ),
    Example(
        "cache-size-limit",
        "A size is a number above zero with a unit",
        "spec.model.cache.sizeLimit",
        field("spec.model.cache.sizeLimit", "lots"),
    ),
    Example(
        "model-length-below-prompts",
        "The model's length holds the prompts and an answer",
        "spec.model.maxModelLength",
        "spec:\n  model: {maxModelLength: 1024}\n  workload: {promptTokens: {p50: 900, p95: 1500}}\n",
    ),
    Example(
        "architecture-one-of",
        "A preset or inline facts",
        "spec.model.architecture",
        field("spec.model.architecture", "{}"),
    ),
    Example(
        "architecture-moe-pair",
        "A mixture of experts has both numbers",
        "spec.model.architecture.inline",
        _inline("numExperts: 8"),
    ),
    Example(
        "architecture-experts",
        "A token can't go to more experts than there are",
        "spec.model.architecture.inline.numExpertsPerTok",
        _inline("numExperts: 2, numExpertsPerTok: 8"),
    ),
    Example(
        "architecture-expert-width",
        "A width of experts needs experts",
        "spec.model.architecture.inline.moeIntermediateSize",
        _inline("moeIntermediateSize: 1408"),
    ),
    Example(
        "architecture-kv-heads",
        "KV heads divide the heads",
        "spec.model.architecture.inline.numKeyValueHeads",
        _inline("numKeyValueHeads: 5"),
    ),
    Example(
        "architecture-head-dim",
        "Without `headDim`, heads divide the width",
        "spec.model.architecture.inline.headDim",
        _inline("numAttentionHeads: 30").replace("numAttentionHeads: 32, ", ""),
    ),
)

WORKLOAD = (
    Example(
        "max-count-zero",
        "`maxCount` is at least one",
        "spec.accelerator.maxCount",
        field("spec.accelerator.maxCount", "0"),
        "Invalid value: 0: spec.accelerator.maxCount in body should be greater than or equal to 1",
    ),
    Example(
        "max-count-negative",
        "`maxCount` is not negative",
        "spec.accelerator.maxCount",
        field("spec.accelerator.maxCount", "-8"),
        "Invalid value: -8: spec.accelerator.maxCount in body should be greater than or equal to 1",
    ),
    Example(
        "role-accelerator-layout",
        "Accelerators per role only for a layout with roles",
        "spec.accelerator",
        "spec:\n  accelerator: {prefill: {type: nvidia-h100-80gb}}\n  layout: {mode: Colocated}\n",
    ),
    Example(
        "layout-mode",
        "Known layouts",
        "spec.layout.mode",
        field("spec.layout.mode", "Split"),
        'Unsupported value: "Split": supported values: "Auto", "Colocated", "Disaggregated"',
    ),
    Example(
        "profile",
        "Known profiles (M7)",
        "spec.workload.profile",
        field("spec.workload.profile", "Search"),
        'Unsupported value: "Search": supported values: "Summarization", "Chat", "CodeCompletion", "OfflineBatch", '
        '"KnowledgeQA"',
    ),
    Example(
        "tokens-p95-below-p50",
        "The 95th percentile is not below the median",
        "spec.workload.promptTokens.p95",
        field("spec.workload.promptTokens", "{p50: 1500, p95: 800}"),
    ),
    Example(
        "shared-prefix-above-p95",
        "A shared prefix is part of the prompt",
        "spec.workload.sharedPrefixTokens",
        field("spec.workload", "{promptTokens: {p50: 800, p95: 1500}, sharedPrefixTokens: 2000}"),
    ),
    Example(
        "requests-per-second",
        "A rate is above zero",
        "spec.workload.requestsPerSecond",
        field("spec.workload.requestsPerSecond", "0"),
        "Invalid value: 0: spec.workload.requestsPerSecond in body should be greater than 0",
    ),
    Example(
        "slo-metric",
        "Known metrics",
        "spec.slos[0].metric",
        field("spec.slos", "[{metric: Latency, target: 1200ms}]"),
        'Unsupported value: "Latency": supported values: "TTFT", "TPOT"',
    ),
    Example(
        "slo-percentile",
        "A percentile is one of 50, 90, 95 and 99",
        "spec.slos[0].percentile",
        field("spec.slos", "[{metric: TTFT, percentile: 97, target: 1200ms}]"),
        'Unsupported value: 97: supported values: "50", "90", "95", "99"',
    ),
    Example(
        "duration",
        "A target is a duration with a unit",
        "spec.slos[0].target",
        field("spec.slos", "[{metric: TTFT, target: fast}]"),
    ),
    Example(
        "slo-target-zero",
        "A target is above zero",
        "spec.slos[0].target",
        field("spec.slos", "[{metric: TTFT, target: 0ms}]"),
    ),
    Example(
        "slo-bucket",
        "A prompt-length bucket is all, a range or an open end",
        "spec.slos[0].promptTokens",
        field("spec.slos", "[{metric: TTFT, promptTokens: long, target: 1200ms}]"),
    ),
    Example(
        "slo-bucket-unmeasured",
        "An SLO is about a bucket that is measured (M2.1)",
        "spec.slos",
        field("spec.slos", "[{metric: TTFT, promptTokens: 256-1024, target: 1200ms}]"),
    ),
    Example(
        "slo-duplicate",
        "One SLO for each metric, percentile and bucket",
        "spec.slos",
        field("spec.slos", "[{metric: TTFT, target: 1200ms}, {metric: TTFT, target: 2s}]"),
    ),
)

EXAMPLES = (*IDENTITY, *MODEL, *WORKLOAD)
