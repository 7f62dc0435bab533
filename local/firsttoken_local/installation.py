"""Firsttoken on the real node as its users install it: images, `helm install`, the operator in its pods."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from firsttoken_local.builds import ensure
from firsttoken_local.cluster import LocalCluster
from firsttoken_local.commands import finished
from firsttoken_local.errors import LocalError
from firsttoken_local.images.archive import ensure_images
from firsttoken_local.images.catalogue import IMAGES, reference
from firsttoken_local.layout import REPOSITORY
from firsttoken_local.progress import Progress, Silent

CHART = REPOSITORY / "charts" / "firsttoken"
NAMESPACE = "firsttoken-system"
RELEASE = "firsttoken"


def import_images(cluster: LocalCluster, told: Progress | None = None) -> None:
    """Give the real node every image, made first where the cache lacks it.

    Raises:
        LocalError: the cluster has no real node, or an image could not be made or imported.
    """
    told = told or Silent()
    if cluster.node is None:
        raise LocalError("only a real node runs images: start the cluster with one (REAL_NODE=1)")
    for name, archive in ensure_images(IMAGES, told).items():
        told.transient(f"real node: importing {reference(name)}")
        cluster.node.import_image(archive)
    told.line(f"real node: has {len(IMAGES)} images")


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
