"""Kubernetes' own types as far as users may set them: same field names, so that manifests can be pasted.

These models only give schemas (see `Shape`): values stay the dicts that the user wrote. What is missing here, such as
hostPath, is refused: pods of an inference service must not reach into their node.
"""

from typing import Annotated, Any, ClassVar

from pydantic import Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from firsttoken.api.base import ApiModel, DataKey, DnsName, Rule, Rules, key_limit, matches

QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE](1[0-8]|[0-9]))?$"
_SWITCH = "^([01]|[Tt]rue|TRUE|[Ff]alse|FALSE|[Yy]es|YES|[Nn]o|NO|[Oo]n|ON|[Oo]ff|OFF)?$"
LABEL_KEY_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
LABEL_KEY_LENGTH = 253 + 1 + 63


class _Quantity:
    """Schema of a resource quantity: `cpu: 4` and `cpu: 500m` are both usual."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {
            "x-kubernetes-int-or-string": True,
            "maxLength": 32,
            "pattern": QUANTITY_PATTERN,
        }


Quantity = Annotated[Any, _Quantity()]
LabelValue = Annotated[
    str,
    Field(max_length=63),
    Rule(
        "label-value",
        matches(LABEL_VALUE_PATTERN),
        "not a label value: use letters, digits, '-', '_' and '.', starting and ending with a letter or digit",
    ),
]
LabelKey = Annotated[
    str,
    Field(max_length=LABEL_KEY_LENGTH),
    Rule(
        "label-key",
        matches(LABEL_KEY_PATTERN.replace("^", "^(").replace("$", ")?$")),
        "not a key of a label or taint: use a name of letters, digits, '-', '_' and '.', such as nvidia.com/gpu",
    ),
]
LABEL_KEYS = Rule(
    "label-keys",
    f"self.all(k, {matches(LABEL_KEY_PATTERN).replace('self', 'k', 1)})",
    "not a label key: use a name of letters, digits, '-', '_' and '.', with a prefix such as example.com/ before it",
)
LABEL_KEYS_LENGTH = key_limit("label-keys-length", "labels", LABEL_KEY_LENGTH)


class Toleration(ApiModel):
    """A taint that pods accept (core/v1 Toleration)."""

    key: Annotated[LabelKey | None, Field(description="Key of the taint; none: every key.")] = None
    operator: Annotated[
        str | None,
        Field(description="Exists or Equal (default).", json_schema_extra={"enum": ["Exists", "Equal"]}),
    ] = None
    value: Annotated[LabelValue | None, Field(description="Value of the taint, for Equal.")] = None
    effect: Annotated[
        str | None,
        Field(
            description="Effect of the taint; none: every effect.",
            json_schema_extra={"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
        ),
    ] = None
    toleration_seconds: Annotated[
        int | None, Field(ge=0, le=2**31 - 1, description="How long a NoExecute taint is accepted, seconds.")
    ] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "toleration-value",
            "!(has(self.operator) && self.operator == 'Exists' && has(self.value) && self.value != '')",
            "operator Exists accepts every value: remove value, or use operator Equal",
            ".value",
        ),
        Rule(
            "toleration-key",
            "(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
            "a toleration without key needs operator Exists: name the taint's key, or accept every taint with Exists",
            ".key",
        ),
    )


class LocalReference(ApiModel):
    """An object in the service's namespace."""

    name: Annotated[DnsName, Field(description="Name of the object.")]


class KeyReference(ApiModel):
    """A key of a Secret or ConfigMap in the service's namespace."""

    name: Annotated[DnsName, Field(description="Name of the object.")]
    key: Annotated[DataKey, Field(description="Key in the object.")]
    optional: Annotated[bool | None, Field(description="Start without it if it is missing.")] = None


class FieldReference(ApiModel):
    """A field of the pod."""

    field_path: Annotated[
        str,
        Field(max_length=256, description="Field of the pod, such as status.podIP."),
        Rule(
            "env-field-path", matches(r"^[A-Za-z][]A-Za-z0-9./_'\[-]*$"), "not a field of the pod: such as status.podIP"
        ),
    ]
    api_version: Annotated[
        str | None, Field(description="Version of the path.", json_schema_extra={"enum": ["v1"]})
    ] = None


class EnvSource(ApiModel):
    """Where a variable's value comes from."""

    secret_key_ref: Annotated[KeyReference | None, Field(description="Key of a Secret.")] = None
    config_map_key_ref: Annotated[KeyReference | None, Field(description="Key of a ConfigMap.")] = None
    field_ref: Annotated[FieldReference | None, Field(description="Field of the pod.")] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "env-source-one-of",
            "[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].exists_one(x, x)",
            "set exactly one of secretKeyRef, configMapKeyRef and fieldRef",
        ),
    )


