"""InferenceService spec, the overlay on the engines' pods: allow-listed fields, the operator's own are refused."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from firsttoken.api.base import (
    ApiModel,
    DnsName,
    Extension,
    Rule,
    Rules,
    Shape,
    cel_list,
    key_limit,
    list_map,
    text_budget,
)
from firsttoken.api.kubernetes import (
    LABEL_KEY_LENGTH,
    LABEL_KEYS,
    LABEL_KEYS_LENGTH,
    EnvVar,
    LabelValue,
    LocalReference,
    ResourceRequirements,
    Toleration,
    Volume,
    VolumeMount,
)

# What the operator sets in the engine's environment, and what would move the engine away from what is planned.
OWNED_ENV_PREFIXES = ("FIRSTTOKEN_", "VLLM_NIXL_", "VLLM_DP_")
OWNED_ENV = (
    "CUDA_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HIP_VISIBLE_DEVICES",
    "HUGGING_FACE_HUB_TOKEN", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "VLLM_API_KEY",
    "VLLM_ATTENTION_BACKEND", "VLLM_CPU_KVCACHE_SPACE", "VLLM_HOST_IP", "VLLM_PORT", "VLLM_TARGET_DEVICE",
    "ZE_AFFINITY_MASK",
)  # fmt: skip
# What loads code into the engine, exchanges the model, or opens what is for developers (docs/decisions/0009).
# LD_LIBRARY_PATH stays allowed: nodes of some clouds need it to find the GPU driver's libraries.
REFUSED_ENV = (
    "BASH_ENV", "CUDA_INJECTION64_PATH", "GCONV_PATH", "LD_AUDIT", "LD_PRELOAD", "PATH", "PYTHONBREAKPOINT",
    "PYTHONHOME", "PYTHONINSPECT", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE",
    "VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_CUDART_SO_PATH",
    "VLLM_DEBUG_LOG_API_SERVER_RESPONSE", "VLLM_LOGGING_CONFIG_PATH", "VLLM_LORA_RESOLVER_CACHE_DIR",
    "VLLM_MODEL_REDIRECT_PATH", "VLLM_NCCL_SO_PATH", "VLLM_PLUGINS", "VLLM_SERVER_DEV_MODE", "VLLM_TRACE_FUNCTION",
    "VLLM_USE_MODELSCOPE",
)  # fmt: skip
REFUSED_ENV_PREFIXES = ("VLLM_TORCH_PROFILER_", "VLLM_TORCH_CUDA_PROFILE")
_OWNED_ENV = f"(n in {cel_list(OWNED_ENV)} || {cel_list(OWNED_ENV_PREFIXES)}.exists(p, n.startsWith(p)))"
_REFUSED_ENV = f"(n in {cel_list(REFUSED_ENV)} || {cel_list(REFUSED_ENV_PREFIXES)}.exists(p, n.startsWith(p)))"

# Where the operator mounts things of its own, and what the container needs as it is.
OWNED_MOUNTS = ("/", "/dev", "/etc", "/firsttoken", "/models", "/proc", "/sys", "/tmp", "/usr", "/var/run")  # noqa: S108 - no file is made


class TemplateMetadata(ApiModel):
    """Labels and annotations for the engines' pods."""

    labels: Annotated[
        dict[str, LabelValue],
        Field(max_length=32, description="More labels for the pods."),
        LABEL_KEYS,
        LABEL_KEYS_LENGTH,
        Rule(
            "template-own-labels",
            "self.all(k, !k.startsWith('firsttoken.dev/') && !k.startsWith('app.kubernetes.io/'))",
            "labels below firsttoken.dev/ and app.kubernetes.io/ are the operator's: use a prefix of your own",
        ),
    ] = {}
    annotations: Annotated[
        dict[str, Annotated[str, Field(max_length=4096)]],
        Field(max_length=32, description="More annotations for the pods."),
        LABEL_KEYS,
        key_limit("annotation-keys-length", "annotations", LABEL_KEY_LENGTH),
        Rule(
            "template-own-annotations",
            "self.all(k, !k.startsWith('firsttoken.dev/'))",
            "annotations below firsttoken.dev/ are the operator's: use a prefix of your own",
        ),
        text_budget("annotations-budget", "annotations", 8_192),
    ] = {}


