"""vLLM's flags for a role (vLLM 0.32; names without the dashes, "" for a bare flag)."""

import json
from dataclasses import dataclass

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceServiceSpec
from firsttoken.planning.accelerators import is_cpu
from firsttoken.planning.memory import GIB
from firsttoken.planning.parallelism import Candidate
from firsttoken.planning.types import Reason


@dataclass(frozen=True)
class EngineChoice:
    """What was decided for one role. Lengths in tokens."""

    role: str
    profile: AcceleratorProfileSpec
    candidate: Candidate
    max_model_length: int
    ceiling: int  # tokens of a step at most; live tuning moves below it
    max_num_seqs: int
    utilization: float
    dtype: str | None  # None: as the model's config says
    kv_cache_dtype: str | None
    attention_backend: str | None
    chunked_prefill: bool
    prefix_caching: bool


def engine_args(spec: InferenceServiceSpec, choice: EngineChoice) -> dict[str, str]:
    """Flags in a fixed order of names; `spec.engine.extraArgs` is added when they are rendered."""
    args = {
        "max-model-len": str(choice.max_model_length),
        "max-num-batched-tokens": str(choice.ceiling),
        "max-num-seqs": str(choice.max_num_seqs),
        "tensor-parallel-size": str(choice.candidate.tensor_parallel),
        "pipeline-parallel-size": str(choice.candidate.pipeline_parallel),
        _switch("enable-chunked-prefill", choice.chunked_prefill): "",
        _switch("enable-prefix-caching", choice.prefix_caching): "",
    }
    optional = {
        # The one flag here that the operator doesn't own: a user's own stands.
        "dtype": None if "dtype" in spec.engine.extra_args else choice.dtype,
        "quantization": spec.model.quantization,
        "kv-cache-dtype": choice.kv_cache_dtype,
        "attention-backend": choice.attention_backend,
        # On CPU the KV space is given in the environment and this flag has no device to refer to.
        "gpu-memory-utilization": None if is_cpu(choice.profile) else f"{choice.utilization:g}",
        "enforce-eager": "" if _eager(spec, choice.profile) else None,
        "kv-transfer-config": kv_transfer_config(choice.role, choice.profile),
        # Over nodes, vLLM's own processes; which of them a pod is, and who leads, is rendered (manifests/groups.py).
        "nnodes": str(choice.candidate.nodes) if choice.candidate.nodes > 1 else None,
        "distributed-executor-backend": "mp" if choice.candidate.nodes > 1 else None,
    }
    args.update({name: value for name, value in optional.items() if value is not None})
    return dict(sorted(args.items()))


def eager_reason(spec: InferenceServiceSpec, profile: AcceleratorProfileSpec) -> tuple[Reason, ...]:
    """Why nothing is compiled on a CPU; nothing where the user decides, or on a GPU."""
    if not _eager(spec, profile):
        return ()
    text = "on: compilation for CPUs needs a C++ compiler, which the CPU image doesn't have"
    return (Reason("EnforceEager", text),)


def _eager(spec: InferenceServiceSpec, profile: AcceleratorProfileSpec) -> bool:
    given = {"enforce-eager", "no-enforce-eager"} & spec.engine.extra_args.keys()
    return is_cpu(profile) and not given


def environment(profile: AcceleratorProfileSpec, kv_cache_bytes: int) -> dict[str, str]:
    """Variables that vLLM has no flag for: on CPU the KV space, in whole GiB."""
    if not is_cpu(profile):
        return {}
    return {"VLLM_CPU_KVCACHE_SPACE": str(-(-kv_cache_bytes // GIB))}


def kv_transfer_config(role: str, profile: AcceleratorProfileSpec) -> str | None:
    """How KV travels from prefill to decode; None for a colocated role.

    Policy `fail`: a transfer that did not arrive is an error, never a silent recomputation on the decode side.
    """
    kinds = {"prefill": "kv_producer", "decode": "kv_consumer"}
    if role not in kinds:
        return None
    config = {"kv_connector": "NixlConnector", "kv_load_failure_policy": "fail", "kv_role": kinds[role]}
    if is_cpu(profile):
        config["kv_buffer_device"] = "cpu"
    return json.dumps(config, sort_keys=True, separators=(",", ":"))


def _switch(flag: str, on: bool) -> str:
    return flag if on else f"no-{flag}"
