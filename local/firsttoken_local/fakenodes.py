"""Nodes with GPUs that need no hardware: KWOK plays their kubelets.

KWOK manages only nodes with its annotation, so a real node can live in the same cluster.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from firsttoken_local.controlplane import await_http
from firsttoken_local.kube import KubeClient, Object, unless_busy
from firsttoken_local.layout import Layout
from firsttoken_local.player import ROLES
from firsttoken_local.processes import ProcessTable
from firsttoken_local.waiting import wait_for

A100_40 = "NVIDIA-A100-SXM4-40GB"
FAKE = {"kwok.x-k8s.io/node": "fake"}
# Beside a real node, as clouds have it on their GPU nodes: what must really run does not end up on a fake one.
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
    "volume/fast/pvc-provision.yaml",
    "volume/fast/pvc-delete.yaml",
    "volume/fast/pv-bind.yaml",
    "volume/fast/pv-delete.yaml",
)
ROLE_KEY = '.metadata.labels["firsttoken.dev/role"]'
STORAGE_CLASS = "volume/fast/storage-class.yaml"  # the default class; KWOK itself provides its volumes


@dataclass(frozen=True)
class GpuFacts:
    """What NVIDIA's feature discovery says of a GPU; memory in MiB as the driver reports it."""

    family: str
    memory_mib: int
    compute: str


GPUS: Mapping[str, GpuFacts] = {
    A100_40: GpuFacts("ampere", 40960, "8.0"),
    "NVIDIA-A100-SXM4-80GB": GpuFacts("ampere", 81920, "8.0"),
    "NVIDIA-H100-80GB-HBM3": GpuFacts("hopper", 81559, "9.0"),
    "NVIDIA-H200": GpuFacts("hopper", 143771, "9.0"),
    "NVIDIA-L4": GpuFacts("ada-lovelace", 23034, "8.9"),
    "NVIDIA-L40S": GpuFacts("ada-lovelace", 46068, "8.9"),
}


@dataclass(frozen=True)
class NodeShape:
    """What one fake node offers; the default is a machine with 8 A100 of 40 GB."""

    gpu_product: str = A100_40
    gpus: int = 8
    cpu: str = "96"
    memory: str = "1100Gi"
    pods: str = "110"
    labels: Mapping[str, str] = field(default_factory=dict)


def render_node(name: str, zone: str, shape: NodeShape, *, tainted: bool = False) -> Object:
    """Return a Node as the cloud, the kubelet and the GPU feature discovery would label it together.

    ``tainted`` keeps pods away that do not tolerate ``nvidia.com/gpu``.
    """
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "fake",
        "topology.kubernetes.io/region": "local",
        "topology.kubernetes.io/zone": zone,
    }
    offer = {"cpu": shape.cpu, "memory": shape.memory, "pods": shape.pods, "ephemeral-storage": "1000Gi"}
    if shape.gpus:
        offer["nvidia.com/gpu"] = str(shape.gpus)
        labels |= {
            "nvidia.com/gpu.count": str(shape.gpus),
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": shape.gpu_product,
        }
        if facts := GPUS.get(shape.gpu_product):
            major, minor = facts.compute.split(".")
            labels |= {
                "nvidia.com/gpu.compute.major": major,
                "nvidia.com/gpu.compute.minor": minor,
                "nvidia.com/gpu.family": facts.family,
                "nvidia.com/gpu.memory": str(facts.memory_mib),
            }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": dict(FAKE), "labels": {**labels, **shape.labels}},
        **({"spec": {"taints": [dict(TAINT)]}} if tainted else {}),
        "status": {"allocatable": offer, "capacity": offer},
    }


def kwok_config(stages: Path, *, played: bool = False) -> str:
    """Return KWOK's configuration: its own stages, one YAML document each.

    ``played``: it gives pods of services an address, and the player tells when they are ready and when they are gone.
    """
    texts = [(stages / name).read_text().strip() for name in STAGES]
    if played:
        texts = [text for whole in texts for text in _left_to_the_player(whole)]
    return "\n---\n".join(texts) + "\n"


