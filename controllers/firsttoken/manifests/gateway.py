"""The gateway of one service: Envoy with its configuration, the Service clients use, and the HTTPRoute to it."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from firsttoken.api.service import InferenceService
from firsttoken.manifests import drain, names, pods
from firsttoken.manifests.envoy_bootstrap import (
    BOOTSTRAP_DIRECTORY,
    BOOTSTRAP_FILE,
    CLUSTERS_FILE,
    DRAIN_FILE,
    DYNAMIC_DIRECTORY,
    ROUTES_FILE,
    bootstrap,
)
from firsttoken.manifests.envoy_routes import Backend, clusters, route_configuration
from firsttoken.manifests.images import PULL_POLICY, Images

__all__ = ["Backend", "gateway_objects"]

Object = dict[str, Any]

_REPLICAS = 2


def gateway_objects(
    service: InferenceService,
    backends: tuple[Backend, ...],
    images: Images,
    *,
    cluster_domain: str = "cluster.local",
) -> tuple[Object, ...]:
    """ConfigMaps, Deployment, PDB, the Service `<service>`, and an HTTPRoute when the spec names a Gateway.

    `backends` in order of age, stable first (sticky users depend on it). Without any, or with weights of 0 only, the
    gateway answers 503 with `Retry-After`. A changed weight changes one ConfigMap and restarts nothing.
    """
    if any(backend.weight < 0 for backend in backends) or len({b.revision for b in backends}) < len(backends):
        raise ValueError(f"backends need distinct revisions and weights of 0 or more: {backends}")
    fixed = _bootstrap_map(service)
    objects = [
        fixed,
        _routes_map(service, backends, cluster_domain),
        _deployment(service, fixed["metadata"]["name"], images),
        pods.disruption_budget(_meta(service, names.gateway_name(service.metadata.name)), _match(service)),
        _user_service(service),
    ]
    if service.spec.routing.gateway is not None:
        objects.append(_http_route(service))
    return pods.detached(objects)


def _match(service: InferenceService) -> dict[str, str]:
    return names.selector(service.metadata.name, names.GATEWAY_ROLE)


def _meta(service: InferenceService, name: str) -> Object:
    labels = names.labels(service.metadata.name, "gateway", role=names.GATEWAY_ROLE)
    return pods.metadata(name, service.metadata.namespace, labels)


def _text(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def _bootstrap_map(service: InferenceService) -> Object:
    """Immutable and named after its content: a new bootstrap is a rolling update, never a surprise in running pods."""
    data = {BOOTSTRAP_FILE: _text(bootstrap(service.metadata.name)), DRAIN_FILE: drain.ENVOY_SCRIPT}
    digest = hashlib.sha256(_text(data).encode()).hexdigest()[:8]
    name = names.gateway_bootstrap_name(service.metadata.name, digest)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(service, name), "immutable": True, "data": data}


def _routes_map(service: InferenceService, backends: Sequence[Backend], cluster_domain: str) -> Object:
    # In an order of their own: whose turn it is must not make a new version that each Envoy has to confirm.
    ordered = sorted(backends, key=lambda backend: backend.revision)
    found = clusters(service.metadata.namespace, ordered, cluster_domain)
    routes = route_configuration(backends, service.spec.rollout.split)
    name = names.gateway_routes_name(service.metadata.name)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(service, name),
        "data": {CLUSTERS_FILE: _dynamic(found), ROUTES_FILE: _dynamic([routes])},
    }


def _dynamic(resources: Sequence[Any]) -> str:
    """A file that Envoy watches. It tells the version it has taken up in its statistics, so that can be confirmed."""
    version = hashlib.sha256(_text(resources).encode()).hexdigest()[:16]
    return _text({"version_info": version, "resources": resources})


def _deployment(service: InferenceService, bootstrap_map: str, images: Images) -> Object:
    name = service.metadata.name
    meta = _meta(service, names.gateway_name(name))
    annotations = pods.scrape(names.GATEWAY_METRICS_PORT, "/stats/prometheus")
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {
            "replicas": _REPLICAS,
            "selector": {"matchLabels": _match(service)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "revisionHistoryLimit": 1,
            "template": {
                "metadata": {"labels": meta["labels"], "annotations": annotations},
                "spec": {
                    "enableServiceLinks": False,
                    "automountServiceAccountToken": False,
                    "securityContext": pods.pod_security(),
                    "terminationGracePeriodSeconds": drain.GRACE_SECONDS,
                    "topologySpreadConstraints": pods.spread(_match(service)),
                    "containers": [_container(images)],
                    "volumes": [
                        {"name": "bootstrap", "configMap": {"name": bootstrap_map}},
                        {"name": "dynamic", "configMap": {"name": names.gateway_routes_name(name)}},
                    ],
                },
            },
        },
    }


def _container(images: Images) -> Object:
    script = f"{BOOTSTRAP_DIRECTORY}/{DRAIN_FILE}"
    return {
        "name": "envoy",
        "image": images.envoy,
        "imagePullPolicy": PULL_POLICY,
        "command": ["envoy"],
        "args": [
            # Envoy takes no `--flag=value`.
            *("--config-path", f"{BOOTSTRAP_DIRECTORY}/{BOOTSTRAP_FILE}"),
            *("--log-level", "warning"),
            # One worker per core of the node (the default) would be dozens, with as many connection pools.
            *("--concurrency", "2"),
            # No hot restarts here, and their shared memory needs a base id per Envoy of a node.
            "--disable-hot-restart",
        ],
        "ports": [
            {"name": "http", "containerPort": names.GATEWAY_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": names.GATEWAY_METRICS_PORT, "protocol": "TCP"},
        ],
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": pods.container_security(),
        "volumeMounts": [
            {"name": "bootstrap", "mountPath": BOOTSTRAP_DIRECTORY, "readOnly": True},
            {"name": "dynamic", "mountPath": DYNAMIC_DIRECTORY, "readOnly": True},
        ],
        "lifecycle": {"preStop": {"exec": {"command": drain.envoy_hook(script, names.GATEWAY_ADMIN_PORT)}}},
        # Ready: configuration loaded and not draining. Alive: the event loop answers, draining or not.
        "readinessProbe": pods.http_probe("/ready", "metrics", period=2, timeout=2, failures=2),
        "livenessProbe": pods.http_probe("/live", "metrics", period=10, timeout=5, failures=6),
    }


def _user_service(service: InferenceService) -> Object:
    port = {"name": "http", "port": names.SERVICE_PORT, "targetPort": "http", "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(service, service.metadata.name),
        "spec": {"type": "ClusterIP", "selector": _match(service), "ports": [port]},
    }


def _http_route(service: InferenceService) -> Object:
    """Attaches the service to the user's Gateway; the split is Envoy's, so the route never changes in a rollout."""
    routing = service.spec.routing
    reference = routing.gateway.wire() if routing.gateway else {}
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway", **reference}
    backend = {
        "group": "",
        "kind": "Service",
        "name": service.metadata.name,
        "port": names.SERVICE_PORT,
        "weight": 1,
    }
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        "backendRefs": [backend],
        # 0s: none. A Gateway's usual 15 s would cut streams.
        "timeouts": {"request": "0s"},
    }
    spec: Object = {"parentRefs": [parent], "rules": [rule]}
    if routing.hostnames:
        spec["hostnames"] = list(routing.hostnames)
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": _meta(service, service.metadata.name),
        "spec": spec,
    }
