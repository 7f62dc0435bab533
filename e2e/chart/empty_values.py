"""Values that somebody left empty: `key:` with nothing behind it is null, and null takes the default away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

VALUES = Path(__file__).parents[2] / "charts" / "firsttoken" / "values.yaml"

# Their default is empty, too: without them the chart renders the same.
MAY_BE_EMPTY = frozenset(
    {
        *("nameOverride", "fullnameOverride", "image.tag", "image.digest", "imagePullSecrets"),
        *("extraArgs", "extraEnv", "extraVolumes", "extraVolumeMounts", "podAnnotations"),
        *("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName"),
        *("serviceAccount.name", "serviceAccount.annotations", "networkPolicy.extraEgress"),
        *("metrics.serviceMonitor.interval", "metrics.podMonitor.interval"),
        "prometheus.url",
    }
)
# Handed to Kubernetes as they are. Null is helm's only way to leave out a part of their defaults, for instance
# `podSecurityContext.runAsUser` on OpenShift; each as a whole must be there.
HANDED_ON = frozenset({"resources", "podSecurityContext", "containerSecurityContext"})


def paths(values: dict[str, Any] | None = None, above: tuple[str, ...] = ()) -> Iterator[tuple[str, bool]]:
    """Every key of values.yaml that is the chart's own, dotted, and whether it is a section of further ones."""
    values = yaml.safe_load(VALUES.read_text()) if values is None else values
    for key, value in values.items():
        path = ".".join((*above, key))
        section = isinstance(value, dict) and bool(value) and path not in HANDED_ON
        yield path, section
        if section:
            yield from paths(value, (*above, key))


def emptied(chosen: Iterable[str]) -> dict[str, Any]:
    """Values in which the chosen keys, dotted, are null."""
    found: dict[str, Any] = {}
    for path in chosen:
        *above, key = path.split(".")
        inner = found
        for section in above:
            inner = inner.setdefault(section, {})
        inner[key] = None
    return found
