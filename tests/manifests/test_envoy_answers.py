"""The rendered configuration in Envoy itself: what it answers on its own, its metrics, its log, its drain."""

import http.client
import json
import subprocess
from dataclasses import replace

import pytest

from manifests.envoy_case import CHAT, DEAD, RANDOM, STABLE, answering_arm
from manifests.real_envoy import RealEnvoy, poll
from manifests.upstream import Upstream


def test_without_backends_clients_get_an_openai_error_and_a_hint_when_to_retry(envoy: RealEnvoy) -> None:
    envoy.apply(RANDOM, [])
    status, headers, body = envoy.request("POST", CHAT, body="{}")
    assert (status, headers["retry-after"], headers["content-type"]) == (503, "5", "application/json")
    error = json.loads(body)["error"]
    assert (error["type"], error["code"]) == ("server_error", 503)
    assert "no revision" in error["message"]
    assert envoy.request("GET", "/")[0] == 200, "the gateway itself is there"
    assert envoy.ready()


def test_unreachable_engine_is_an_openai_error_too(envoy: RealEnvoy) -> None:
    envoy.apply(RANDOM, [DEAD])
    status, headers, body = envoy.request("POST", CHAT, body="{}")
    assert (status, headers["retry-after"]) == (503, "5")
    assert json.loads(body)["error"]["type"] == "server_error"


@pytest.mark.parametrize(
    "path", ["/metrics", "/add_worker?url=http://evil", "/v1/../workers", "/flush_cache", "/v1", "/v3/x"]
)
def test_only_the_api_is_reachable(envoy: RealEnvoy, path: str) -> None:
    envoy.apply(RANDOM, [replace(STABLE, weight=100)])
    status, headers, body = envoy.request("POST", path)
    assert (status, json.loads(body)["error"]["type"]) == (404, "invalid_request_error")
    assert "retry-after" not in headers


def test_metrics_listener_shows_statistics_per_arm_and_nothing_else_of_the_admin_api(envoy: RealEnvoy) -> None:
    envoy.apply(RANDOM, [replace(STABLE, weight=100)])
    answering_arm(envoy)
    status, _, page = envoy.request("GET", "/stats/prometheus", port=envoy.metrics_port)
    assert status == 200
    assert f'envoy_cluster_upstream_rq_total{{envoy_cluster_name="{STABLE.revision}"}}' in page
    assert f'envoy_cluster_upstream_rq_time_bucket{{envoy_cluster_name="{STABLE.revision}",le="25"}}' in page
    assert envoy.request("GET", "/live", port=envoy.metrics_port)[0] == 200
    for method, path in [("GET", "/config_dump"), ("POST", "/quitquitquit"), ("POST", "/ready")]:
        assert envoy.request(method, path, port=envoy.metrics_port)[0] == 404


def test_access_log_has_times_per_arm_and_no_prompt(envoy: RealEnvoy) -> None:
    envoy.apply(RANDOM, [replace(STABLE, weight=100)])
    sent = [("x-request-id", "the-one"), ("x-user-id", "somebody")]
    envoy.request("POST", f"{CHAT}?q=SECRET", sent, '{"prompt": "SECRET"}')
    poll("the line is logged", lambda: "the-one" in envoy.log.read_text())
    line = next(line for line in envoy.log.read_text().splitlines() if "the-one" in line)
    assert "SECRET" not in line
    assert "somebody" not in line
    entry = json.loads(line)
    assert (entry["arm"], entry["status"], entry["path"]) == (STABLE.revision, 200, CHAT)
    assert all(isinstance(entry[key], int) for key in ("request_ms", "first_byte_ms", "total_ms"))


def test_drain_fails_readiness_and_waits_for_the_last_stream(tmp_path, arms: dict[str, Upstream]) -> None:  # type: ignore[no-untyped-def]
    server = RealEnvoy(tmp_path, {name: arm.port for name, arm in arms.items()})
    server.write(RANDOM, [replace(STABLE, weight=100)])
    with server.running():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("POST", "/v1/stream", body="{}")
        answer = connection.getresponse()
        hook = subprocess.Popen(["bash", tmp_path / "drain.sh", str(server.admin_port), "0", "60"])
        try:
            poll("the pod leaves its Service", lambda: not server.ready())
            assert server.request("GET", "/live", port=server.metrics_port)[0] == 200
            assert hook.poll() is None, "the hook ended while a response was under way"
            arms[STABLE.revision].gate.release(3)
            assert answer.read() == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
            assert hook.wait(timeout=20) == 0
        finally:
            hook.kill()
            hook.wait()
            connection.close()
