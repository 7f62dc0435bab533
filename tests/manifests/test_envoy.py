"""The rendered configuration in Envoy itself: the split, the stamp, the stream, and routers that come and go."""

import http.client
import json
import re
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest

from firsttoken.api.service import InferenceService
from firsttoken.manifests import names
from firsttoken.manifests.gateway import gateway_objects
from firsttoken.manifests.images import Images
from firsttoken.manifests.router import STREAM_SECONDS, router_args
from firsttoken.reconcile.envoy_views import STATS_PATH, STATS_QUERY, EnvoyView, read_view
from firsttoken.reconcile.routes import versions
from manifests import cases
from manifests.envoy_case import CANARY, CHAT, HASHED, RANDOM, STABLE, answering_arm
from manifests.real_envoy import RealEnvoy, poll
from manifests.upstream import Upstream, upstream


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
    seen = Counter(answering_arm(envoy) for _ in range(500))
    assert 20 <= seen[CANARY.revision] <= 80, seen  # 50 expected, standard deviation 6.7

    envoy.apply(RANDOM, [replace(STABLE, weight=0), replace(CANARY, weight=100)])
    assert {answering_arm(envoy) for _ in range(50)} == {CANARY.revision}
    envoy.apply(RANDOM, [replace(STABLE, weight=100), replace(CANARY, weight=0)])
    assert {answering_arm(envoy) for _ in range(50)} == {STABLE.revision}
    assert envoy.process.pid == before
    assert envoy.process.poll() is None


def test_header_hash_keeps_a_user_on_one_side_also_when_the_canary_grows(envoy: RealEnvoy) -> None:
    users = [f"user-{n}" for n in range(100)]
    envoy.apply(HASHED, [STABLE, CANARY])
    first = {user: answering_arm(envoy, ("x-user-id", user)) for user in users}
    assert first == {user: answering_arm(envoy, ("x-user-id", user)) for user in users}
    assert set(first.values()) == {STABLE.revision, CANARY.revision}

    envoy.apply(HASHED, [replace(STABLE, weight=50), replace(CANARY, weight=50)])
    second = {user: answering_arm(envoy, ("x-user-id", user)) for user in users}
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
    assert answering_arm(envoy) == CANARY.revision
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


def _pair(folder: Path, *upstreams: Upstream) -> RealEnvoy:
    """Envoy in front of one revision with several pods."""
    return RealEnvoy(folder, {STABLE.revision: tuple(u.port for u in upstreams)})


def _pods(envoy: RealEnvoy, count: int = 60) -> Counter[str]:
    """Which pods answer requests of different users for different paths, on connections of their own."""
    users = [("x-user-id", f"user-{n}") for n in range(count)]
    return Counter(
        json.loads(envoy.request("POST", f"/v1/path-{n}", [user], "{}")[2])["arm"] for n, user in enumerate(users)
    )


@pytest.mark.parametrize("service", [RANDOM, HASHED], ids=["random", "hashed"])
def test_one_router_sees_every_prompt_and_another_takes_over_when_it_is_gone(
    tmp_path: Path, service: InferenceService
) -> None:
    """Each router knows only the prefixes it has seen (M4.3): two at once would halve what the cache finds."""
    with upstream("one") as one, upstream("two") as two:
        server = _pair(tmp_path, one, two)
        server.write(service, [STABLE])
        with server.running():
            working = _pods(server)
            assert len(working) == 1, working
            gone, left = (one, two) if "one" in working else (two, one)
            gone.leave()
            active = f"cluster.{STABLE.revision}.upstream_cx_active: 0"
            poll("Envoy has seen its connections end", lambda: active in server.stats("upstream_cx_active"))
            assert set(_pods(server)) == {left.name}, "nothing was sent to the pod that is gone, so nothing is lost"


def test_engines_without_a_router_share_the_requests(tmp_path: Path) -> None:
    direct = replace(STABLE, service=STABLE.revision, port=names.ENGINE_PORT)
    with upstream("one") as one, upstream("two") as two:
        server = _pair(tmp_path, one, two)
        server.write(RANDOM, [direct])
        with server.running():
            assert set(_pods(server)) == {"one", "two"}


def test_a_silent_answer_may_take_as_long_as_the_longest_stream(envoy: RealEnvoy) -> None:
    """A batch request without `stream` sends nothing until its last token."""
    text = envoy.bootstrap.read_text()
    assert re.findall(r'"stream_idle_timeout": "(\d+)s"', text) == [str(STREAM_SECONDS)]
    routes = (envoy.dynamic / "routes.json").read_text()
    assert set(re.findall(r'"max_stream_duration": "(\d+)s"', routes)) <= {str(STREAM_SECONDS)}
    args = router_args(RANDOM, STABLE.revision, cases.plan(router=True))
    assert f"--request-timeout-secs={STREAM_SECONDS}" in args


def test_0013_envoy_tells_the_versions_it_has_taken_up_and_the_endpoints_it_knows(envoy: RealEnvoy) -> None:
    """As the operator asks it: through the listener of the metrics."""

    def view() -> EnvoyView:
        status, _, text = envoy.request("GET", f"{STATS_PATH}?{urlencode(STATS_QUERY)}", port=envoy.metrics_port)
        assert status == 200
        return read_view("envoy-1", text)

    seen = set()
    for backends in ((STABLE, CANARY), (STABLE,), (replace(STABLE, weight=0),)):
        envoy.apply(RANDOM, backends)
        objects = {o["metadata"]["name"]: o for o in gateway_objects(RANDOM, backends, Images())}
        told = versions(objects[names.gateway_routes_name("kb-assistant")])
        wanted = {"admin": 1, **{backend.revision: 1 for backend in backends}}
        poll("Envoy has both", lambda told=told, wanted=wanted: view() == EnvoyView("envoy-1", wanted, told))  # type: ignore[misc]
        seen.add(told)
    assert len(seen) == 3, "each content has a version of its own"
