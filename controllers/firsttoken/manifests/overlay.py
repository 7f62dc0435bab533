"""`spec.podTemplate`: what users add to the engines' pods. On a clash the operator's own entry stays."""

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from firsttoken.api.service import InferenceService
from firsttoken.manifests.canonical import canonical_quantity, environment, passthrough

# Pod fields taken over as they are; nothing else of the pod template's spec reaches the pod.
_POD_FIELDS = ("serviceAccountName", "priorityClassName", "runtimeClassName", "schedulerName", "imagePullSecrets")

Entry = dict[str, Any]


@dataclass(frozen=True)
class Overlay:
    """A pod template in the API server's form; empty for a service without one."""

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[Entry] = field(default_factory=list)
    pod: Entry = field(default_factory=dict)
    grace_seconds: int | None = None
    volumes: list[Entry] = field(default_factory=list)
    env: list[Entry] = field(default_factory=list)
    mounts: list[Entry] = field(default_factory=list)
    resources: Entry = field(default_factory=dict)


def overlay(service: InferenceService) -> Overlay:
    """The overlay of `service`, read from its wire form (field names are Kubernetes' own)."""
    if service.spec.pod_template is None:
        return Overlay()
    wire = service.spec.pod_template.wire()
    meta, pod, engine = (wire.get(part, {}) for part in ("metadata", "spec", "engine"))
    return Overlay(
        labels=meta.get("labels", {}),
        annotations=meta.get("annotations", {}),
        node_selector=pod.get("nodeSelector", {}),
        tolerations=[passthrough(t) for t in pod.get("tolerations", [])],
        pod={key: passthrough(pod[key]) for key in _POD_FIELDS if pod.get(key)},
        grace_seconds=pod.get("terminationGracePeriodSeconds"),
        volumes=[passthrough(v) for v in pod.get("volumes", [])],
        env=[environment(e) for e in engine.get("env", [])],
        mounts=[passthrough(m) for m in engine.get("volumeMounts", [])],
        resources=engine.get("resources", {}),
    )


def with_entries(own: Sequence[Entry], extra: Iterable[Entry]) -> list[Entry]:
    """`own` and those of `extra` whose name is not taken (volumes, environment)."""
    taken = {entry["name"] for entry in own}
    return [*own, *(entry for entry in extra if entry.get("name") not in taken)]


def with_mounts(own: Sequence[Entry], extra: Iterable[Entry]) -> list[Entry]:
    """`own` and those of `extra` that cover no path of ours, nor anything below one."""
    paths = [entry["mountPath"] for entry in own]
    return [*own, *(entry for entry in extra if not _covers(str(entry.get("mountPath", "")), paths))]


def _covers(path: str, owned: Iterable[str]) -> bool:
    normal = posixpath.normpath(path)
    return any(normal == own or normal.startswith(f"{own}/") for own in owned)


def with_resources(requests: dict[str, str], devices: dict[str, str], extra: Entry) -> Entry:
    """Container resources: default `requests`, the user's CPU, memory, RDMA and so on over them, the plan's `devices`.

    Which resources a user may name is the API's to say (NO_DEVICES); only the number of the plan's own stands here.
    """
    limits = _quantities(extra.get("limits", {}), devices)
    asked = _quantities(extra.get("requests", {}), devices)
    # A limit without a request: Kubernetes requests the limit, and our default could lie above it.
    defaults = {key: value for key, value in requests.items() if key not in limits}
    merged = {"requests": defaults | asked | devices, "limits": limits | devices}
    return {key: value for key, value in merged.items() if value}


def _quantities(resources: dict[str, Any], devices: dict[str, str]) -> dict[str, str]:
    return {name: canonical_quantity(value) for name, value in resources.items() if name not in devices}
