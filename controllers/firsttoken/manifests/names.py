"""Names, labels and ports of everything rendered: one place, because objects find each other by them.

Lengths: a service's name has at most 46 characters (api.service.MAX_NAME_LENGTH), a revision is `<service>-<8 hex>`
(55), and no child below goes over 63, the limit of label values and Service names.
"""

from firsttoken.planning.types import Plan

FIELD_MANAGER = "firsttoken"
DOMAIN = "firsttoken.dev"

SERVICE_LABEL = f"{DOMAIN}/service"
REVISION_LABEL = f"{DOMAIN}/revision"
ROLE_LABEL = f"{DOMAIN}/role"

WORKER_ROLE = "worker"  # pods on the further nodes of a replica: nobody sends them requests
ROUTER_ROLE = "router"
GATEWAY_ROLE = "gateway"

# Headless Services don't map ports, so container and Service port are the same number.
ENGINE_PORT = 8000
NIXL_PORT = 5600
ROUTER_PORT = 8080
ROUTER_METRICS_PORT = 29000
GATEWAY_PORT = 8080
GATEWAY_ADMIN_PORT = 9901
GATEWAY_METRICS_PORT = 9902
SERVICE_PORT = 80

# The gateway's arrival stamp: header `x-request-start: t=<s.ms>` and baggage member `x-request-start=<s.ms>`.
REQUEST_START = "x-request-start"

_COMPONENTS = {"engine": "vllm", "router": "vllm-router", "gateway": "envoy", "settings": "firsttoken"}


def role_name(revision: str, role: str) -> str:
    """Deployment, Service and PDB of one role: `<rev>` colocated, `<rev>-prefill` and `<rev>-decode` otherwise."""
    return revision if role == "serve" else f"{revision}-{role}"


def router_name(revision: str) -> str:
    """Everything of the revision's vllm-router."""
    return f"{revision}-router"


def live_name(revision: str) -> str:
    """ConfigMap with the live settings."""
    return f"{revision}-live"


def gateway_name(service: str) -> str:
    """Envoy's Deployment and PDB."""
    return f"{service}-gateway"


def gateway_routes_name(service: str) -> str:
    """ConfigMap with Envoy's routes and clusters, the part that changes while it runs."""
    return f"{gateway_name(service)}-routes"


def gateway_bootstrap_name(service: str, digest: str) -> str:
    """Immutable ConfigMap with Envoy's bootstrap, named after its content."""
    return f"{gateway_name(service)}-{digest}"


def entry_point(revision: str, plan: Plan) -> tuple[str, int]:
    """Service name and port at which Envoy hands a request to this revision."""
    return (router_name(revision), ROUTER_PORT) if plan.router else (revision, ENGINE_PORT)


def labels(service: str, component: str, *, revision: str | None = None, role: str | None = None) -> dict[str, str]:
    """Labels of an object; DESIGN §4's scrape labels are taken from the `firsttoken.dev/` ones of the pods."""
    own = {SERVICE_LABEL: service, REVISION_LABEL: revision, ROLE_LABEL: role}
    return {
        "app.kubernetes.io/name": _COMPONENTS[component],
        "app.kubernetes.io/instance": service,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/part-of": "firsttoken",
        "app.kubernetes.io/managed-by": FIELD_MANAGER,
        **{key: value for key, value in own.items() if value is not None},
    }


def members(service: str, revision: str) -> dict[str, str]:
    """Match labels of all pods of a revision's engines, leaders and workers."""
    return {SERVICE_LABEL: service, REVISION_LABEL: revision, "app.kubernetes.io/component": "engine"}


def selector(service: str, role: str, revision: str | None = None) -> dict[str, str]:
    """Match labels of one role's pods (of one revision, unless the role has none)."""
    chosen = {SERVICE_LABEL: service, ROLE_LABEL: role}
    return chosen if revision is None else {**chosen, REVISION_LABEL: revision}