class EnvVar(ApiModel):
    """An environment variable (core/v1 EnvVar)."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=128, description="Name of the variable."),
        Rule("env-name", matches("^[A-Za-z_][A-Za-z0-9_]*$"), "not a variable name: use letters, digits and '_'"),
    ]
    value: Annotated[str | None, Field(max_length=4096, description="Its value; never a secret.")] = None
    value_from: Annotated[EnvSource | None, Field(description="Where its value comes from.")] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "env-one-of",
            "!(has(self.value) && has(self.valueFrom))",
            "value and valueFrom exclude each other: keep one of them",
        ),
        Rule(
            "env-secret",
            # A switch is no secret, whatever its name: HF_HUB_DISABLE_IMPLICIT_TOKEN=1.
            f"!has(self.value) || {matches(_SWITCH).replace('self', 'self.value', 1)} || "
            "!self.name.matches('(^|_)(TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY|PRIVATE_KEY)$')",
            "a secret must not be written into the spec: put it into a Secret and use valueFrom.secretKeyRef",
            ".value",
        ),
    )


# Devices that the plan counts, shared and sliced ones included; others, such as rdma/hca, are the user's to ask for.
DEVICE_PATTERN = r"^(nvidia\.com/(gpu|mig-)|amd\.com/gpu|habana\.ai/gaudi|gpu\.intel\.com/)"
NO_DEVICES = Rule(
    "resources-device",
    f"!self.exists(k, {matches(DEVICE_PATTERN).replace('self', 'k', 1)})",
    "GPUs follow from the plan: remove the device here, and bound the number with spec.accelerator.maxCount",
)
RESOURCE_KEYS_LENGTH = key_limit("resources-keys-length", "resources", LABEL_KEY_LENGTH)


class ResourceRequirements(ApiModel):
    """What a container asks for (core/v1 ResourceRequirements); devices follow from the plan."""

    limits: Annotated[
        dict[str, Quantity],
        Field(
            max_length=8, description="Most it may use, by resource: cpu in cores, memory in bytes, rdma/hca by count."
        ),
        NO_DEVICES,
        RESOURCE_KEYS_LENGTH,
    ] = {}
    requests: Annotated[
        dict[str, Quantity],
        Field(
            max_length=8, description="What is reserved, by resource: cpu in cores, memory in bytes, rdma/hca by count."
        ),
        NO_DEVICES,
        RESOURCE_KEYS_LENGTH,
    ] = {}

    RULES: ClassVar[Rules] = (
        Rule(
            "resources-above-limit",
            "!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || "
            "!isQuantity(string(self.requests[k])) || !isQuantity(string(self.limits[k])) || "
            "quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",
            "a request is above its limit: raise the limit or lower the request",
            ".requests",
        ),
    )


class VolumeMount(ApiModel):
    """A volume in the engine's file system (core/v1 VolumeMount)."""

    name: Annotated[DnsName, Field(description="Name of a volume of podTemplate.spec.volumes.")]
    mount_path: Annotated[
        str,
        Field(max_length=256, description="Where it appears."),
        Rule(
            "mount-path",
            matches("^/[-A-Za-z0-9._/+@=~]*$") + " && !self.contains('/..')",
            "not a mount path: use an absolute path of letters, digits and -._/+@=~, without '..'",
        ),
    ]
    sub_path: Annotated[
        str | None,
        Field(max_length=256, description="Path inside the volume."),
        Rule(
            "mount-sub-path",
            matches("^[-A-Za-z0-9._+@=~][-A-Za-z0-9._/+@=~]*$") + " && !self.contains('..')",
            "not a path inside a volume: use a relative path of letters, digits and -._/+@=~, without '..'",
        ),
    ] = None
    read_only: Annotated[bool | None, Field(description="Mounted read-only.")] = None


class ConfigMapVolume(ApiModel):
    """Files from a ConfigMap."""

    name: Annotated[DnsName, Field(description="Name of the ConfigMap.")]
    optional: Annotated[bool | None, Field(description="Start without it if it is missing.")] = None
    default_mode: Annotated[int | None, Field(ge=0, le=0o777, description="Permission bits of the files.")] = None


class SecretVolume(ApiModel):
    """Files from a Secret."""

    secret_name: Annotated[DnsName, Field(description="Name of the Secret.")]
    optional: Annotated[bool | None, Field(description="Start without it if it is missing.")] = None
    default_mode: Annotated[int | None, Field(ge=0, le=0o777, description="Permission bits of the files.")] = None


class ClaimVolume(ApiModel):
    """A PersistentVolumeClaim."""

    claim_name: Annotated[DnsName, Field(description="Name of the claim.")]
    read_only: Annotated[bool | None, Field(description="Mounted read-only.")] = None


class EmptyDirVolume(ApiModel):
    """Scratch space of the pod."""

    medium: Annotated[
        str | None, Field(description="Memory, or the node's disk.", json_schema_extra={"enum": ["", "Memory"]})
    ] = None
    size_limit: Annotated[Quantity | None, Field(description="Limit, such as 20Gi.")] = None


class Volume(ApiModel):
    """A volume of the pod, of the kinds that stay away from the node (core/v1 Volume)."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=63, description="Name of the volume."),
        Rule("volume-name", matches("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), "not a volume name: use a-z, 0-9 and '-'"),
        Rule(
            "volume-own-name",
            "!self.startsWith('firsttoken-')",
            "volumes that begin with firsttoken- are the operator's: choose another name",
        ),
    ]
    config_map: Annotated[ConfigMapVolume | None, Field(description="Files from a ConfigMap.")] = None
    secret: Annotated[SecretVolume | None, Field(description="Files from a Secret.")] = None
    persistent_volume_claim: Annotated[ClaimVolume | None, Field(description="A claim.")] = None
    empty_dir: Annotated[EmptyDirVolume | None, Field(description="Scratch space.")] = None

    RULES: ClassVar[Rules] = (
        Rule(
            "volume-one-of",
            "[has(self.configMap), has(self.secret), has(self.persistentVolumeClaim), has(self.emptyDir)]"
            ".exists_one(x, x)",
            "set exactly one of configMap, secret, persistentVolumeClaim and emptyDir: "
            "others, such as hostPath, aren't allowed",
        ),
    )
