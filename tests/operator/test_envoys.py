"""Envoys are asked pod by pod; whoever doesn't answer is left out, and nothing is raised."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from firsttoken.reconcile.gateways import GatewayView
from firsttoken_operator import envoys

ANSWER = 'envoy_cluster_membership_healthy{envoy_cluster_name="chat-1"} 2\n'


def pod(name: str, address: str | None = "127.0.0.1", *, ready: str = "True", role: str = "gateway") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "apps", "labels": {"firsttoken.dev/role": role}},
        "status": {"conditions": [{"type": "Ready", "status": ready}], **({"podIP": address} if address else {})},
    }


def ask(pods: list[dict[str, Any]], answer: web.Response | None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ask with a server on a free port of 127.0.0.1, whose requests are returned as well; None: no server."""
    port, seen = unused_port(), []
    monkeypatch.setattr(envoys, "GATEWAY_METRICS_PORT", port)

    async def handle(request: web.Request) -> web.Response:
        seen.append(request.path_qs)
        assert answer is not None
        return answer

    async def run() -> tuple[GatewayView, ...]:
        app = web.Application()
        app.add_routes([web.get("/{any:.*}", handle)])
        runner = web.AppRunner(app)
        await runner.setup()
        if answer is not None:
            await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            return await envoys.ask_envoys(pods)
        finally:
            await runner.cleanup()

    return asyncio.run(run()), seen


def test_a_ready_envoy_is_asked_for_the_endpoints_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    views, seen = ask([pod("envoy-1")], web.Response(text=ANSWER), monkeypatch)
    assert views == (GatewayView("envoy-1", {"chat-1": 2}),)
    assert seen == ["/stats/prometheus?filter=membership_healthy"]


@pytest.mark.parametrize(
    "other",
    [
        pod("a", ready="False"),
        pod("b", None),
        pod("c", role="serve"),
        {**pod("d"), "metadata": {**pod("d")["metadata"], "deletionTimestamp": "2026-05-01T12:00:00Z"}},
    ],
    ids=["not-ready", "no-address", "an-engine", "going"],
)
def test_others_are_not_asked(other: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask([other], web.Response(text=ANSWER), monkeypatch) == ((), [])


@pytest.mark.parametrize(
    "answer",
    [None, web.Response(status=503), web.Response(body=b"\xff\xfe", content_type="text/plain", charset="utf-8")],
    ids=["refused", "503", "not-text"],
)
def test_who_gives_no_answer_holds_nothing_up(
    answer: web.Response | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    views, _ = ask([pod("envoy-1")], answer, monkeypatch)
    assert views == ()
    assert "apps/envoy-1: Envoy can't be asked" in caplog.text