def _left_to_the_player(text: str) -> list[str]:
    stage = yaml.safe_load(text)
    name = stage["metadata"]["name"]
    if name not in ("pod-ready", "pod-delete"):
        return [text]
    mine, theirs = (_for_pods_of(stage, operator) for operator in ("NotIn", "In"))
    if name == "pod-delete":
        return [yaml.safe_dump(mine, sort_keys=False)]
    theirs["metadata"]["name"] = "pod-started"
    # Of the conditions only the first, Initialized, is so from the start.
    lines = theirs["spec"]["next"]["statusTemplate"].replace("ready: true", "ready: false").split('status: "True"')
    theirs["spec"]["next"]["statusTemplate"] = lines[0] + 'status: "True"' + 'status: "False"'.join(lines[1:])
    return [yaml.safe_dump(one, sort_keys=False) for one in (mine, theirs)]


def _for_pods_of(stage: Object, operator: str) -> Object:
    """The same stage for pods that are (``In``) or are not (``NotIn``) played."""
    found: Object = copy.deepcopy(stage)
    own = {"key": ROLE_KEY, "operator": operator, "values": list(ROLES)}
    found["spec"]["selector"]["matchExpressions"].append(own)
    return found


def start_kwok(layout: Layout, processes: ProcessTable, folder: Path) -> None:
    """Start KWOK against a ready API server.

    Raises:
        LocalError: it ended, or did not become healthy within 60 s.
    """
    config = layout.directory / "kwok.yaml"
    config.write_text(kwok_config(folder / "stages", played=layout.played))
    port = layout.ports["kwok"]
    arguments = [
        f"--kubeconfig={layout.kubeconfig}",
        f"--config={config}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-ip=127.0.0.1",
        "--node-lease-duration-seconds=40",  # without it nodes have no lease, and turn NotReady after 50 s
        f"--server-address=127.0.0.1:{port}",
    ]
    processes.start("kwok", [str(folder / "kwok"), *arguments])
    await_http(processes, "kwok", port, "/healthz")


def add_nodes(
    client: KubeClient,
    count: int,
    shape: NodeShape | None = None,
    *,
    prefix: str = "gpu",
    zones: Sequence[str] = ("zone-a", "zone-b"),
    tainted: bool = False,
    timeout_s: float = 60.0,
) -> list[str]:
    """Add ``count`` fake nodes, dealt out to the zones in turn, and wait until pods can be scheduled on them.

    ``tainted`` as in :func:`render_node`. Names are ``<prefix>-0`` and so on; nodes that exist are kept.

    Raises:
        LocalError: the nodes did not become ready within ``timeout_s`` seconds.
    """
    names = [f"{prefix}-{number}" for number in range(count)]
    for number, name in enumerate(names):
        node = render_node(name, zones[number % len(zones)], shape or NodeShape(), tainted=tainted)
        client.apply(node, field_manager="firsttoken-local-nodes")
    if names:
        await_nodes(client, names, timeout_s)
    return names


def await_nodes(client: KubeClient, names: Sequence[str], timeout_s: float = 60.0) -> None:
    """Wait until nodes are Ready and free of the taints that keep pods away from new nodes.

    Raises:
        LocalError: they were not within ``timeout_s`` seconds.
    """

    def ready() -> bool:
        found = {node["metadata"]["name"]: node for node in client.list("v1", "Node")}
        return all(name in found and _schedulable(found[name]) for name in names)

    wait_for(f"nodes {', '.join(names)} to be ready", unless_busy(ready), timeout_s=timeout_s)


def _schedulable(node: Object) -> bool:
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions") or []}
    tainted = any(taint["key"].startswith("node.kubernetes.io/") for taint in node["spec"].get("taints") or [])
    return conditions.get("Ready") == "True" and not tainted and "podCIDR" in node["spec"]
