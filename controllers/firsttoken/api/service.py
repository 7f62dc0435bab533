"""InferenceService: what a platform team applies, and what the operator says about it."""

from typing import Annotated, ClassVar

from pydantic import Field

from firsttoken.api.base import ApiModel, Condition, ObjectMeta, Rule, Rules, list_map
from firsttoken.api.change import (
    EvaluationSpec,
    InspectionSpec,
    RolloutSpec,
    RoutingSpec,
    ScalingSpec,
    TuningSpec,
)
from firsttoken.api.engine import EngineSpec, MeasurementSpec, PodTemplate
from firsttoken.api.service_inputs import SLO, AcceleratorSpec, LayoutSpec, ModelSpec, WorkloadSpec

# A revision is `<service>-<8 hex>`, its children add up to `-prefill`; Service names end at 63 characters.
MAX_NAME_LENGTH = 63 - len("-00000000") - len("-prefill")


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
            "accelerator.prefill and accelerator.decode need layout.mode Disaggregated or Auto: remove them or change the mode",
            ".accelerator",
        ),
    )


class RoleStatus(ApiModel):
    """One role of the plan as it runs."""

    role: Annotated[str, Field(description="serve, prefill or decode.")]
    accelerator: Annotated[str, Field(description="AcceleratorProfile.")]
    replicas: Annotated[int, Field(description="Replicas wanted.")]
    ready_replicas: Annotated[int, Field(description="Replicas ready.")]
    gpus_per_replica: Annotated[int, Field(description="GPUs of one replica.")]
    engine_args: Annotated[dict[str, str], Field(description="vLLM flags in force at start.")] = {}


class PlanReason(ApiModel):
    """Why the plan is as it is."""

    code: Annotated[str, Field(description="Constant for programs.")]
    message: Annotated[str, Field(description="One sentence with its numbers.")]


class PlanStatus(ApiModel):
    """The plan in force, in short."""

    gpus: Annotated[int, Field(description="GPUs over all roles.")]
    roles: Annotated[list[RoleStatus], Field(description="Roles of the plan.")] = []
    reasons: Annotated[list[PlanReason], Field(description="Why it is so.")] = []


class RevisionStatus(ApiModel):
    """Which revisions exist and which of them serves."""

    desired: Annotated[str | None, Field(description="Revision that the spec asks for.")] = None
    stable: Annotated[str | None, Field(description="Revision that carries the traffic.")] = None
    canary_weight: Annotated[int | None, Field(description="Share of requests for the desired revision, percent.")] = (
        None
    )
    draining: Annotated[list[str], Field(description="Revisions that finish their streams.")] = []
    shifted_at: Annotated[
        str | None,
        Field(description="When traffic last moved (RFC 3339).", json_schema_extra={"format": "date-time"}),
    ] = None


class SLOStatus(ApiModel):
    """Measurements beside the promises; filled once metrics are there."""

    ttft_p95: Annotated[str | None, Field(description="Measured TTFT P95 over all buckets, as a duration.")] = None


class DiagnosisStatus(ApiModel):
    """What slows the first token; filled once metrics are there."""

    bottleneck: Annotated[str | None, Field(description="First finding.")] = None


class InferenceServiceStatus(ApiModel):
    """What runs and why."""

    observed_generation: Annotated[int | None, Field(description="Spec generation this status is about.")] = None
    conditions: Annotated[list[Condition], Field(description="State by aspect; Ready sums up."), *list_map("type")] = []
    endpoint: Annotated[str | None, Field(description="URL inside the cluster (OpenAI API).")] = None
    layout: Annotated[str | None, Field(description="Colocated or Disaggregated.")] = None
    revision: Annotated[RevisionStatus | None, Field(description="Revisions.")] = None
    plan: Annotated[PlanStatus | None, Field(description="The plan in force.")] = None
    slo: Annotated[SLOStatus | None, Field(description="Measurements beside the promises.")] = None
    diagnosis: Annotated[DiagnosisStatus | None, Field(description="What slows the first token.")] = None
    replicas: Annotated[int | None, Field(description="Replicas of the serving revision (for /scale).")] = None
    ready_replicas: Annotated[int | None, Field(description="Ready replicas.")] = None
    selector: Annotated[str | None, Field(description="Label selector of the engines' pods (for /scale).")] = None


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
        ),
        Rule(
            "name-dns-label",
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "metadata.name becomes a Service name: use lower-case letters, digits and '-', starting with a letter",
        ),
    )
