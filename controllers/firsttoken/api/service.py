"""InferenceService: what a platform team applies, and what the operator says about it."""

from typing import Annotated, ClassVar

from pydantic import Field

from firsttoken.api.base import ApiModel, Condition, ObjectMeta, Rule, Rules, cel_text, key_limit, list_map, text_budget
from firsttoken.api.change import (
    InspectionSpec,
    RolloutSpec,
    RoutingSpec,
    ScalingSpec,
    TuningSpec,
)
from firsttoken.api.engine import EngineSpec, MeasurementSpec
from firsttoken.api.evaluation import EvaluationSpec
from firsttoken.api.pod_template import PodTemplate
from firsttoken.api.service_inputs import BUCKET_PATTERN, SLO, AcceleratorSpec, LayoutSpec, ModelSpec, WorkloadSpec

# A revision is `<service>-<8 hex>`, its children add up to `-prefill`; Service names end at 63 characters.
MAX_NAME_LENGTH = 63 - len("-00000000") - len("-prefill")


_BOUNDS = "self.measurement.promptTokenBuckets"


class InferenceServiceSpec(ApiModel):
    """What is wanted. Everything but `model` and `accelerator.type` has a default that suits the profile."""

    model: Annotated[ModelSpec, Field(description="The model and where its weights come from.")]
    accelerator: Annotated[AcceleratorSpec, Field(description="Which GPUs, and how many at most.")]
    workload: Annotated[WorkloadSpec, Field(description="What clients send.")] = WorkloadSpec()
    slos: Annotated[
        list[SLO],
        Field(max_length=32, description="Promises on TTFT and TPOT; default: the profile's."),
        Rule(
            "slo-duplicate",
            "self.all(a, self.exists_one(b, a.metric == b.metric && a.percentile == b.percentile"
            " && a.promptTokens == b.promptTokens))",
            "two SLOs name the same metric, percentile and promptTokens: keep one of them",
        ),
    ] = []
    layout: Annotated[LayoutSpec, Field(description="Prefill and decode together or apart.")] = LayoutSpec()
    engine: Annotated[EngineSpec, Field(description="vLLM: its image and what is fixed about it.")] = EngineSpec()
    tuning: Annotated[TuningSpec, Field(description="Live tuning.")] = TuningSpec()
    rollout: Annotated[RolloutSpec, Field(description="How a change reaches users.")] = RolloutSpec()
    evaluation: Annotated[EvaluationSpec, Field(description="The offline gate.")] = EvaluationSpec()
    scaling: Annotated[ScalingSpec, Field(description="Replicas.")] = ScalingSpec()
    routing: Annotated[RoutingSpec, Field(description="How clients reach the service.")] = RoutingSpec()
    inspection: Annotated[InspectionSpec, Field(description="The scheduled check of settings.")] = InspectionSpec()
    measurement: Annotated[MeasurementSpec, Field(description="How latency is counted.")] = MeasurementSpec()
    pod_template: Annotated[
        PodTemplate | None,
        Field(description="Overlay on the engines' pods for what the operator does not know."),
    ] = None
    revision_history_limit: Annotated[int, Field(ge=0, le=100, description="Old InferenceRevisions kept.")] = 10

    RULES: ClassVar[Rules] = (
        Rule(
            "role-accelerator-layout",
            "self.layout.mode != 'Colocated' || !(has(self.accelerator.prefill) || has(self.accelerator.decode))",
            "accelerator.prefill and accelerator.decode need layout.mode Disaggregated or Auto: "
            "remove them or change the mode",
            ".accelerator",
        ),
        Rule(
            "slo-bucket-unmeasured",
            # Numbers are compared, not texts: the API server can't bound the length of string(n) and refuses the cost.
            f"!has(self.slos) || self.slos.all(s, !s.promptTokens.matches({cel_text(BUCKET_PATTERN)}) || "
            "(s.promptTokens.endsWith('+')"
            f" ? int(s.promptTokens.replace('+', '')) == {_BOUNDS}.max()"
            f" : {_BOUNDS}.exists(b, int(s.promptTokens.split('-')[1]) == b && int(s.promptTokens.split('-')[0]) == "
            f"({_BOUNDS}.exists(a, a < b) ? {_BOUNDS}.filter(a, a < b).max() : 0))))",
            "an SLO names a bucket that is not measured: use all, or neighbours of 0 and "
            "measurement.promptTokenBuckets (default 64, 256, 512, 1024, 4096, 16384)",
            ".slos",
        ),
        Rule(
            "model-length-below-prompts",
            "!has(self.model.maxModelLength) || !has(self.workload.promptTokens) || "
            "self.model.maxModelLength > self.workload.promptTokens.p95",
            "model.maxModelLength holds prompt and output, and is not above workload.promptTokens.p95: raise it",
            ".model.maxModelLength",
        ),
        Rule(
            "pins-above-max-count",
            "!has(self.engine) || !has(self.engine.pins) || !has(self.accelerator.maxCount) || "
            "(has(self.engine.pins.tensorParallel) ? self.engine.pins.tensorParallel : 1) * "
            "(has(self.engine.pins.pipelineParallel) ? self.engine.pins.pipelineParallel : 1) "
            "<= self.accelerator.maxCount",
            "engine.pins (tensorParallel, pipelineParallel) need more GPUs than accelerator.maxCount: raise or unpin",
            ".accelerator.maxCount",
        ),
        Rule(
            "pins-budget-without-chunks",
            "!has(self.engine) || !has(self.engine.pins) || !has(self.engine.pins.chunkedPrefill) || "
            "self.engine.pins.chunkedPrefill || !has(self.engine.pins.tokenBudget) || !has(self.model.maxModelLength) "
            "|| self.engine.pins.tokenBudget >= self.model.maxModelLength",
            "without chunkedPrefill a step holds a whole prompt: raise tokenBudget to model.maxModelLength, or chunk",
            ".engine.pins.tokenBudget",
        ),
        Rule(
            "initial-outside-tuning",
            "!has(self.engine) || !has(self.engine.initial) || !has(self.engine.initial.tokenBudget) || "
            "!has(self.tuning.tokenBudget) || (self.engine.initial.tokenBudget >= self.tuning.tokenBudget.min "
            "&& self.engine.initial.tokenBudget <= self.tuning.tokenBudget.max)",
            "engine.initial.tokenBudget lies outside tuning.tokenBudget: start within min and max, or widen them",
            ".engine.initial.tokenBudget",
        ),
        Rule(
            "scaling-disaggregated",
            "self.layout.mode != 'Disaggregated' || self.scaling.mode == 'Planned'",
            "scaling.mode External has one replica count, a disaggregated layout has two: use scaling.mode Planned",
            ".scaling.mode",
        ),
    )


