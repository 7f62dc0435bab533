"""The CustomResourceDefinitions as text, the same bytes each time (`make crds` writes them)."""

from dataclasses import dataclass
from typing import Any

import yaml

from firsttoken.api.base import GROUP, VERSION, ApiModel
from firsttoken.api.records import AcceleratorProfile, InferenceRevision, PerformanceReport
from firsttoken.api.schema import Schema, structural, without_defaults
from firsttoken.api.service import InferenceService

HEADER = "# Made by `make crds` from the models in controllers/firsttoken/api; don't edit.\n"


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; `wide` ones appear with `-o wide`."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False

    def as_wire(self) -> dict[str, Any]:
        """The entry of `additionalPrinterColumns`."""
        entry = {"name": self.name, "type": self.type, "jsonPath": self.path, "description": self.description}
        return entry | {"priority": 1} if self.wide else entry


# What is read until the operator has looked: kstatus (Flux) takes a kind that says nothing for done.
UNSEEN = {"observedGeneration": -1}

AGE = Column("Age", ".metadata.creationTimestamp", "Time since it was made.", "date")


@dataclass(frozen=True)
class Kind:
    """One custom resource."""

    model: type[ApiModel]
    plural: str
    short: str
    columns: tuple[Column, ...]
    namespaced: bool = True
    categories: tuple[str, ...] = ("firsttoken",)
    status: bool = False
    scale: bool = False

    @property
    def name(self) -> str:
        """The kind, such as InferenceService."""
        return self.model.__name__


def _condition(kind: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].status'


KINDS = (
    Kind(
        InferenceService,
        "inferenceservices",
        "infsvc",
        (
            Column("Ready", _condition("Ready"), "Whether every part of the current revision serves."),
            Column("Layout", ".status.layout", "Prefill and decode together or apart."),
            Column("Revision", ".status.revision.stable", "Revision that carries the traffic."),
            Column("Canary", ".status.revision.canaryWeight", "Share of requests for the new revision, %.", "integer"),
            Column("TTFT-P95", ".status.slo.ttftP95", "Time to first token, 95th percentile, as measured."),
            Column("SLO", _condition("SLOMet"), "Whether the promises are kept."),
            Column("Bottleneck", ".status.diagnosis.bottleneck", "What slows the first token."),
            Column("GPUs", ".status.plan.gpus", "GPUs of the plan.", "integer", wide=True),
            Column("Endpoint", ".status.endpoint", "URL inside the cluster.", wide=True),
            AGE,
        ),
        categories=("firsttoken", "all"),
        status=True,
        scale=True,
    ),
    Kind(
        InferenceRevision,
        "inferencerevisions",
        "infrev",
        (
            Column("Service", ".spec.serviceName", "The InferenceService."),
            Column("Reason", ".spec.reason.type", "Why it exists."),
            Column("Verdict", ".status.verdict", "Result of its comparison."),
            Column("Parent", ".spec.parent", "Revision in force when it was made.", wide=True),
            Column("Change", ".spec.reason.message", "What changed.", wide=True),
            AGE,
        ),
        status=True,
    ),
    Kind(
        AcceleratorProfile,
        "acceleratorprofiles",
        "accprof",
        (
            Column("Product", ".spec.product", "Name for people."),
            Column("Memory", ".spec.memory", "Memory of one device."),
            Column("FP16-TFLOPs", ".spec.fp16Tflops", "Dense FP16/BF16 peak.", "number"),
            Column("GB/s", ".spec.memoryBandwidthGbPerSecond", "Memory bandwidth.", "number"),
            Column("Resource", ".spec.resourceName", "Extended resource."),
            Column("Per-Node", ".spec.devicesPerNode", "Devices of a usual node.", "integer", wide=True),
            AGE,
        ),
        namespaced=False,
    ),
    Kind(
        PerformanceReport,
        "performancereports",
        "perfrep",
        (
            Column("Service", ".spec.serviceName", "The InferenceService."),
            Column("From", ".spec.fromTime", "Begin of the time looked at."),
            Column("To", ".spec.toTime", "End of the time looked at."),
            AGE,
        ),
    ),
)


def object_schema(kind: Kind) -> Schema:
    """The schema of a whole object: `spec`, `status` without defaults, rules on `metadata.name` at the root."""
    schema = structural(kind.model)
    properties = schema["properties"]
    # The name is all of the metadata that rules may see; it stands here so that they can point at it.
    properties["metadata"] = {"type": "object", "properties": {"name": {"type": "string"}}}
    properties["apiVersion"] = {"type": "string", "description": "Version of this representation."}
    properties["kind"] = {"type": "string", "description": "Kind of the object."}
    if "status" in properties:
        properties["status"] = without_defaults(properties["status"])
    schema["required"] = [name for name in schema.get("required", []) if name != "metadata"]
    return schema


def _served_schema(kind: Kind) -> Schema:
    """The schema with the status of an object that nobody has looked at; offline, nothing is made up."""
    schema = object_schema(kind)
    status = schema["properties"].get("status", {})
    if "observedGeneration" in status.get("properties", {}):
        status["default"] = dict(UNSEEN)
    return schema


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of `kind`."""
    subresources: dict[str, Any] = {"status": {}} if kind.status else {}
    if kind.scale:
        subresources["scale"] = {
            "specReplicasPath": ".spec.scaling.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _served_schema(kind)},
        "additionalPrinterColumns": [column.as_wire() for column in kind.columns],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short],
                "categories": list(kind.categories),
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version | {"subresources": subresources} if subresources else version],
        },
    }


class _Dumper(yaml.SafeDumper):
    """Writes repeated parts out: anchors are hard to read and to compare."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def files() -> dict[str, str]:
    """File name → text of each CustomResourceDefinition."""
    return {
        f"{GROUP}_{kind.plural}.yaml": HEADER
        + yaml.dump(definition(kind), Dumper=_Dumper, sort_keys=True, allow_unicode=True, width=10**6)
        for kind in KINDS
    }
