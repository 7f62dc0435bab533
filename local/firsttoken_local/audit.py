"""Who changed what: the API server's audit log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Write:
    """One request that could change something; ``status`` is its HTTP status, ``time`` its arrival (RFC 3339)."""

    user: str
    verb: str
    api_group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    status: int
    time: str
    user_agent: str


def read_writes(path: Path, user: str | None = None, since: int = 0) -> list[Write]:
    """Return the completed writes in the audit log, of one user if told, from byte ``since`` on.

    An entry may come a moment after the client has its answer: wait for writes that must be there. To look at what
    happens from now on, pass the file's size of now as ``since``.
    """
    with path.open("rb") as file:
        file.seek(since)
        lines = file.read().split(b"\n")[:-1]  # the last piece is empty, or an entry being written
    events = (json.loads(line) for line in lines if line)
    writes = [_write(event) for event in events if event.get("stage") == "ResponseComplete"]
    return [write for write in writes if user in (None, write.user)]


def _write(event: dict[str, Any]) -> Write:
    target = event.get("objectRef") or {}
    return Write(
        user=event["user"].get("username", ""),
        verb=event["verb"],
        api_group=target.get("apiGroup", ""),
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        status=int((event.get("responseStatus") or {}).get("code", 0)),
        time=event.get("requestReceivedTimestamp", ""),
        user_agent=event.get("userAgent", ""),
    )