class RoleStatus(ApiModel):
    """One role of the plan as it runs."""

    role: Annotated[str, Field(max_length=16, description="serve, prefill or decode.")]
    accelerator: Annotated[str, Field(max_length=253, description="AcceleratorProfile.")]
    replicas: Annotated[int, Field(description="Replicas wanted.")]
    ready_replicas: Annotated[int, Field(description="Replicas ready.")]
    gpus_per_replica: Annotated[int, Field(description="GPUs of one replica.")]
    engine_args: Annotated[
        dict[str, Annotated[str, Field(max_length=4096)]],
        Field(max_length=128, description="vLLM flags in force at start."),
        text_budget("status-engine-args-budget", "engineArgs", 12_288),
    ] = {}


class PlanReason(ApiModel):
    """Why the plan is as it is."""

    code: Annotated[str, Field(max_length=64, description="Constant for programs.")]
    message: Annotated[str, Field(max_length=1024, description="One sentence with its numbers.")]


class PlanStatus(ApiModel):
    """The plan in force, in short."""

    gpus: Annotated[int, Field(description="GPUs over all roles.")]
    roles: Annotated[list[RoleStatus], Field(max_length=3, description="Roles of the plan.")] = []
    reasons: Annotated[list[PlanReason], Field(max_length=32, description="Why it is so.")] = []


