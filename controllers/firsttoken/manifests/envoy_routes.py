"""Envoy's routes and clusters: which revision gets which share. The only place where weights are.

Every backend has a cluster, also at weight 0, and only those above 0 are in the route. That order matters: routes and
clusters are read from two files one after the other, and a new cluster first resolves its name. Bring a revision in at
weight 0 and raise it later, and take it out the same way: then no route ever names a cluster that isn't there.
Exchanging one backend for another in a single step loses requests for some milliseconds (measured).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from firsttoken.api.change import RolloutSplit
from firsttoken.manifests import names
from firsttoken.manifests.envoy_bootstrap import ROUTE_CONFIG
from firsttoken.manifests.router import STREAM_SECONDS

Config = dict[str, Any]

# Below the keep-alive of engines (ENGINE_KEEP_ALIVE_SECONDS): the side that reuses a connection closes it.
UPSTREAM_IDLE_SECONDS = 60

_TYPE = "type.googleapis.com/envoy"
# What a user may reach. The rest is not theirs: /metrics of engines, /add_worker and /workers of vllm-router.
_API_PATHS = "/v[12]/.+|/(health|version|tokenize|detokenize|pooling|classify|score|rerank)"
_NO_LIMIT = 2**20  # requests in one cluster; engines queue, and what they refuse is theirs to say


@dataclass(frozen=True)
class Backend:
    """One arm of the split: a revision, the Service (and its port) that leads to it, and its share in percent."""

    revision: str
    service: str
    port: int
    weight: int

    @property
    def through_router(self) -> bool:
        """Whether vllm-router stands between Envoy and the engines (see `names.entry_point`)."""
        return self.port == names.ROUTER_PORT


def clusters(namespace: str, backends: Sequence[Backend], cluster_domain: str) -> list[Config]:
    """One cluster per backend, named after the revision, so that Envoy's statistics are per arm."""
    return [_cluster(namespace, backend, cluster_domain) for backend in backends]


def _cluster(namespace: str, backend: Backend, cluster_domain: str) -> Config:
    # Fully qualified with the final dot: one DNS query instead of one per search domain, and a name without ready
    # pods can't be answered by a wildcard record of the node's own domain, which would send prompts to strangers.
    host = f"{backend.service}.{namespace}.svc.{cluster_domain}."
    address = {"socket_address": {"address": host, "port_value": backend.port}}
    limits = {"max_connections": _NO_LIMIT, "max_pending_requests": _NO_LIMIT, "max_requests": _NO_LIMIT}
    http_options = f"{_TYPE}.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {
        "@type": f"{_TYPE}.config.cluster.v3.Cluster",
        "name": backend.revision,
        "type": "STRICT_DNS",
        "dns_lookup_family": "V4_PREFERRED",
        "dns_refresh_rate": "2s",
        "dns_failure_refresh_rate": {"base_interval": "1s", "max_interval": "5s"},
        **(_one_router() if backend.through_router else _LEAST_REQUEST),
        "connect_timeout": "3s",
        "load_assignment": {
            "cluster_name": backend.revision,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        # Envoy's defaults (1024) would answer 503 in a burst that the engines' queues can take.
        "circuit_breakers": {"thresholds": [{"priority": "DEFAULT", **limits, "max_retries": 128}]},
        "outlier_detection": _outliers(),
        # A request that waits in a queue is silent; connection trackers must not forget it.
        "upstream_connection_options": {"tcp_keepalive": {"keepalive_time": 60, "keepalive_interval": 15}},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": http_options,
                "explicit_http_config": {"http_protocol_options": {}},
                "common_http_protocol_options": {"idle_timeout": f"{UPSTREAM_IDLE_SECONDS}s"},
            }
        },
    }


# Between the engines of one arm by outstanding requests; between arms never by load (M5.3).
_LEAST_REQUEST: Config = {"lb_policy": "LEAST_REQUEST"}


