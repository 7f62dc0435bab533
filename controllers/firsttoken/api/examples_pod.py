"""Rows of docs/validation.md about the pod template, accelerator profiles and revisions."""

from firsttoken.api.example import Example, field
from firsttoken.api.kubernetes import QUANTITY_PATTERN

_META, _SPEC, _ENGINE = "spec.podTemplate.metadata", "spec.podTemplate.spec", "spec.podTemplate.engine"
_LONG_KEY = "a" * 318

POD = (
    Example("label-keys", "A label's key", f"{_META}.labels", field(f"{_META}.labels", "{'my team': search}")),
    Example(
        "label-keys-length",
        "… and its length",
        f"{_META}.labels",
        field(f"{_META}.labels", f"{{{_LONG_KEY}: search}}"),
        shown=field(f"{_META}.labels", "{…318 characters…: search}"),
    ),
    Example(
        "label-value", "A label's value", f"{_META}.labels[team]", field(f"{_META}.labels", "{team: 'search & rank'}")
    ),
    Example(
        "template-own-labels",
        "Labels of the operator",
        f"{_META}.labels",
        field(f"{_META}.labels", "{app.kubernetes.io/name: mine}"),
    ),
    Example(
        "template-own-annotations",
        "Annotations of the operator",
        f"{_META}.annotations",
        field(f"{_META}.annotations", "{firsttoken.dev/command: promote}"),
    ),
    Example(
        "annotation-keys-length",
        "An annotation's key has a bounded length",
        f"{_META}.annotations",
        field(f"{_META}.annotations", f"{{{_LONG_KEY}: x}}"),
        shown=field(f"{_META}.annotations", "{…318 characters…: x}"),
    ),
    Example(
        "annotations-budget",
        "Annotations have a bounded size",
        f"{_META}.annotations",
        field(f"{_META}.annotations", "{" + ", ".join(f"a{i}: {'x' * 4096}" for i in range(4)) + "}"),
        shown=field(f"{_META}.annotations", "{…4 annotations with 4096 characters each…}"),
    ),
    Example(
        "label-key",
        "A taint's key",
        f"{_SPEC}.tolerations[0].key",
        field(f"{_SPEC}.tolerations", "[{key: 'nvidia gpu', operator: Exists}]"),
    ),
    Example(
        "toleration-value",
        "Exists has no value",
        f"{_SPEC}.tolerations[0].value",
        field(f"{_SPEC}.tolerations", "[{key: gpu, operator: Exists, value: 'true'}]"),
    ),
    Example(
        "toleration-key",
        "Equal needs a key",
        f"{_SPEC}.tolerations[0].key",
        field(f"{_SPEC}.tolerations", "[{effect: NoSchedule}]"),
    ),
    Example(
        "volume-one-of",
        "Volumes that stay away from the node",
        f"{_SPEC}.volumes[0]",
        field(f"{_SPEC}.volumes", "[{name: data}]"),
    ),
    Example(
        "volume-host-path",
        "… hostPath isn't one",
        f"{_SPEC}.volumes[0].hostPath",
        field(f"{_SPEC}.volumes", "[{name: data, hostPath: {path: /data}}]"),
        'unknown field "spec.podTemplate.spec.volumes[0].hostPath"',
    ),
    Example(
        "volume-name",
        "A volume's name",
        f"{_SPEC}.volumes[0].name",
        field(f"{_SPEC}.volumes", "[{name: My_Data, emptyDir: {}}]"),
    ),
    Example(
        "volume-own-name",
        "Volumes of the operator",
        f"{_SPEC}.volumes[0].name",
        field(f"{_SPEC}.volumes", "[{name: firsttoken-model, emptyDir: {}}]"),
    ),
    Example(
        "volume-duplicate",
        "Each volume once",
        f"{_SPEC}.volumes[1]",
        field(f"{_SPEC}.volumes", "[{name: data, emptyDir: {}}, {name: data, configMap: {name: data}}]"),
        'Duplicate value: {"name":"data"}',
    ),
    Example(
        "mount-without-volume",
        "A mount has its volume",
        f"{_ENGINE}.volumeMounts",
        field(f"{_ENGINE}.volumeMounts", "[{name: data, mountPath: /data}]"),
    ),
    Example(
        "mount-owned",
        "Mounts stay away from the container's own files",
        f"{_ENGINE}.volumeMounts",
        "spec:\n  podTemplate:\n    spec: {volumes: [{name: data, emptyDir: {}}]}\n"
        "    engine: {volumeMounts: [{name: data, mountPath: /etc/data}]}\n",
    ),
    Example(
        "mount-path",
        "A mount path is absolute",
        f"{_ENGINE}.volumeMounts[0].mountPath",
        "spec:\n  podTemplate:\n    spec: {volumes: [{name: data, emptyDir: {}}]}\n"
        "    engine: {volumeMounts: [{name: data, mountPath: data}]}\n",
    ),
    Example(
        "mount-sub-path",
        "A path inside a volume stays there",
        f"{_ENGINE}.volumeMounts[0].subPath",
        "spec:\n  podTemplate:\n    spec: {volumes: [{name: data, emptyDir: {}}]}\n"
        "    engine: {volumeMounts: [{name: data, mountPath: /data, subPath: ../other}]}\n",
    ),
)