class TemplatePodSpec(ApiModel):
    """Pod fields a user may set; everything else of the pod is the operator's."""

    node_selector: Annotated[
        dict[str, LabelValue],
        Field(max_length=32, description="Labels a node must have, beside those of the AcceleratorProfile."),
        LABEL_KEYS,
        LABEL_KEYS_LENGTH,
    ] = {}
    tolerations: Annotated[
        list[Annotated[dict[str, Any], Shape(Toleration)]], Field(max_length=32, description="Taints the pods accept.")
    ] = []
    image_pull_secrets: Annotated[
        list[Annotated[dict[str, Any], Shape(LocalReference)]],
        Field(max_length=16, description="Secrets with registry credentials."),
        *list_map("name"),
    ] = []
    service_account_name: Annotated[DnsName | None, Field(description="Identity of the engines' pods.")] = None
    priority_class_name: Annotated[DnsName | None, Field(description="Scheduling priority.")] = None
    runtime_class_name: Annotated[DnsName | None, Field(description="Container runtime, such as nvidia.")] = None
    scheduler_name: Annotated[DnsName | None, Field(description="Scheduler, such as volcano.")] = None
    termination_grace_period_seconds: Annotated[
        int | None, Field(ge=1, le=86_400, description="Time a pod gets to finish its streams, seconds.")
    ] = None
    volumes: Annotated[
        list[Annotated[dict[str, Any], Shape(Volume)]],
        Field(max_length=16, description="More volumes: configMap, secret, persistentVolumeClaim or emptyDir."),
        *list_map("name"),
    ] = []


class TemplateEngine(ApiModel):
    """What a user may add to the engine's container."""

    env: Annotated[
        list[Annotated[dict[str, Any], Shape(EnvVar)]],
        Field(max_length=48, description="More environment variables."),
        *list_map("name"),
        Rule(
            "env-owned",
            f"!self.map(e, e.name).exists(n, {_OWNED_ENV})",
            "env sets a variable the operator owns: use the spec's own fields, such as model.credentials for a token",
            message_cel=f"'env sets ' + self.map(e, e.name).filter(n, {_OWNED_ENV})[0]"
            " + ', a variable the operator owns: "
            "use the fields of the spec, such as model.credentials for a token'",
        ),
        Rule(
            "env-code",
            f"!self.map(e, e.name).exists(n, {_REFUSED_ENV})",
            "env sets a variable that loads code or is for developers: remove it; code belongs into spec.engine.image",
            message_cel=f"'env sets ' + self.map(e, e.name).filter(n, {_REFUSED_ENV})[0]"
            " + ', which loads code or is for developers: remove it; code belongs into spec.engine.image'",
        ),
        Rule(
            "env-budget",
            "self.map(e, has(e.value) ? e.value.size() : 0).sum() <= 8192",
            "env is too large: the values together may have 8192 characters, move long texts into a ConfigMap",
        ),
    ] = []
    resources: Annotated[
        Annotated[dict[str, Any], Shape(ResourceRequirements)] | None,
        Field(description="CPU and memory; GPUs follow from the plan and can't be set here."),
    ] = None
    volume_mounts: Annotated[
        list[Annotated[dict[str, Any], Shape(VolumeMount)]],
        Field(max_length=32, description="More mounts, of volumes of podTemplate.spec.volumes."),
        Extension("x-kubernetes-list-type", "map"),
        Extension("x-kubernetes-list-map-keys", ["mountPath"]),
        Rule(
            "mount-owned",
            f"!self.exists(m, m.mountPath in {cel_list(OWNED_MOUNTS)} || "
            f"{cel_list(f'{p}/' for p in OWNED_MOUNTS if p != '/')}.exists(p, m.mountPath.startsWith(p)))",
            "a mount lies where the container has its own files: use a path such as /data, not below "
            + ", ".join(OWNED_MOUNTS[1:]),
        ),
    ] = []


class PodTemplate(ApiModel):
    """Overlay on the engines' pods for what the operator does not know."""

    metadata: Annotated[TemplateMetadata | None, Field(description="More labels and annotations.")] = None
    spec: Annotated[TemplatePodSpec | None, Field(description="Pod fields.")] = None
    engine: Annotated[TemplateEngine | None, Field(description="Container fields of the engine.")] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "mount-without-volume",
            "!has(self.engine) || !has(self.engine.volumeMounts) || self.engine.volumeMounts.all(m, "
            "has(self.spec) && has(self.spec.volumes) && self.spec.volumes.exists(v, v.name == m.name))",
            "a mount names a volume that podTemplate.spec.volumes does not have: add it there, or correct the name",
            ".engine.volumeMounts",
        ),
    )
