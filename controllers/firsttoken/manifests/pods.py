"""What every pod of Firsttoken's data plane shares: identity, hardening, spread, disruption budget."""

import json
from collections.abc import Iterable
from typing import Any

Object = dict[str, Any]

NON_ROOT_ID = 65532  # "nonroot" of the common minimal images


def metadata(name: str, namespace: str, labels: dict[str, str]) -> Object:
    """Metadata of a rendered object; owner references are added when it is applied."""
    return {"name": name, "namespace": namespace, "labels": labels}


def pod_security() -> Object:
    """Pod-level security context: the `restricted` Pod Security Standard."""
    return {
        "runAsNonRoot": True,
        "runAsUser": NON_ROOT_ID,
        "runAsGroup": NON_ROOT_ID,
        "fsGroup": NON_ROOT_ID,
        # A large model cache is not walked file by file at every start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Object:
    """Container-level security context: nothing writable but the mounted volumes."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def spread(match: dict[str, str]) -> list[Object]:
    """Spread over nodes and zones where there is a choice; GPUs are too scarce to refuse a node for symmetry."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": match},
        }
        for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
    ]


def disruption_budget(meta: Object, match: dict[str, str]) -> Object:
    """One pod at a time.

    `minAvailable: 1` would block every node drain for a role with one replica, for ever; `maxUnavailable: 1` lets it
    move. Pods that are not ready (loading, broken) never hold up a drain.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": meta,
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": match},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def headless_service(meta: Object, match: dict[str, str], port: int) -> Object:
    """A Service whose name resolves to the ready pods, so that the caller balances by outstanding requests.

    `publishNotReadyAddresses` stays at its default (false, which the API server leaves out): no traffic while loading.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {
            "clusterIP": "None",
            "selector": match,
            "ports": [{"name": "http", "port": port, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def http_probe(path: str, port: str, *, period: int, timeout: int, failures: int) -> Object:
    """An HTTP probe; times in seconds."""
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


def scrape(port: int, path: str) -> dict[str, str]:
    """Annotations by which the usual Prometheus configuration finds the metrics."""
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(port), "prometheus.io/path": path}


def label_field(name: str) -> Object:
    """Downward API: one of the pod's own labels."""
    return {"fieldRef": {"fieldPath": f"metadata.labels['{name}']"}}


def detached(objects: Iterable[Object]) -> tuple[Object, ...]:
    """Copies that share nothing, so that adding owner references to one leaves the others alone."""
    return tuple(json.loads(json.dumps(item)) for item in objects)