class DrainingRevision(ApiModel):
    """A revision that had requests and finishes its streams."""

    name: Annotated[str, Field(max_length=63, description="The revision.")]
    since: Annotated[
        str,
        Field(
            description="When it got its last new request (RFC 3339); rollout.drainTimeout counts from here.",
            json_schema_extra={"format": "date-time"},
        ),
    ]


class RevisionStatus(ApiModel):
    """Which revisions exist and which of them serves."""

    desired: Annotated[str | None, Field(max_length=63, description="Revision that the spec asks for.")] = None
    stable: Annotated[str | None, Field(max_length=63, description="Revision that carries the traffic.")] = None
    canary_weight: Annotated[int | None, Field(description="Share of requests for the desired revision, percent.")] = (
        None
    )
    stable_replicas: Annotated[
        dict[str, Annotated[int, Field(ge=0)]],
        Field(max_length=3, description="Replicas of `stable` by role; they stay while another revision starts."),
        key_limit("status-stable-replicas-keys", "stableReplicas", 16),
    ] = {}
    inputs_hash: Annotated[
        str | None, Field(max_length=64, description="Hash of the spec that `desired` was planned for; pins the plan.")
    ] = None
    draining: Annotated[
        list[DrainingRevision],
        Field(max_length=128, description="Revisions that finish their streams."),
        *list_map("name"),
    ] = []
    shifted_at: Annotated[
        str | None,
        Field(
            description="When traffic last moved (RFC 3339); for people, nothing is decided by it.",
            json_schema_extra={"format": "date-time"},
        ),
    ] = None


class SLOStatus(ApiModel):
    """Measurements beside the promises; filled once metrics are there."""

    ttft_p95: Annotated[
        str | None, Field(max_length=32, description="Measured TTFT P95 over all buckets, as a duration.")
    ] = None


class DiagnosisStatus(ApiModel):
    """What slows the first token; filled once metrics are there."""

    bottleneck: Annotated[str | None, Field(max_length=64, description="First finding.")] = None


class InferenceServiceStatus(ApiModel):
    """What runs and why."""

    observed_generation: Annotated[int | None, Field(description="Spec generation this status is about.")] = None
    conditions: Annotated[
        list[Condition], Field(max_length=16, description="State by aspect; Ready sums up."), *list_map("type")
    ] = []
    endpoint: Annotated[str | None, Field(max_length=512, description="URL inside the cluster (OpenAI API).")] = None
    layout: Annotated[str | None, Field(max_length=32, description="Colocated or Disaggregated.")] = None
    revision: Annotated[RevisionStatus | None, Field(description="Revisions.")] = None
    plan: Annotated[PlanStatus | None, Field(description="The plan in force.")] = None
    slo: Annotated[SLOStatus | None, Field(description="Measurements beside the promises.")] = None
    diagnosis: Annotated[DiagnosisStatus | None, Field(description="What slows the first token.")] = None
    replicas: Annotated[int | None, Field(description="Replicas of the serving revision (for /scale).")] = None
    ready_replicas: Annotated[int | None, Field(description="Ready replicas.")] = None
    selector: Annotated[
        str | None, Field(max_length=1024, description="Label selector of the engines' pods (for /scale).")
    ] = None


class InferenceService(ApiModel):
    """A model served to users, judged by the time to first token at each prompt length."""

    metadata: ObjectMeta
    spec: Annotated[InferenceServiceSpec, Field(description="What is wanted.")]
    status: Annotated[InferenceServiceStatus, Field(description="What runs and why.")] = InferenceServiceStatus()

    RULES: ClassVar[Rules] = (
        Rule(
            "name-too-long",
            f"self.metadata.name.size() <= {MAX_NAME_LENGTH}",
            f"metadata.name is longer than {MAX_NAME_LENGTH} characters: child objects are named after it, shorten it",
            ".metadata.name",
        ),
        Rule(
            "name-dns-label",
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "metadata.name becomes a Service name: use lower-case letters, digits and '-', starting with a letter",
            ".metadata.name",
        ),
    )