ENVIRONMENT = (
    Example(
        "env-owned",
        "Variables of the operator",
        f"{_ENGINE}.env",
        field(f"{_ENGINE}.env", "[{name: VLLM_PORT, value: '80'}]"),
        "Invalid value: env sets VLLM_PORT, a variable the operator owns: use the fields of the spec, such as "
        "model.credentials for a token",
    ),
    Example(
        "env-code",
        "Variables that load code or are for developers",
        f"{_ENGINE}.env",
        field(f"{_ENGINE}.env", "[{name: LD_PRELOAD, value: /data/lib.so}]"),
        "Invalid value: env sets LD_PRELOAD, which loads code or is for developers: remove it; code belongs into "
        "spec.engine.image",
    ),
    Example(
        "env-name",
        "A variable's name",
        f"{_ENGINE}.env[0].name",
        field(f"{_ENGINE}.env", "[{name: LOG-LEVEL, value: debug}]"),
    ),
    Example(
        "env-one-of",
        "A value or a source",
        f"{_ENGINE}.env[0]",
        field(f"{_ENGINE}.env", "[{name: A, value: x, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]"),
    ),
    Example(
        "env-secret",
        "Secrets by reference only",
        f"{_ENGINE}.env[0].value",
        field(f"{_ENGINE}.env", "[{name: AWS_SECRET_ACCESS_KEY, value: wJalrXUt}]"),
    ),
    Example(
        "env-source-one-of",
        "One source",
        f"{_ENGINE}.env[0].valueFrom",
        field(f"{_ENGINE}.env", "[{name: A, valueFrom: {}}]"),
    ),
    Example(
        "env-field-path",
        "A field of the pod",
        f"{_ENGINE}.env[0].valueFrom.fieldRef.fieldPath",
        field(f"{_ENGINE}.env", "[{name: A, valueFrom: {fieldRef: {fieldPath: my field}}}]"),
    ),
    Example(
        "env-duplicate",
        "Each variable once",
        f"{_ENGINE}.env[1]",
        field(f"{_ENGINE}.env", "[{name: A, value: one}, {name: A, value: two}]"),
        'Duplicate value: {"name":"A"}',
    ),
    Example(
        "env-budget",
        "Variables have a bounded size",
        f"{_ENGINE}.env",
        field(f"{_ENGINE}.env", "[" + ", ".join(f"{{name: A{i}, value: {'x' * 4096}}}" for i in range(5)) + "]"),
        shown=field(f"{_ENGINE}.env", "[…5 variables with 4096 characters each…]"),
    ),
    Example(
        "resources-device",
        "GPUs follow from the plan",
        f"{_ENGINE}.resources.limits",
        field(f"{_ENGINE}.resources.limits", "{nvidia.com/gpu: 2}"),
    ),
    Example(
        "resources-above-limit",
        "A request is not above its limit",
        f"{_ENGINE}.resources.requests",
        field(f"{_ENGINE}.resources", "{requests: {memory: 64Gi}, limits: {memory: 32Gi}}"),
    ),
    Example(
        "resources-quantity",
        "A resource is a quantity",
        f"{_ENGINE}.resources.limits.memory",
        field(f"{_ENGINE}.resources.limits", "{memory: 64GB}"),
        'Invalid value: "64GB": spec.podTemplate.engine.resources.limits.memory in body should match '
        f"'{QUANTITY_PATTERN}'",
    ),
    Example(
        "resources-keys-length",
        "A resource's name has a bounded length",
        f"{_ENGINE}.resources.limits",
        field(f"{_ENGINE}.resources.limits", f"{{{_LONG_KEY}: 1}}"),
        shown=field(f"{_ENGINE}.resources.limits", "{…318 characters…: 1}"),
    ),
)


def _profile(id: str, words: str, path: str, spec: str) -> Example:  # noqa: A002 - the row's own field
    return Example(id, words, path, field("spec", spec), kind="AcceleratorProfile")


RECORDS = (
    _profile(
        "profile-resource",
        "A device is asked for by its resource, a CPU is not",
        "spec.resourceName",
        "{vendor: CPU, resourceName: nvidia.com/gpu}",
    ),
    _profile(
        "profile-capability-vendor",
        "Compute capability is NVIDIA's",
        "spec.computeCapability",
        "{vendor: AMD, computeCapability: '9.0'}",
    ),
    _profile("profile-compute-capability", "… and a number", "spec.computeCapability", "{computeCapability: sm90}"),
    _profile("profile-resource-name", "An extended resource", "spec.resourceName", "{resourceName: gpu}"),
    _profile("profile-link", "A link's speed is in GB/s", "spec.linkGbPerSecond", "{linkGbPerSecond: 1.0e-6}"),
    _profile("profile-pcie", "… and PCIe's", "spec.pcieGbPerSecond", "{pcieGbPerSecond: 1.0e-300}"),
    _profile("profile-memory", "Memory of a device", "spec.memory", "{memory: 40 GB}"),
    Example(
        "revision-hash",
        "A revision's hash is a whole SHA-256",
        "spec.hash",
        field("spec.hash", "0A1B2C3D"),
        kind="InferenceRevision",
    ),
    Example(
        "revision-immutable",
        "A revision is a record",
        "spec",
        field("spec.parent", "kb-assistant-ffffffff"),
        kind="InferenceRevision",
        change=True,
    ),
)

EXAMPLES = (*POD, *ENVIRONMENT, *RECORDS)
