"""Envoy's bootstrap: listeners, filters, logs and limits. Fixed for the life of an Envoy pod.

What changes while it runs (routes, weights, clusters) is in `envoy_routes` and reaches it through two watched files.
"""

from typing import Any

from firsttoken.manifests import names
from firsttoken.manifests.router import STREAM_SECONDS

Config = dict[str, Any]

BOOTSTRAP_DIRECTORY = "/etc/envoy/bootstrap"
DYNAMIC_DIRECTORY = "/etc/envoy/dynamic"
BOOTSTRAP_FILE = "bootstrap.json"
CLUSTERS_FILE = "clusters.json"
ROUTES_FILE = "routes.json"
DRAIN_FILE = "drain.sh"

ROUTE_CONFIG = "service"
RETRY_AFTER_SECONDS = 5

_TYPE = "type.googleapis.com/envoy"
_HTTP = f"{_TYPE}.extensions.filters.http"
_STAMP = names.REQUEST_START
_ADMIN_CLUSTER = "admin"

# `baggage` must carry the stamp too: vllm-router drops x-request-start in PD mode and keeps baggage. Members other than
# ours pass unchanged, and a client's own stamp is removed rather than shadowed, since readers differ in which of two
# equal keys they take. Headers can't be edited like this by configuration alone, hence the few lines of Lua.
_BAGGAGE = f"""
function envoy_on_request(handle)
  local headers = handle:headers()
  local members = {{"{_STAMP}=" .. string.sub(headers:get("{_STAMP}"), 3)}}
  for line = 0, headers:getNumValues("baggage") - 1 do
    for member in string.gmatch(headers:getAtIndex("baggage", line), "[^,]+") do
      local text = string.match(member, "^%s*(.-)%s*$")
      local key = string.match(text, "^[^=;%s]*")
      if text ~= "" and string.lower(key) ~= "{_STAMP}" then
        members[#members + 1] = text
      end
    end
  end
  headers:remove("baggage")
  headers:add("baggage", table.concat(members, ","))
end
""".strip()

# No prompt, no query string, no user id. Times in ms: request_ms until the request was read, first_byte_ms until the
# arm's first response byte (the gateway's view of TTFT), total_ms until the last.
_ACCESS_LOG = {
    "start": "%START_TIME(%s.%3f)%",
    "request_id": "%REQ(X-REQUEST-ID)%",
    "method": "%REQ(:METHOD)%",
    "path": "%PATH(NQ)%",
    "status": "%RESPONSE_CODE%",
    "flags": "%RESPONSE_FLAGS%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "arm": "%UPSTREAM_CLUSTER%",
    "upstream": "%UPSTREAM_HOST%",
    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    "request_ms": "%REQUEST_DURATION%",
    "first_byte_ms": "%RESPONSE_DURATION%",
    "total_ms": "%DURATION%",
    "received_bytes": "%BYTES_RECEIVED%",
    "sent_bytes": "%BYTES_SENT%",
}

# Cluster histograms in ms (upstream_rq_time): Envoy's defaults stop being useful where streams begin.
_BUCKETS_MS = [10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 900_000]


def bootstrap(service: str) -> Config:
    """The bootstrap for the gateway of `service`."""
    return {
        "node": {"id": names.gateway_name(service), "cluster": service},
        # Loopback only: the admin API can stop Envoy and show its configuration.
        "admin": {"address": _address("127.0.0.1", names.GATEWAY_ADMIN_PORT)},
        "dynamic_resources": {"cds_config": _watched(CLUSTERS_FILE)},
        "static_resources": {"listeners": [_ingress(), _metrics()], "clusters": [_admin_cluster()]},
        "stats_config": {
            "histogram_bucket_settings": [{"match": {"prefix": "cluster."}, "buckets": _BUCKETS_MS}],
        },
        "overload_manager": {
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": {
                        "@type": f"{_TYPE}.extensions.resource_monitors.downstream_connections.v3"
                        ".DownstreamConnectionsConfig",
                        "max_active_downstream_connections": 50_000,
                    },
                }
            ]
        },
    }


def _address(host: str, port: int) -> Config:
    return {"socket_address": {"address": host, "port_value": port}}


def _watched(file: str) -> Config:
    """A file of a mounted ConfigMap: the kubelet swaps the directory's `..data` link, so the directory is watched."""
    source = {"path": f"{DYNAMIC_DIRECTORY}/{file}", "watched_directory": {"path": DYNAMIC_DIRECTORY}}
    return {"path_config_source": source, "resource_api_version": "V3"}


