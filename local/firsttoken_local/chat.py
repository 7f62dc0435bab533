"""A client of a served model: questions to a Service of the real node, streamed answers."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from firsttoken_local.cluster import LocalCluster
from firsttoken_local.errors import LocalError

TIMEOUT_S = 120.0


def service_url(cluster: LocalCluster, service: str, namespace: str = "default") -> str:
    """Return the URL of a Service by its cluster IP, which the machine reaches through the real node.

    Raises:
        LocalError: there is no such Service.
    """
    found = cluster.client.get("v1", "Service", service, namespace)
    if found is None:
        raise LocalError(f"there is no Service {namespace}/{service}")
    return f"http://{found['spec']['clusterIP']}:{found['spec']['ports'][0]['port']}"


def ask(base: str, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    """POST a question and return the answer before its body is read; reading it to the end closes the connection.

    Raises:
        LocalError: another status than 200; holds the body.
        OSError: no answer.
    """
    where = urlsplit(base)
    connection = http.client.HTTPConnection(where.hostname or "", where.port or 80, timeout=TIMEOUT_S)
    given = {"content-type": "application/json", "connection": "close", **(headers or {})}
    connection.request("POST", where.path + path, json.dumps(body), given)
    answer = connection.getresponse()
    if answer.status != 200:
        with answer:
            raise LocalError(f"{path} answered {answer.status}", answer.read().decode(errors="replace")[:2000])
    return answer


def events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The server-sent events of a streamed answer, as they come, without the last ([DONE]).

    Raises:
        LocalError: the stream ended without [DONE].
    """
    with answer:
        for line in answer:
            data = line.strip().removeprefix(b"data: ")
            if data == b"[DONE]":
                return
            if line.startswith(b"data: "):
                yield json.loads(data)
    raise LocalError("the stream ended before [DONE]")


def stream(base: str, model: str, question: str, *, tokens: int = 20) -> Iterator[str]:
    """The pieces of a streamed chat answer, as they come; see :func:`ask` for what it raises."""
    messages = [{"role": "user", "content": question}]
    body = {"model": model, "messages": messages, "max_tokens": tokens, "stream": True}
    for event in events(ask(base, "/v1/chat/completions", body)):
        for choice in event["choices"]:
            if text := choice["delta"].get("content"):
                yield text
