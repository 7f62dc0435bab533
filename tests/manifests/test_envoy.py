"""The rendered configuration in Envoy itself: the split, the stamp, the stream, and what it answers on its own."""

import http.client
import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from firsttoken.api.service import InferenceService
from manifests import cases
from manifests.real_envoy import RealEnvoy, free_ports, poll
from manifests.upstream import Upstream, upstream

STABLE, CANARY = cases.STABLE, cases.CANARY
DEAD = replace(STABLE, revision="kb-assistant-dead0000", weight=100)
RANDOM = cases.service()
HASHED = cases.service(rollout={"split": {"mode": "HeaderHash", "header": "X-User-Id"}})
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def arms() -> Iterator[dict[str, Upstream]]:
    with upstream(STABLE.revision) as stable, upstream(CANARY.revision) as canary:
        yield {STABLE.revision: stable, CANARY.revision: canary}


@pytest.fixture(scope="module")
def envoy(tmp_path_factory: pytest.TempPathFactory, arms: dict[str, Upstream]) -> Iterator[RealEnvoy]:
    ports = {name: arm.port for name, arm in arms.items()}
    server = RealEnvoy(tmp_path_factory.mktemp("envoy"), {**ports, DEAD.revision: free_ports(1)[0]})
    server.write(RANDOM, [STABLE, CANARY])
    with server.running():
        yield server


def _arm(envoy: RealEnvoy, *headers: tuple[str, str]) -> str:
    status, _, body = envoy.request("POST", CHAT, headers, "{}")
    assert status == 200, body
    return str(json.loads(body)["arm"])


@pytest.mark.parametrize(
    ("service", "backends"),
    [
        (RANDOM, ()),
        (RANDOM, (STABLE,)),
        (RANDOM, (replace(STABLE, weight=100), replace(CANARY, weight=0))),
        (HASHED, (STABLE, CANARY)),
    ],
    ids=["no-backend", "one", "idle-canary", "hashed"],
)
def test_configuration_is_valid(tmp_path, service: InferenceService, backends) -> None:  # type: ignore[no-untyped-def]
    server = RealEnvoy(tmp_path, {STABLE.revision: 1, CANARY.revision: 2})
    server.write(service, backends)
    result = server.validate()
    assert result.returncode == 0, result.stderr
    assert "deprecated" not in result.stderr.lower()


def test_weights_split_at_random_and_change_without_a_restart(envoy: RealEnvoy) -> None:
    assert envoy.process is not None
    before = envoy.process.pid
    envoy.apply(RANDOM, [STABLE, CANARY])
    seen = Counter(_arm(envoy) for _ in range(500))
    assert 20 <= seen[CANARY.revision] <= 80, seen  # 50 expected, standard deviation 6.7

    envoy.apply(RANDOM, [replace(STABLE, weight=0), replace(CANARY, weight=100)])
    assert {_arm(envoy) for _ in range(50)} == {CANARY.revision}
    envoy.apply(RANDOM, [replace(STABLE, weight=100), replace(CANARY, weight=0)])
    assert {_arm(envoy) for _ in range(50)} == {STABLE.revision}
    assert envoy.process.pid == before
    assert envoy.process.poll() is None


def test_header_hash_keeps_a_user_on_one_side_also_when_the_canary_grows(envoy: RealEnvoy) -> None:
    users = [f"user-{n}" for n in range(100)]
    envoy.apply(HASHED, [STABLE, CANARY])
    first = {user: _arm(envoy, ("x-user-id", user)) for user in users}
    assert first == {user: _arm(envoy, ("x-user-id", user)) for user in users}
    assert set(first.values()) == {STABLE.revision, CANARY.revision}

    envoy.apply(HASHED, [replace(STABLE, weight=50), replace(CANARY, weight=50)])
    second = {user: _arm(envoy, ("x-user-id", user)) for user in users}
    early = [user for user, arm in first.items() if arm == CANARY.revision]
    assert all(second[user] == CANARY.revision for user in early), "users went back from canary to stable"
    assert len(early) < list(second.values()).count(CANARY.revision)