def _ingress() -> Config:
    """The users' listener. Nothing buffers: neither requests (long prompts) nor responses (tokens)."""
    manager = {
        "@type": f"{_TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "ingress",
        # Clients can't set x-envoy-retry-on, x-envoy-upstream-rq-timeout-ms and the like: they come from outside.
        "use_remote_address": True,
        "normalize_path": True,
        "preserve_external_request_id": True,
        "server_header_transformation": "PASS_THROUGH",
        "request_headers_timeout": "10s",  # slow senders of headers; a body may take its time, but not for ever
        "request_timeout": "600s",
        # No byte either way. A queue is silent, and so is a batch request without `stream` until its last token, so
        # this must not end what the longest stream may take.
        "stream_idle_timeout": f"{STREAM_SECONDS}s",
        "common_http_protocol_options": {"idle_timeout": "900s"},
        "rds": {"route_config_name": ROUTE_CONFIG, "config_source": _watched(ROUTES_FILE)},
        "http_filters": [_stamp_filter(), _baggage_filter(), _router_filter()],
        "local_reply_config": {"mappers": _error_mappers()},
        "access_log": [
            {
                "name": "envoy.access_loggers.stdout",
                "typed_config": {
                    "@type": f"{_TYPE}.extensions.access_loggers.stream.v3.StdoutAccessLog",
                    "log_format": {"json_format": _ACCESS_LOG},
                },
            }
        ],
    }
    return _listener("ingress", names.GATEWAY_PORT, manager)


def _listener(name: str, port: int, manager: Config) -> Config:
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    return {"name": name, "address": _address("0.0.0.0", port), "filter_chains": [chain]}  # noqa: S104


def _stamp_filter() -> Config:
    """The arrival stamp: when Envoy saw the request's headers, whatever a client sent under that name."""
    return {
        "name": "envoy.filters.http.header_mutation",
        "typed_config": {
            "@type": f"{_HTTP}.header_mutation.v3.HeaderMutation",
            "mutations": {
                "request_mutations": [
                    {
                        "append": {
                            "header": {"key": _STAMP, "value": "t=%START_TIME(%s.%3f)%"},
                            "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
                        }
                    }
                ]
            },
        },
    }


def _baggage_filter() -> Config:
    script = {"@type": f"{_HTTP}.lua.v3.Lua", "default_source_code": {"inline_string": _BAGGAGE}}
    return {"name": "envoy.filters.http.lua", "typed_config": script}


def _router_filter() -> Config:
    return {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{_HTTP}.router.v3.Router"}}


def _error_mappers() -> list[Config]:
    """Envoy's own answers (no revision, no engine, time-outs) in the form OpenAI clients parse; first match wins."""
    changing = "the gateway is changing revisions; try again"
    return [
        _error({"response_flag_filter": {"flags": ["NC"]}}, "server_error", changing, retry=True),
        _error(_status(500), "server_error", "%LOCAL_REPLY_BODY%", retry=True),
        _error(_status(400), "invalid_request_error", "%LOCAL_REPLY_BODY%", retry=False),
    ]


def _status(lowest: int) -> Config:
    value = {"default_value": lowest, "runtime_key": f"firsttoken.local_reply_{lowest}"}
    return {"status_code_filter": {"comparison": {"op": "GE", "value": value}}}


def _error(match: Config, kind: str, message: str, *, retry: bool) -> Config:
    content = {"message": message, "type": kind, "code": "%RESPONSE_CODE%"}
    mapper: Config = {"filter": match, "body_format_override": {"json_format": {"error": content}}}
    if retry:
        header = {"key": "retry-after", "value": str(RETRY_AFTER_SECONDS)}
        mapper["headers_to_add"] = [{"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]
    return mapper


def _metrics() -> Config:
    """What Prometheus and the kubelet may see: two read-only pages of the admin API, and Envoy's own pulse."""

    def page(path: str, action: Config) -> Config:
        get = {"name": ":method", "string_match": {"exact": "GET"}}
        return {"match": {"path": path, "headers": [get]}, **action}

    to_admin = {"route": {"cluster": _ADMIN_CLUSTER}}
    alive = {"direct_response": {"status": 200, "body": {"inline_string": "live\n"}}}
    pages = [page("/stats/prometheus", to_admin), page("/ready", to_admin), page("/live", alive)]
    manager = {
        "@type": f"{_TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "metrics",
        "route_config": {"virtual_hosts": [{"name": "metrics", "domains": ["*"], "routes": pages}]},
        "http_filters": [_router_filter()],
    }
    return _listener("metrics", names.GATEWAY_METRICS_PORT, manager)


def _admin_cluster() -> Config:
    endpoint = {"endpoint": {"address": _address("127.0.0.1", names.GATEWAY_ADMIN_PORT)}}
    return {
        "name": _ADMIN_CLUSTER,
        "type": "STATIC",
        "load_assignment": {"cluster_name": _ADMIN_CLUSTER, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
