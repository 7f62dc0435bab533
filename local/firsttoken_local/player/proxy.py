"""The way in: an HTTP proxy for Services and pods of the namespace, and a reverse proxy for Services by path.

``GET http://NAME.NAMESPACE/…`` (with or without ``.svc.cluster.local``) or ``http://POD_IP:PORT/…`` as a proxy is
asked, or ``GET /NAMESPACE/NAME/…`` as a server is. It stands where kube-proxy would and picks a ready endpoint of the
Service by turns. One request a connection, and bytes as they come: nothing is buffered.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from firsttoken_local.player.streams import join

Object = dict[str, Any]
MOST_HEAD = 2**16


class Unknown(Exception):  # noqa: N818 - an answer, not a fault
    """Nothing answers there: why."""


def targets(slices: Iterable[Object], namespace: str, service: str) -> list[tuple[str, int]]:
    """Ready addresses and ports of a Service by its EndpointSlices."""
    found = []
    for one in slices:
        meta = one["metadata"]
        if meta["namespace"] != namespace or meta.get("labels", {}).get("kubernetes.io/service-name") != service:
            continue
        ready = [e for e in one.get("endpoints") or [] if e.get("conditions", {}).get("ready", True)]
        ports = [port["port"] for port in one.get("ports") or []][:1]
        found += [(address, port) for endpoint in ready for address in endpoint["addresses"][:1] for port in ports]
    return sorted(found)


def destination(head: bytes) -> tuple[str, int, str, bytes]:
    """Return host, port, or the Service ``namespace/name`` in place of the host, and the head to send on.

    Raises:
        Unknown: this is no request that can be passed on.
    """
    try:
        first, rest = head.split(b"\r\n", 1)
        method, target, version = first.decode("latin-1").split(" ")
    except ValueError:
        raise Unknown("this is no HTTP request") from None
    where = urlsplit(target)
    if where.scheme == "http" and where.hostname:
        host, port, service = _place(where.hostname, where.port)
        path = target.partition("//")[2].partition("/")[2]
    else:
        parts = target.split("/", 3)
        if not target.startswith("/") or len(parts) < 4 or not parts[1] or not parts[2]:
            raise Unknown("ask for /NAMESPACE/SERVICE/v1/..., or use this address as an HTTP proxy")
        host, port, service, path = "", 0, f"{parts[1]}/{parts[2]}", parts[3]
    kept = [line for line in rest.split(b"\r\n") if not line.lower().startswith((b"connection:", b"proxy-"))]
    lines = [f"{method} /{path} {version}".encode("latin-1"), b"connection: close", *kept]
    return host, port, service, b"\r\n".join(lines)


def _place(host: str, port: int | None) -> tuple[str, int, str]:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        labels = host.split(".")
        if len(labels) > 1 and labels[2:] in ([], ["svc"], ["svc", "cluster", "local"]):
            return "", 0, f"{labels[1]}/{labels[0]}"
        raise Unknown(f"{host} is no pod address and no Service: write NAME.NAMESPACE") from None
    return host, port or 80, ""


class Proxy:
    """Serves connections; ``slices`` are the cluster's EndpointSlices at any moment."""

    def __init__(self, slices: dict[Any, Object]) -> None:
        self._slices = slices
        self._turn = itertools.count()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            writer.close()
            return
        try:
            host, port, service, changed = destination(head)
            if service:
                host, port = self._endpoint(service)
            other = await asyncio.open_connection(host, port)
        except (Unknown, OSError) as error:
            await _refuse(writer, str(error))
            return
        other[1].write(changed)
        await join((reader, writer), other)

    def _endpoint(self, service: str) -> tuple[str, int]:
        namespace, name = service.split("/")
        found = targets(self._slices.values(), namespace, name)
        if not found:
            raise Unknown(f"Service {service} has no ready pod")
        return found[next(self._turn) % len(found)]


async def _refuse(writer: asyncio.StreamWriter, message: str) -> None:
    body = json.dumps({"error": {"message": message, "type": "server_error", "code": 503}}).encode()
    head = f"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
    with contextlib.suppress(OSError):
        await writer.drain()
    writer.close()
