"""The engine's environment: the contract with the runtime image (DESIGN §7), and what vLLM needs to run hardened."""

from typing import Any

from firsttoken.api.records import AcceleratorProfileSpec
from firsttoken.api.service import InferenceService
from firsttoken.manifests import names, pods
from firsttoken.manifests.sources import ModelSource
from firsttoken.planning.types import RolePlan

Variable = dict[str, Any]

SETTINGS_DIRECTORY = "/etc/firsttoken/live"
SETTINGS_KEY = "settings.json"

# Above the idle time-outs of Envoy (UPSTREAM_IDLE_SECONDS) and vllm-router (50 s): the side that reuses a connection
# must be the one that closes it. vLLM's default of 5 s makes callers write into connections that are just closing.
ENGINE_KEEP_ALIVE_SECONDS = 75

_SCRATCH = "/tmp/cache"  # noqa: S108 - an emptyDir of the pod

# The root is read-only and the user has no entry in /etc/passwd (PyTorch asks for its name).
_PROCESS = {
    "HOME": "/tmp",  # noqa: S108
    "USER": "firsttoken",
    "XDG_CACHE_HOME": _SCRATCH,
    "VLLM_CACHE_ROOT": f"{_SCRATCH}/vllm",
    "TORCHINDUCTOR_CACHE_DIR": f"{_SCRATCH}/inductor",
    "TRITON_CACHE_DIR": f"{_SCRATCH}/triton",
    "FLASHINFER_WORKSPACE_BASE": _SCRATCH,
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(ENGINE_KEEP_ALIVE_SECONDS),
}

# Without this every engine of a machine binds its threads to the same first cores.
_CPU = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def engine_environment(
    service: InferenceService,
    role: RolePlan,
    profile: AcceleratorProfileSpec,
    source: ModelSource,
) -> tuple[list[Variable], list[Variable]]:
    """What is the operator's to set, and defaults that `podTemplate.engine.env` may replace; in a fixed order."""
    owned = [*_contract(service), *source.env, *(_side_channel() if role.role != "serve" else [])]
    taken = {variable["name"] for variable in owned}
    planned = sorted(item for item in role.environment.items() if item[0] not in taken)
    owned += [{"name": name, "value": value} for name, value in planned]
    defaults = {**_PROCESS, **(_CPU if profile.vendor == "CPU" else {})}
    return owned, [{"name": name, "value": value} for name, value in defaults.items()]


def _contract(service: InferenceService) -> list[Variable]:
    """What firsttoken_runtime reads (DESIGN §7)."""
    bounds = ",".join(str(bound) for bound in service.spec.measurement.prompt_token_buckets)
    return [
        {"name": "FIRSTTOKEN_PROMPT_BUCKETS", "value": bounds},
        {"name": "FIRSTTOKEN_SETTINGS_FILE", "value": f"{SETTINGS_DIRECTORY}/{SETTINGS_KEY}"},
        {"name": "FIRSTTOKEN_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "FIRSTTOKEN_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "FIRSTTOKEN_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "FIRSTTOKEN_SERVICE", "valueFrom": pods.label_field(names.SERVICE_LABEL)},
        {"name": "FIRSTTOKEN_REVISION", "valueFrom": pods.label_field(names.REVISION_LABEL)},
        {"name": "FIRSTTOKEN_ROLE", "valueFrom": pods.label_field(names.ROLE_LABEL)},
    ]


def _side_channel() -> list[Variable]:
    """Where this engine's NIXL metadata is fetched from by the other role."""
    return [
        {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": str(names.NIXL_PORT)},
    ]
