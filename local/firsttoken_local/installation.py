"""Firsttoken on the real node as its users install it: images, `helm install`, the operator in its pods."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from firsttoken_local.builds import ensure
from firsttoken_local.catalogue import NODE_SETS
from firsttoken_local.cluster import LocalCluster
from firsttoken_local.commands import finished
from firsttoken_local.errors import LocalError
from firsttoken_local.images.archive import ensure_images
from firsttoken_local.images.catalogue import IMAGES, reference
from firsttoken_local.layout import REPOSITORY, Layout, cluster_folder, load_layout
from firsttoken_local.node import PROCESS
from firsttoken_local.node.realnode import RealNode
from firsttoken_local.processes import ProcessTable
from firsttoken_local.progress import Progress, Silent

CHART = REPOSITORY / "charts" / "firsttoken"
NAMESPACE = "firsttoken-system"
RELEASE = "firsttoken"
SERVED_BY = tuple(name for name in IMAGES if name != "operator")  # what a service needs of its node


def import_images(cluster: LocalCluster, told: Progress | None = None) -> None:
    """Give the real node every image, made first where the cache lacks it.

    Raises:
        LocalError: the cluster has no real node, or an image could not be made or imported.
    """
    if cluster.node is None:
        raise LocalError("only a real node runs images: start the cluster with one (REAL_NODE=1)")
    give_images(cluster.node, cluster.layout, IMAGES, told or Silent())


def running_node(name: str) -> tuple[RealNode, Layout]:
    """Return the real node of a running cluster by the cluster's name.

    Raises:
        LocalError: there is none, with the command that starts one.
    """
    layout = load_layout(cluster_folder(name))
    start = f"`make cluster NAME={name} REAL_NODE=1`"
    if layout is None:
        raise LocalError(f"there is no cluster {name}: {start} starts it")
    processes = ProcessTable(layout.directory)
    if layout.network is None or not processes.alive(PROCESS):
        raise LocalError(f"cluster {name} has no real node that runs, and fake ones run no images: {start} adds it")
    return RealNode(layout, processes, ensure(NODE_SETS, Silent())), layout


def give_images(node: RealNode, layout: Layout, names: Iterable[str], told: Progress) -> None:
    """Import images into a real node, made first where the cache lacks them; with all of them, write the values file.

    Raises:
        LocalError: an image could not be made or imported.
    """
    archives = ensure_images(names, told)
    for name, archive in archives.items():
        told.transient(f"real node: importing {reference(name)}")
        node.import_image(archive)
    told.line(f"real node: has {len(archives)} images of {', '.join(archives)}")
    if set(archives) == set(IMAGES):
        # What was imported, not what a later state of the sources would be called.
        layout.values.write_text(yaml.safe_dump(values(), sort_keys=False))


def missing_images(node: RealNode, names: Iterable[str]) -> list[str]:
    """Return which of the images, as the sources are now, a real node has not got."""
    there = node.images()
    return [name for name in names if reference(name) not in there]


def image_flags() -> list[str]:
    """The operator's flags that name the images made here."""
    images = values()["workloadImages"]
    return [part for name in ("engine", "router", "envoy") for part in (f"--{name}-image", images[name])]


def values() -> dict[str, Any]:
    """The chart's values that name the images made here instead of published ones."""
    repository, _, tag = reference("operator").rpartition(":")
    return {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "workloadImages": {
            "engine": reference("runtime-cpu"),
            **{name: reference(name) for name in ("router", "envoy")},
        },
        # Its pods are on one node of few cores, beside the engines.
        "resources": {"requests": {"cpu": "20m", "memory": "96Mi"}},
    }


def install(cluster: LocalCluster, changed: Mapping[str, Any] | None = None, told: Progress | None = None) -> str:
    """`helm upgrade --install` of the chart, and wait until its pods are ready; return the chart's notes.

    ``changed`` are further values, laid over :func:`values` key by key at the top.

    Raises:
        LocalError: helm failed; holds what it wrote and the pods' state.
    """
    told = told or Silent()
    told.transient("helm install")
    document = json.dumps({**values(), **(changed or {})})
    arguments = ["upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace"]
    notes = helm(cluster, *arguments, "--values", "-", "--wait", "--timeout=3m", stdin=document)
    told.line("helm install: the operator runs")
    return notes


def helm(cluster: LocalCluster, *arguments: str, stdin: str | None = None) -> str:
    """Run helm as the administrator and return its output.

    Raises:
        LocalError: it failed.
    """
    binary = ensure(["helm"], Silent())["helm"] / "helm"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    argv = [str(binary), *arguments]
    done = finished(argv, env=environment, stdin=stdin, timeout_s=300.0)
    if done.returncode:
        pods = cluster.kubectl("get", "pods", "--all-namespaces", "-o", "wide")
        raise LocalError(f"helm {arguments[0]} failed", f"{(done.stdout + done.stderr).strip()}\n{pods}")
    return done.stdout
