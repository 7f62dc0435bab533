"""Input for the tests of the command line, and objects as an API server would hand them out."""

from collections.abc import Mapping
from typing import Any

from firsttoken.api.base import Condition
from firsttoken.api.service import (
    InferenceService,
    InferenceServiceStatus,
    PlanReason,
    PlanStatus,
    RevisionStatus,
    RoleStatus,
)

SERVICE = """\
# A comment, so that the object does not start at line 1.
apiVersion: firsttoken.dev/v1alpha1
kind: InferenceService
metadata:
  name: kb-assistant
  namespace: serving
spec:
  model:
    uri: hf://mistralai/Mistral-7B-Instruct-v0.3
  accelerator:
    type: nvidia-a100-40gb
    maxCount: 8
  workload:
    profile: KnowledgeQA
    promptTokens: {p50: 1100, p95: 1500}
    outputTokens: {p50: 350, p95: 500}
    sharedPrefixTokens: 480
  slos:
  - {metric: TTFT, percentile: 95, target: 1200ms}
  routing:
    gateway: {name: public}
"""

BAD = SERVICE.replace("p95: 1500", "p95: 1000").replace("percentile: 95", "percentile: 42")

INFEASIBLE = (
    SERVICE.replace("kb-assistant", "too-big")
    .replace("hf://mistralai/Mistral-7B-Instruct-v0.3", "hf://meta-llama/Llama-3.1-70B-Instruct")
    .replace("nvidia-a100-40gb", "nvidia-t4")
    .replace("maxCount: 8", "maxCount: 1")
)

PROFILE = """\
apiVersion: firsttoken.dev/v1alpha1
kind: AcceleratorProfile
metadata: {name: our-gpu}
spec:
  vendor: NVIDIA
  product: Ours
  computeCapability: "9.0"
  resourceName: nvidia.com/gpu
  memory: 80Gi
  linkGbPerSecond: 450
"""

FOREIGN = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
"""

NOW = "2026-05-01T12:00:00Z"
STABLE = "kb-assistant-0a1b2c3d"
NEXT = "kb-assistant-4e5f6a7b"


def condition(kind: str, status: str, reason: str, message: str) -> Condition:
    """A condition that became so two hours ago."""
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time="2026-05-01T10:00:00Z",
        observed_generation=3,
    )


def ready_status(**changes: Any) -> InferenceServiceStatus:
    """The status of a service that serves."""
    message = f"revision {STABLE} serves with 8 × serve (1 × nvidia-a100-40gb)"
    status = InferenceServiceStatus(
        observed_generation=3,
        conditions=[
            condition("Ready", "True", "Serving", message),
            condition("Planned", "True", "Planned", "Colocated: 8 × serve (1 × nvidia-a100-40gb), 8 GPUs"),
            condition("Available", "True", "Serving", f"revision {STABLE}: 9 of 9 pods ready"),
        ],
        endpoint="http://kb-assistant.serving.svc/v1",
        layout="Colocated",
        revision=RevisionStatus(desired=STABLE, stable=STABLE, inputs_hash="00112233"),
        plan=PlanStatus(
            gpus=8,
            roles=[
                RoleStatus(
                    role="serve",
                    accelerator="nvidia-a100-40gb",
                    replicas=8,
                    ready_replicas=8,
                    gpus_per_replica=1,
                    engine_args={"max-num-batched-tokens": "2048"},
                )
            ],
            reasons=[PlanReason(code="PrefixCaching", message="on: prompts share their first 480 tokens")],
        ),
        replicas=8,
        ready_replicas=8,
    )
    return status.model_copy(update=changes)


def stored(status: InferenceServiceStatus | None, **metadata: Any) -> dict[str, Any]:
    """The InferenceService with a status, as it comes from the API server."""
    meta = {
        "name": "kb-assistant",
        "namespace": "serving",
        "uid": "uid-of-kb-assistant",
        "generation": 3,
        "creationTimestamp": "2026-04-28T12:00:00Z",
        **metadata,
    }
    spec = {"model": {"uri": "hf://mistralai/Mistral-7B-Instruct-v0.3"}, "accelerator": {"type": "nvidia-a100-40gb"}}
    wire = {
        "apiVersion": "firsttoken.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": meta,
        "spec": spec,
        **({} if status is None else {"status": status.wire()}),
    }
    InferenceService.model_validate(wire)  # the fixture is what the models say it is
    return wire


def record(name: str, why: str) -> dict[str, Any]:
    """An InferenceRevision."""
    return {
        "apiVersion": "firsttoken.dev/v1alpha1",
        "kind": "InferenceRevision",
        "metadata": {"name": name, "namespace": "serving"},
        "spec": {"serviceName": "kb-assistant", "reason": {"type": "SpecChange", "message": why}},
    }


def event(time: str, reason: str, message: str, **changes: Any) -> Mapping[str, Any]:
    """An event about the service."""
    return {
        "metadata": {"name": f"kb-assistant.{reason}.{time}"},
        "involvedObject": {"uid": "uid-of-kb-assistant"},
        "type": "Normal",
        "reason": reason,
        "message": message,
        "lastTimestamp": time,
        "count": 1,
        **changes,
    }
