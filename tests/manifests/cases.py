"""Services and plans made by hand, shared by the tests of rendering."""

import json
from typing import Any

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceService
from firsttoken.manifests.gateway import Backend
from firsttoken.planning.types import LiveSettings, MemoryBudget, Plan, RolePlan

SETTINGS = LiveSettings(token_budget=512, decode_cap=64)
MEMORY = MemoryBudget(
    weights_bytes=15_231_233_024,
    kv_bytes_per_token=57_344,
    kv_cache_tokens=300_000,
    max_concurrent_requests=160,
    max_concurrent_at_maximum_length=36,
)

PROFILES = {
    "nvidia-a100-40gb": AcceleratorProfileSpec(
        vendor="NVIDIA",
        product="NVIDIA A100 40GB",
        resource_name="nvidia.com/gpu",
        memory="40Gi",
        node_selector_terms=[
            {
                "matchExpressions": [
                    {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-A100-SXM4-40GB"]}
                ]
            }
        ],
        tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    ),
    "cpu": AcceleratorProfileSpec(vendor="CPU", product="CPU", memory="64Gi", devices_per_node=1),
}


def service(name: str = "kb-assistant", namespace: str = "apps", **spec: Any) -> InferenceService:
    """An InferenceService from its wire form; `spec` goes over a Qwen2.5-7B on A100."""
    base = {"model": {"uri": "hf://Qwen/Qwen2.5-7B-Instruct"}, "accelerator": {"type": "nvidia-a100-40gb"}}
    return InferenceService.model_validate(
        {"metadata": {"name": name, "namespace": namespace}, "spec": {**base, **spec}}
    )


def role(name: str = "serve", **changes: Any) -> RolePlan:
    """A role with chunked prefill on one A100."""
    values: dict[str, Any] = {
        "role": name,
        "accelerator": "nvidia-a100-40gb",
        "replicas": 4,
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "engine_args": {
            "enable-chunked-prefill": "",
            "enable-prefix-caching": "",
            "gpu-memory-utilization": "0.92",
            "max-model-len": "8192",
            "max-num-batched-tokens": "512",
            "max-num-seqs": "64",
            "pipeline-parallel-size": str(changes.get("pipeline_parallel", 1)),
            "tensor-parallel-size": str(changes.get("tensor_parallel", 1)),
        },
    }
    return RolePlan(**{**values, **changes})


def plan(*roles: RolePlan, router: bool = False) -> Plan:
    """A plan over `roles` (default: one colocated role)."""
    chosen = roles or (role(),)
    return Plan(
        layout="Disaggregated" if any(r.role != "serve" for r in chosen) else "Colocated",
        model="qwen2.5-7b",
        max_model_length=8192,
        roles=chosen,
        memory=MEMORY,
        settings=SETTINGS,
        router=router,
    )


def transfer_role(name: str, lease: int | None = None, **changes: Any) -> RolePlan:
    """A role of a disaggregated plan, with NIXL."""
    config: dict[str, Any] = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_producer" if name == "prefill" else "kv_consumer",
        "kv_load_failure_policy": "fail",
    }
    if lease is not None:
        config["kv_connector_extra_config"] = {"kv_lease_duration": lease}
    args = {**role(name, **changes).engine_args, "kv-transfer-config": json.dumps(config, sort_keys=True)}
    return role(name, engine_args=args, **changes)


def disaggregated() -> Plan:
    """Prefill on two GPUs a replica, decode on one."""
    return plan(transfer_role("prefill", tensor_parallel=2), transfer_role("decode"), router=True)


def over_nodes(router: bool = True) -> Plan:
    """Two replicas of sixteen GPUs, each on two nodes: a stage on each."""
    args = {**role(tensor_parallel=8, pipeline_parallel=2).engine_args, "nnodes": "2"}
    args["distributed-executor-backend"] = "mp"
    wide = role(tensor_parallel=8, pipeline_parallel=2, replicas=2, nodes=2, engine_args=args)
    return plan(wide, router=router)


def cpu_plan() -> Plan:
    """One replica on a machine without a GPU."""
    sizes = {"max-model-len": "8192", "pipeline-parallel-size": "1", "tensor-parallel-size": "1"}
    args = {"dtype": "float32", "enforce-eager": "", **sizes}
    return plan(role(accelerator="cpu", replicas=1, engine_args=args, environment={"VLLM_CPU_KVCACHE_SPACE": "17"}))


def quantised_plan(kind: str) -> Plan:
    """One replica on weights stored as `kind`."""
    return plan(role(engine_args={**role().engine_args, "quantization": kind}))


POD_TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"team": "search"}, "annotations": {"example.com/owner": "search"}},
    "spec": {
        "nodeSelector": {"pool": "inference"},
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "inference", "effect": "NoSchedule"}],
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccountName": "engines",
        "priorityClassName": "serving",
        "runtimeClassName": "nvidia",
        "schedulerName": "volcano",
        "terminationGracePeriodSeconds": 600,
        "volumes": [{"name": "extra", "configMap": {"name": "extra"}}],
    },
    "engine": {
        "env": [{"name": "NCCL_DEBUG", "value": "WARN"}],
        "resources": {"requests": {"cpu": "4000m", "memory": "65536Mi"}, "limits": {"memory": "128Gi"}},
        "volumeMounts": [{"name": "extra", "mountPath": "/data/extra", "readOnly": True}],
    },
}

STABLE = Backend("kb-assistant-1a2b3c4d", "kb-assistant-1a2b3c4d-router", 8080, 90)
CANARY = Backend("kb-assistant-5e6f7a8b", "kb-assistant-5e6f7a8b-router", 8080, 10)
