"""vllm-router 0.1.17 for one revision: cache-aware routing over its engines, or prefill/decode orchestration."""

from typing import Any

from firsttoken.api.service import InferenceService
from firsttoken.manifests import drain, names, pods
from firsttoken.manifests.images import PULL_POLICY, Images
from firsttoken.planning.types import Plan, Routing

Object = dict[str, Any]

# The longest stream anybody may hold; vllm-router's time-out spans prefill and the whole stream, Envoy's likewise.
STREAM_SECONDS = 3600

_REPLICAS = 2  # one works, one stands by (envoy_routes._one_router); fixed, so that it never varies with the load
_TREE_CHARACTERS = 4 * 2**20  # prefix tree per engine and model; 32 Mi by default, which grows to gigabytes (S18)
_PAYLOAD_BYTES = 64 * 2**20


def router_objects(service: InferenceService, revision: str, plan: Plan, images: Images) -> tuple[Object, ...]:
    """ServiceAccount, Role, RoleBinding, Deployment, Service and PDB, all named `<revision>-router`."""
    name, namespace = names.router_name(revision), service.metadata.namespace
    labels = names.labels(service.metadata.name, "router", revision=revision, role=names.ROUTER_ROLE)
    meta = pods.metadata(name, namespace, labels)
    match = names.selector(service.metadata.name, names.ROUTER_ROLE, revision)
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": meta,
            # The router watches the namespace's pods and picks its engines by label itself.
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
        _deployment(_container(service, revision, plan, images), meta, match),
        pods.headless_service(meta, match, names.ROUTER_PORT),
        pods.disruption_budget(meta, match),
    )


def _deployment(container: Object, meta: Object, match: dict[str, str]) -> Object:
    annotations = pods.scrape(names.ROUTER_METRICS_PORT, "/metrics")
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {
            "replicas": _REPLICAS,
            "selector": {"matchLabels": match},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "revisionHistoryLimit": 1,
            "template": {
                "metadata": {"labels": meta["labels"], "annotations": annotations},
                "spec": {
                    "serviceAccountName": meta["name"],
                    "automountServiceAccountToken": True,  # it watches pods
                    "enableServiceLinks": False,
                    "securityContext": pods.pod_security(),
                    # On SIGTERM vllm-router takes no new connection and ends when its streams have.
                    "terminationGracePeriodSeconds": drain.GRACE_SECONDS,
                    "topologySpreadConstraints": pods.spread(match),
                    "containers": [container],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                },
            },
        },
    }


def _container(service: InferenceService, revision: str, plan: Plan, images: Images) -> Object:
    return {
        "name": "router",
        "image": images.router,
        "imagePullPolicy": PULL_POLICY,
        "command": ["vllm-router"],
        "args": router_args(service, revision, plan),
        "ports": [
            {"name": "http", "containerPort": names.ROUTER_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": names.ROUTER_METRICS_PORT, "protocol": "TCP"},
        ],
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "4Gi"}},
        "securityContext": pods.container_security(),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a mount of its own
        # Needs no shell in the image; the kubelet does the waiting.
        "lifecycle": {"preStop": {"sleep": {"seconds": drain.SETTLE_SECONDS}}},
        # Ready once it has found engines (in PD: of both roles); alive without any.
        "readinessProbe": pods.http_probe("/readiness", "http", period=2, timeout=2, failures=2),
        "livenessProbe": pods.http_probe("/liveness", "http", period=10, timeout=5, failures=6),
    }


def router_args(service: InferenceService, revision: str, plan: Plan) -> list[str]:
    """Command line of vllm-router 0.1.17 (its `--help`, and tried)."""
    return [
        "--host=0.0.0.0",
        f"--port={names.ROUTER_PORT}",
        "--prometheus-host=0.0.0.0",
        f"--prometheus-port={names.ROUTER_METRICS_PORT}",
        # In PD mode its INFO log holds whole prompts, and it doesn't understand "warning" (it falls back to INFO).
        "--log-level=error",
        "--service-discovery",
        f"--service-discovery-namespace={service.metadata.namespace}",
        f"--service-discovery-port={names.ENGINE_PORT}",
        *_routing(service.metadata.name, revision, plan),
        f"--max-tree-size={_TREE_CHARACTERS}",
        "--eviction-interval-secs=30",
        f"--max-payload-size={_PAYLOAD_BYTES}",
        f"--request-timeout-secs={STREAM_SECONDS}",
        # A request that killed one engine must not be given to the next; and see `transfer`.
        "--disable-retries",
        # Like Envoy's ejection by 5xx: ten errors in a row, which may be one client's bad request or load, would take
        # an engine out (tried: 503 from the 11th on). The health checks below find engines that are really gone.
        "--disable-circuit-breaker",
        "--health-check-interval-secs=5",
        "--health-check-timeout-secs=5",
        "--health-failure-threshold=3",
        "--health-success-threshold=1",
    ]


def _routing(service: str, revision: str, plan: Plan) -> list[str]:
    def chosen(role: str) -> list[str]:
        return [f"{key}={value}" for key, value in sorted(names.selector(service, role, revision).items())]

    if plan.layout != "Disaggregated":
        return [f"--policy={plan.routing.policy}", *_threshold(plan.routing), "--selector", *chosen("serve")]
    return [
        "--vllm-pd-disaggregation",
        "--kv-connector=nixl",
        # Prefixes are reused where prompts are computed; decode is chosen by load.
        f"--prefill-policy={plan.routing.policy}",
        "--decode-policy=power_of_two",
        *_threshold(plan.routing),
        "--prefill-selector",
        *chosen("prefill"),
        "--decode-selector",
        *chosen("decode"),
    ]


def _threshold(routing: Routing) -> list[str]:
    """Nothing where it is the router's own: a plan of an older version is rendered as it was."""
    return (
        [] if routing.cache_threshold == Routing().cache_threshold else [f"--cache-threshold={routing.cache_threshold}"]
    )
