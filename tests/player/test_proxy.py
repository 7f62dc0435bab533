"""The way to played pods: what a request asks for, and bytes that pass as they come."""

import asyncio
from typing import Any

import pytest

from firsttoken_local.player.proxy import Proxy, Unknown, destination, targets
from firsttoken_local.player.streams import forwarder


def endpoint_slice(name: str, port: int, *endpoints: tuple[str, bool]) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "default", "name": f"{name}-x", "labels": {"kubernetes.io/service-name": name}},
        "ports": [{"name": "http", "port": port}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": ready}} for address, ready in endpoints],
    }


def head(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nProxy-Connection: x\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("target", "host", "port", "service", "path"),
    [
        ("/default/kb/v1/models?x=1", "", 0, "default/kb", "/v1/models?x=1"),
        ("http://kb.default/v1/models", "", 0, "default/kb", "/v1/models"),
        ("http://kb.default.svc.cluster.local/", "", 0, "default/kb", "/"),
        ("http://10.244.1.1:8000/metrics", "10.244.1.1", 8000, "", "/metrics"),
        ("http://10.244.1.1", "10.244.1.1", 80, "", "/"),
    ],
)
def test_where_a_request_goes(target: str, host: str, port: int, service: str, path: str) -> None:
    *place, changed = destination(head(target))
    assert place == [host, port, service]
    lines = changed.decode().split("\r\n")
    assert lines[0] == f"GET {path} HTTP/1.1"
    assert sorted(lines[1:3]) == ["Host: h", "connection: close"]  # one request a connection
    assert lines[3:] == ["", ""]


@pytest.mark.parametrize("target", ["/", "/default/kb", "//kb/v1", "http://example.com.org/x", "http://kb/x"])
def test_what_leads_nowhere_is_said(target: str) -> None:
    with pytest.raises(Unknown):
        destination(head(target))
    with pytest.raises(Unknown):
        destination(b"rubbish\r\n\r\n")


def test_a_service_s_targets_are_its_ready_endpoints() -> None:
    slices = [endpoint_slice("kb", 8080, ("10.0.0.2", True), ("10.0.0.1", True), ("10.0.0.3", False))]
    slices.append(endpoint_slice("other", 80, ("10.0.0.9", True)))
    assert targets(slices, "default", "kb") == [("10.0.0.1", 8080), ("10.0.0.2", 8080)]
    assert targets(slices, "elsewhere", "kb") == []


def test_bytes_pass_as_they_come_and_ends_are_passed_on() -> None:
    """The server sends, waits for the client to leave, and learns of it, through a forwarder and the proxy."""

    async def work() -> None:
        left = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await reader.readuntil(b"\r\n\r\n")
            assert asked.startswith(b"GET /v1 HTTP/1.1\r\n")
            writer.write(b"first")
            assert await reader.read() == b""
            left.set()
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            proxy = Proxy({0: endpoint_slice("kb", port, ("127.0.0.1", True))})
            async with await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as inner:
                inside = inner.sockets[0].getsockname()[1]
                serve = forwarder(lambda: asyncio.open_connection("127.0.0.1", inside))
                async with await asyncio.start_server(serve, "127.0.0.1", 0) as outer:
                    reader, writer = await asyncio.open_connection(*outer.sockets[0].getsockname())
                    writer.write(head("/default/kb/v1"))
                    assert await reader.readexactly(5) == b"first"
                    writer.close()
                    await asyncio.wait_for(left.wait(), 30)

    asyncio.run(work())


def test_a_service_without_ready_pods_is_answered_503() -> None:
    async def work() -> None:
        async with await asyncio.start_server(Proxy({}).serve, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(head("/default/kb/v1"))
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"Service default/kb has no ready pod" in answer
            writer.close()

    asyncio.run(work())
