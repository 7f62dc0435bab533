"""InferenceRevision, AcceleratorProfile and PerformanceReport."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from firsttoken.api.base import (
    ApiModel,
    Condition,
    Extension,
    ObjectMeta,
    Rule,
    Rules,
    Shape,
    list_map,
    matches,
    size_rule,
)
from firsttoken.api.kubernetes import Toleration
from firsttoken.api.kubernetes_nodes import NodeSelectorTerm

# In vLLM's names.
WEIGHT_FORMATS = ("fp8", "awq", "gptq", "compressed-tensors", "bitsandbytes", "modelopt", "mxfp4")
KV_CACHE_DTYPES = (
    "auto", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_per_token_head", "int8_per_token_head", "int4_per_token_head", "nvfp4",
)  # fmt: skip

# TFLOP/s, TOP/s and GB/s: below a hundredth of any real device a figure is in a wrong unit, or none at all.
LEAST = 0.01


def _none_or_real(rule_id: str) -> Rule:
    return Rule(
        rule_id,
        f"self <= 0.0 || self >= {LEAST}",
        f"in GB/s (10^9), so no device has less than {LEAST}: correct the unit, or write 0 for none",
    )


Preserved = Annotated[dict[str, Any], Extension("x-kubernetes-preserve-unknown-fields", True)]


class RevisionReason(ApiModel):
    """Why a revision exists."""

    type: Annotated[
        str,
        Field(
            description="SpecChange, Diagnosis or Tuning.",
            json_schema_extra={"enum": ["SpecChange", "Diagnosis", "Tuning"]},
        ),
    ]
    message: Annotated[str, Field(max_length=4096, description="One sentence: what changed.")]


class InferenceRevisionSpec(ApiModel):
    """The record. Objects are kept as rendered, so that a new operator version never restarts a running revision."""

    service_name: Annotated[str, Field(max_length=63, description="The InferenceService this belongs to.")]
    hash: Annotated[
        str,
        Field(
            max_length=64,
            description="SHA-256 of `objects` (canonical JSON, rendered under the placeholder name), 64 hex digits; "
            "the first 8 end the revision's name.",
        ),
        Rule(
            "revision-hash",
            matches("^[0-9a-f]{64}$"),
            "not a content hash: 64 lower-case hex digits of a SHA-256; revisions are the operator's to make",
        ),
    ]
    reason: Annotated[RevisionReason, Field(description="Why it exists.")]
    parent: Annotated[str | None, Field(max_length=63, description="Revision in force when it was made.")] = None
    inputs: Annotated[Preserved, Field(description="The part of the service's spec that needs a restart to change.")]
    plan: Annotated[Preserved, Field(description="The resolved plan, as `firsttoken plan -o json` prints it.")]
    objects: Annotated[
        list[Preserved],
        Field(max_length=32, description="Objects of this revision as rendered, replicas left out."),
    ]

    RULES: ClassVar[Rules] = (
        Rule(
            "revision-immutable",
            "self == oldSelf",
            "a revision is a record and can't be changed: edit the InferenceService",
        ),
    )


class CalibrationEntry(ApiModel):
    """Measured over predicted time of one stage on the live fleet, with its 90 % band, and of what it was measured."""

    stage: Annotated[str, Field(description="Which stage.", json_schema_extra={"enum": ["prefill", "decode"]})]
    accelerator: Annotated[
        str, Field(min_length=1, max_length=63, description="AcceleratorProfile of the GPUs that were measured.")
    ]
    model: Annotated[
        str, Field(min_length=1, max_length=253, description="Model that was measured, as spec.plan.model names it.")
    ]
    quantization: Annotated[
        str,
        Field(
            description="How its weights are stored, in vLLM's names; empty: in 16 bits.",
            json_schema_extra={"enum": ["", *WEIGHT_FORMATS]},
        ),
    ] = ""
    kv_cache_dtype: Annotated[
        str,
        Field(
            description="Type of its KV cache, in vLLM's names; auto: the model's own.",
            json_schema_extra={"enum": list(KV_CACHE_DTYPES)},
        ),
    ] = "auto"
    tensor_parallel: Annotated[int, Field(ge=1, le=64, description="GPUs that share a layer.")]
    nodes: Annotated[int, Field(ge=1, le=64, description="Nodes that a replica is spread over.")] = 1
    ratio: Annotated[float, Field(gt=0, le=1000, description="Measured over predicted seconds.")]
    low: Annotated[float, Field(ge=0, le=1000, description="Lower end of the band.")]
    high: Annotated[float, Field(ge=0, le=1000, description="Upper end of the band.")]
    requests: Annotated[int, Field(ge=0, description="Requests measured.")]
    measured_at: Annotated[
        str | None,
        Field(description="When it was measured (RFC 3339).", json_schema_extra={"format": "date-time"}),
    ] = None


class InferenceRevisionStatus(ApiModel):
    """Results of evaluation and comparison; written by rollouts."""

    conditions: Annotated[list[Condition], Field(max_length=16, description="State by aspect."), *list_map("type")] = []
    verdict: Annotated[str | None, Field(max_length=16, description="Pass, Fail, Inconclusive or NoData.")] = None
    calibration: Annotated[
        list[CalibrationEntry],
        Field(
            max_length=8,
            description="Measured over predicted; the next plan for the same model, number formats and GPUs uses it.",
        ),
    ] = []


class InferenceRevision(ApiModel):
    """Immutable record of one resolved Plan and why it exists."""

    metadata: ObjectMeta
    spec: Annotated[InferenceRevisionSpec, Field(description="The record.")]
    status: Annotated[InferenceRevisionStatus, Field(description="Results.")] = InferenceRevisionStatus()


class AcceleratorProfileSpec(ApiModel):
    """Data sheet of one GPU type and how its nodes are found."""

    vendor: Annotated[
        str,
        Field(description="Who makes it.", json_schema_extra={"enum": ["NVIDIA", "AMD", "Intel", "CPU"]}),
    ]
    product: Annotated[str, Field(max_length=128, description="Name for people.")]
    compute_capability: Annotated[
        str | None,
        Field(max_length=8, description="CUDA compute capability, such as 8.0; NVIDIA only."),
        Rule("profile-compute-capability", matches(r"^[0-9]+\.[0-9]$"), "not a compute capability: such as 8.0 or 9.0"),
    ] = None
    resource_name: Annotated[
        str | None,
        Field(max_length=128, description="Extended resource, such as nvidia.com/gpu; none for CPU."),
        Rule(
            "profile-resource-name",
            matches("^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"),
            "not an extended resource: write a domain and a name, such as nvidia.com/gpu",
        ),
    ] = None
    memory: Annotated[
        str,
        Field(max_length=32, description="Memory of one device as a quantity, such as 40Gi."),
        size_rule("profile-memory", "40Gi"),
    ]
    memory_bandwidth_gb_per_second: Annotated[
        float | None, Field(ge=1, le=10**6, description="Memory bandwidth of the data sheet, GB/s (10^9).")
    ] = None
    fp16_tflops: Annotated[float | None, Field(ge=LEAST, le=10**6, description="Dense FP16/BF16 peak, TFLOP/s.")] = None
    fp8_tflops: Annotated[
        float | None, Field(ge=LEAST, le=10**6, description="Dense FP8 peak, TFLOP/s; unset: no FP8.")
    ] = None
    int8_tops: Annotated[float | None, Field(ge=LEAST, le=10**6, description="Dense INT8 peak, TOP/s.")] = None
    link_gb_per_second: Annotated[
        float | None,
        Field(ge=0, le=10**6, description="GPU-to-GPU link inside a node, one direction, GB/s; 0: none."),
        _none_or_real("profile-link"),
    ] = None
    pcie_gb_per_second: Annotated[
        float | None,
        Field(ge=0, le=10**6, description="PCIe, one direction, GB/s; 0: none."),
        _none_or_real("profile-pcie"),
    ] = None
    network_gb_per_second: Annotated[
        float | None,
        Field(
            ge=LEAST,
            le=10**6,
            description="Network between nodes for each device, one direction, GB/s: 50 for a port of 400 Gbit/s. "
            "Unset: 50, or PCIe where that is less, is assumed, and no layer is split over nodes.",
        ),
    ] = None
    devices_per_node: Annotated[
        int,
        Field(ge=1, le=128, description="Devices of a usual node: the limit of tensor parallelism inside one."),
    ] = 8
    tdp_watts: Annotated[float | None, Field(ge=1, le=10**5, description="Thermal design power, W.")] = None
    node_selector_terms: Annotated[
        list[Annotated[dict[str, Any], Shape(NodeSelectorTerm)]],
        Field(max_length=8, description="Node affinity terms (ORed) that find nodes with this device."),
    ] = []
    tolerations: Annotated[
        list[Annotated[dict[str, Any], Shape(Toleration)]],
        Field(max_length=16, description="Taints of such nodes to accept."),
    ] = []
    source: Annotated[str, Field(max_length=1024, description="Where these figures are from.")] = ""

    RULES: ClassVar[Rules] = (
        Rule(
            "profile-resource",
            "(self.vendor == 'CPU') != has(self.resourceName)",
            "resourceName is how pods ask for the device: give it for every vendor but CPU, which has none",
            ".resourceName",
        ),
        Rule(
            "profile-capability-vendor",
            "!has(self.computeCapability) || self.vendor == 'NVIDIA'",
            "computeCapability is NVIDIA's: remove it, or correct vendor",
            ".computeCapability",
        ),
    )


class AcceleratorProfile(ApiModel):
    """What the planner knows of a GPU type (cluster-scoped; a catalogue ships with Firsttoken)."""

    metadata: ObjectMeta
    spec: Annotated[AcceleratorProfileSpec, Field(description="The data sheet.")]


class BucketRow(ApiModel):
    """Measurements of one prompt-length bucket."""

    prompt_tokens: Annotated[str, Field(max_length=32, description="Bucket, such as 512-1024.")]
    requests: Annotated[int, Field(ge=0, description="Requests seen.")]
    ttft_p50: Annotated[str | None, Field(max_length=32, description="TTFT P50, duration.")] = None
    ttft_p95: Annotated[str | None, Field(max_length=32, description="TTFT P95, duration.")] = None
    ttft_p99: Annotated[str | None, Field(max_length=32, description="TTFT P99, duration.")] = None


class PerformanceReportSpec(ApiModel):
    """One inspection (M6.1)."""

    service_name: Annotated[str, Field(max_length=63, description="The InferenceService inspected.")]
    from_time: Annotated[
        str,
        Field(description="Begin of the time looked at (RFC 3339).", json_schema_extra={"format": "date-time"}),
    ]
    to_time: Annotated[
        str,
        Field(description="End of the time looked at (RFC 3339).", json_schema_extra={"format": "date-time"}),
    ]
    buckets: Annotated[list[BucketRow], Field(max_length=32, description="Measurements by prompt length.")] = []
    verdicts: Annotated[
        list[Preserved], Field(max_length=32, description="Whether each of today's settings still fits.")
    ] = []


class PerformanceReport(ApiModel):
    """One inspection: bucket table, trend, drift, whether today's settings still fit."""

    metadata: ObjectMeta
    spec: Annotated[PerformanceReportSpec, Field(description="The report.")]


__all__ = [
    "AcceleratorProfile",
    "AcceleratorProfileSpec",
    "InferenceRevision",
    "InferenceRevisionSpec",
    "PerformanceReport",
    "RevisionReason",
]