def _one_router() -> Config:
    """All requests of an arm to one pod of vllm-router; the others stand by.

    Each router knows only the prefixes and loads it has seen itself: two that share the traffic would send equal
    prefixes to different engines and misjudge both loads. A hash over a constant finds the same pod from every Envoy.
    When that pod leaves (DNS, no connection), the next one takes over at once and learns the prefixes anew.
    """
    constant = {"pattern": {"regex": "^.*$"}, "substitution": "all"}
    policy = {"header": {"header_name": ":path", "regex_rewrite": constant}}
    maglev = f"{_TYPE}.extensions.load_balancing_policies.maglev.v3.Maglev"
    # In the cluster's policy: the route's hash belongs to the split, which may be by user.
    typed = {"@type": maglev, "consistent_hashing_lb_config": {"hash_policy": [policy]}}
    extension = {"name": "envoy.load_balancing_policies.maglev", "typed_config": typed}
    return {"load_balancing_policy": {"policies": [{"typed_extension_config": extension}]}}


def _outliers() -> Config:
    """Only pods that can't be connected to leave for a while; a status 5xx may be load, and ejecting makes it worse."""
    return {
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": 3,
        "enforcing_consecutive_5xx": 0,
        "enforcing_consecutive_gateway_failure": 0,
        "enforcing_success_rate": 0,
        "enforcing_local_origin_success_rate": 0,
        "interval": "5s",
        "base_ejection_time": "10s",
        "max_ejection_percent": 50,
    }


def route_configuration(backends: Sequence[Backend], split: RolloutSplit | None) -> Config:
    """The routes: Envoy's own health answer, the API with the split, and 404 for everything else."""
    own_health = {"direct_response": {"status": 200, "body": {"inline_string": "ok\n"}}}
    unknown = {"status": 404, "body": {"inline_string": "unknown path: the OpenAI API is below /v1/"}}
    return {
        "@type": f"{_TYPE}.config.route.v3.RouteConfiguration",
        "name": ROUTE_CONFIG,
        "virtual_hosts": [
            {
                "name": ROUTE_CONFIG,
                "domains": ["*"],
                "routes": [
                    # For load balancers in front: is the gateway there? /health asks an engine.
                    {"match": {"path": "/"}, **own_health},
                    {"match": {"safe_regex": {"regex": _API_PATHS}}, **_split(backends, split)},
                    {"match": {"prefix": "/"}, "direct_response": unknown},
                ],
            }
        ],
    }


def _split(backends: Sequence[Backend], split: RolloutSplit | None) -> Config:
    arms = [{"name": b.revision, "weight": b.weight} for b in backends if b.weight > 0]
    if not arms:
        message = "no revision of this service takes requests at the moment; try again later"
        return {"direct_response": {"status": 503, "body": {"inline_string": message}}}
    # Stable comes first: by hash, users who are on the canary stay there when its weight rises.
    weighted: Config = {"clusters": arms}
    route: Config = {
        "weighted_clusters": weighted,
        # A stream lasts as long as it lasts, but not for ever.
        "timeout": "0s",
        "max_stream_duration": {"max_stream_duration": f"{STREAM_SECONDS}s"},
        "retry_policy": _retries(),
    }
    if split is not None and split.mode == "HeaderHash" and split.header:
        # Requests without the header are split at random.
        weighted["use_hash_policy"] = True
        route["hash_policy"] = [{"header": {"header_name": split.header.lower()}}]
    return {"route": route}


def _retries() -> Config:
    """Only where nothing was sent: a prompt is never computed twice, nor given to a second engine to choke on."""
    return {
        "retry_on": "connect-failure,refused-stream",
        "num_retries": 2,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": {"@type": f"{_TYPE}.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"},
            }
        ],
        # By hash (Maglev) each attempt is a throw of dice between the pods: three left one in eight at the dead one.
        "host_selection_retry_max_attempts": 20,
    }
