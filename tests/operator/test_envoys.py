"""Envoys are asked pod by pod; whatever they answer, or don't, nothing is raised and nothing is followed."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from firsttoken.manifests.names import GATEWAY_ROLE, selector
from firsttoken.reconcile.envoy_views import Envoys, EnvoyView
from firsttoken_operator import envoys, metrics
from firsttoken_operator.envoys import EnvoyAsker

KEY = ("apps", "chat")
ANSWER = 'envoy_cluster_membership_healthy{envoy_cluster_name="chat-1"} 2\n'
VIEW = EnvoyView("envoy-1", {"chat-1": 2})
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def pod(name: str = "envoy-1", address: str = "127.0.0.1") -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "chat-gateway-7d9", "controller": True}
    labels = {**selector("chat", GATEWAY_ROLE), "pod-template-hash": "7d9"}
    meta = {"name": name, "namespace": "apps", "labels": labels, "ownerReferences": [owner]}
    status = {"podIP": address, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": status}


def answers(text: str = ANSWER, **how: Any) -> Handler:
    async def handle(_: web.Request) -> web.StreamResponse:
        return web.Response(**(how or {"text": text}))

    return handle


def ask(
    monkeypatch: pytest.MonkeyPatch, handler: Handler | None, *pods: dict[str, Any], asker: EnvoyAsker | None = None
) -> tuple[Envoys, list[str]]:
    """Ask with a server on a free port of loopback, whose requests are returned as well; None: no server."""
    port, seen = unused_port(), []
    monkeypatch.setattr(envoys, "GATEWAY_METRICS_PORT", port)

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request.path_qs)
        assert handler is not None
        return await handler(request)

    async def run() -> Envoys:
        app = web.Application()
        app.add_routes([web.get("/{any:.*}", handle)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)  # some handlers never end by themselves
        await runner.setup()
        if handler is not None:
            for host in ("127.0.0.1", "::1") if _has_v6() else ("127.0.0.1",):
                await web.TCPSite(runner, host, port).start()
        try:
            return await (asker or EnvoyAsker()).ask(KEY, pods or (pod(),))
        finally:
            await runner.cleanup()

    return asyncio.run(run()), seen


def _has_v6() -> bool:
    try:
        with closing(socket.socket(socket.AF_INET6)) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def counted(result: str) -> float:
    return float(metrics.ENVOY_ASKS.labels(result)._value.get())


def test_a_ready_envoy_is_asked_for_what_it_has_taken_up(monkeypatch: pytest.MonkeyPatch) -> None:
    before = counted("answered")
    said, seen = ask(monkeypatch, answers())
    assert said == Envoys((VIEW,))
    assert seen == ["/stats/prometheus?filter=(version_text%7Cmembership_healthy)$&text_readouts=on"]
    assert counted("answered") == before + 1


@pytest.mark.skipif(not _has_v6(), reason="this machine has no IPv6")
def test_an_envoy_with_an_ipv6_address_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(monkeypatch, answers(), pod(address="::1"))[0] == Envoys((VIEW,))


def test_0006_a_pod_with_our_labels_that_is_not_ours_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = pod()
    del stranger["metadata"]["ownerReferences"]
    assert ask(monkeypatch, answers(), stranger) == (Envoys(), [])


async def hangs(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(30)
    return web.Response()


async def trickles(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(100):
        await answer.write(b"x 1\n")
        await asyncio.sleep(0.1)
    return answer


async def floods(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for _ in range(64):
        await answer.write(ANSWER.encode().ljust(2**16))
    return answer


BOMB = gzip.compress(bytes(2**26))


@pytest.mark.parametrize(
    "handler",
    [
        None,
        hangs,
        trickles,
        floods,
        answers(status=503),
        answers(status=204),
        answers(status=302, headers={"Location": "/elsewhere"}),
        answers(body=b"\xff\xfe", content_type="text/plain", charset="utf-8"),
        answers(body=gzip.compress(ANSWER.encode()), headers={"Content-Encoding": "gzip"}),
        answers(body=BOMB, headers={"Content-Encoding": "gzip"}),
    ],
    ids=["refused", "hangs", "trickles", "floods", "503", "204", "redirect", "not-text", "compressed", "bomb"],
)
def test_who_gives_no_answer_is_silent(
    handler: Handler | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = counted("failed")
    said, seen = ask(monkeypatch, handler, asker=EnvoyAsker(patience=0.5))
    assert said == Envoys((), ("envoy-1",))
    assert len(seen) == (0 if handler is None else 1), "nothing is followed, nothing tried twice"
    assert "apps/chat: no Envoy can be asked" in caplog.text
    assert counted("failed") == before + 1


@pytest.mark.parametrize("raw", [b"", b"\0" * 99, b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"HTTP/1.1 " * 9999])
def test_a_stranger_that_speaks_no_http_is_silent(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(raw)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def run() -> Envoys:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        monkeypatch.setattr(envoys, "GATEWAY_METRICS_PORT", server.sockets[0].getsockname()[1])
        async with server:
            return await EnvoyAsker().ask(KEY, [pod()])

    assert asyncio.run(run()) == Envoys((), ("envoy-1",))


def test_an_address_that_is_none_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(monkeypatch, None, pod(address="a b/c@d"))[0] == Envoys((), ("envoy-1",))


def test_one_of_two_that_hangs_is_named_and_the_other_heard(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await (hangs if "127.0.0.2" in request.host else answers())(request)

    asker = EnvoyAsker(patience=0.2)
    said = _on_two_addresses(monkeypatch, handle, asker)
    assert said == Envoys((VIEW,), ("envoy-2",))
    assert "some Envoys give no answer (envoy-2: TimeoutError" in caplog.text
    assert asker.may_ask(KEY)


def _on_two_addresses(monkeypatch: pytest.MonkeyPatch, handler: Handler, asker: EnvoyAsker) -> Envoys:
    port = unused_port()
    monkeypatch.setattr(envoys, "GATEWAY_METRICS_PORT", port)

    async def run() -> Envoys:
        app = web.Application()
        app.add_routes([web.get("/{any:.*}", handler)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104 - all of loopback
        try:
            return await asker.ask(KEY, [pod(), pod("envoy-2", "127.0.0.2")])
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def test_a_service_out_of_reach_is_left_alone_for_a_minute_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "firsttoken")
    now = [0.0]
    asker = EnvoyAsker(clock=lambda: now[0])
    assert asker.may_ask(KEY)
    ask(monkeypatch, None, asker=asker)
    now[0] = 59.0
    before = counted("skipped")
    assert not asker.may_ask(KEY)
    assert counted("skipped") == before + 1
    assert asker.may_ask(("apps", "other"))
    now[0] = 60.0
    assert asker.may_ask(KEY)
    ask(monkeypatch, None, asker=asker)
    assert caplog.text.count("no Envoy can be asked") == 1
    assert not asker.may_ask(KEY)
    asker.forget(KEY)
    assert asker.may_ask(KEY)
    ask(monkeypatch, None, asker=asker)
    ask(monkeypatch, answers(), asker=asker)
    assert asker.may_ask(KEY)
    assert caplog.text.count("every Envoy answers") == 1


def test_pods_are_asked_by_the_proxy_where_there_is_one() -> None:
    """An address to which nothing here has a way; the proxy is told the whole of it."""
    asked: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(request.raw_path)
        return await answers()(request)

    async def run() -> Envoys:
        app = web.Application()
        app.add_routes([web.get("/{any:.*}", handle)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            asker = EnvoyAsker(proxy=f"http://127.0.0.1:{runner.addresses[0][1]}")
            return await asker.ask(KEY, [pod(address="192.0.2.7")])
        finally:
            await runner.cleanup()

    assert asyncio.run(run()) == Envoys((VIEW,))
    assert [one.startswith("http://192.0.2.7:9902/stats/prometheus?") for one in asked] == [True]