def test_arrival_stamp_replaces_a_clients_own(envoy: RealEnvoy) -> None:
    envoy.apply(RANDOM, [replace(STABLE, weight=100)])
    began = time.time()
    sent = [
        ("x-request-start", "t=1.000"),
        ("X-Request-Start", "t=2.000"),
        ("baggage", "tenant=a, x-request-start=1.000;forged=yes,key=v%2C1"),
        ("baggage", "X-Request-Start=2, session=b"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ]
    _, _, body = envoy.request("POST", CHAT, sent, "{}")
    headers = json.loads(body)["headers"]
    stamps = [value for key, value in headers if key == "x-request-start"]
    assert len(stamps) == 1
    stamp = stamps[0].removeprefix("t=")
    assert began - 0.01 <= float(stamp) <= time.time() + 0.01
    assert stamp.partition(".")[2].isdigit()
    assert len(stamp.partition(".")[2]) == 3
    assert [v for k, v in headers if k == "baggage"] == [f"x-request-start={stamp},tenant=a,key=v%2C1,session=b"]
    assert ["traceparent", sent[-1][1]] in headers


def test_baggage_is_made_when_a_client_sends_none(envoy: RealEnvoy) -> None:
    envoy.apply(RANDOM, [replace(STABLE, weight=100)])
    headers = dict(json.loads(envoy.request("POST", CHAT, body="{}")[2])["headers"])
    assert headers["baggage"] == "x-request-start=" + headers["x-request-start"].removeprefix("t=")


def test_stream_arrives_chunk_by_chunk_and_clients_cannot_shorten_it(
    envoy: RealEnvoy, arms: dict[str, Upstream]
) -> None:
    envoy.apply(RANDOM, [replace(STABLE, weight=100)])
    gate = arms[STABLE.revision].gate
    connection = http.client.HTTPConnection("127.0.0.1", envoy.port, timeout=20)
    # Were it believed, this header would end the stream after a millisecond.
    connection.request("POST", "/v1/stream", body="{}", headers={"x-envoy-upstream-rq-timeout-ms": "1"})
    answer = connection.getresponse()
    assert answer.status == 200
    for number in range(3):
        gate.release()  # the next chunk doesn't exist before this line, so nothing can have waited for it
        assert answer.readline() == f"data: {number}\n".encode()
        assert answer.readline() == b"\n"
    assert answer.read() == b""
    connection.close()


def test_stream_of_a_revision_that_leaves_the_gateway_is_finished(envoy: RealEnvoy, arms: dict[str, Upstream]) -> None:
    envoy.apply(RANDOM, [replace(STABLE, weight=100)])
    connection = http.client.HTTPConnection("127.0.0.1", envoy.port, timeout=20)
    connection.request("POST", "/v1/stream", body="{}")
    answer = connection.getresponse()
    arms[STABLE.revision].gate.release()
    assert answer.readline() == b"data: 0\n"
    envoy.apply(RANDOM, [replace(STABLE, weight=0), replace(CANARY, weight=100)])
    envoy.apply(RANDOM, [replace(CANARY, weight=100)])
    assert _arm(envoy) == CANARY.revision
    arms[STABLE.revision].gate.release(2)
    assert answer.read() == b"\ndata: 1\n\ndata: 2\n\n"
    connection.close()


def test_revision_that_comes_and_goes_at_weight_0_costs_no_request(envoy: RealEnvoy) -> None:
    envoy.apply(RANDOM, [replace(STABLE, weight=100)])
    answers: Counter[int] = Counter()
    done = threading.Event()

    def load() -> None:
        while not done.is_set():
            answers[envoy.request("POST", CHAT, body="{}")[0]] += 1

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            for old, new in ((STABLE, CANARY), (CANARY, STABLE)):
                envoy.apply(RANDOM, [replace(old, weight=100), replace(new, weight=0)])
                envoy.apply(RANDOM, [replace(old, weight=0), replace(new, weight=100)])
                envoy.apply(RANDOM, [replace(new, weight=100)])
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert set(answers) == {200}, answers


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
    _arm(envoy)
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
