"""The API server as the player uses it: objects kept up to date by a watch, pods' status, tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from firsttoken_local.kubeconfig import read_kubeconfig

Object = dict[str, Any]
Key = tuple[str, str]  # namespace, name
WATCH_S = 300  # the API server ends a watch after so long; it starts again
PAUSE_S = 0.5


class Api:
    """A connection on behalf of the user of a kubeconfig; :meth:`close` it."""

    def __init__(self, kubeconfig: Path) -> None:
        target = read_kubeconfig(kubeconfig)
        self._given: Object = yaml.safe_load(kubeconfig.read_text())
        self.server = f"https://{target.host}:{target.port}"
        connector = aiohttp.TCPConnector(ssl=target.context, limit=0)
        self._session = aiohttp.ClientSession(
            self.server, connector=connector, timeout=aiohttp.ClientTimeout(sock_connect=10)
        )

    def kubeconfig(self, token: str) -> Object:
        """The same server for who shows this token."""
        return {**self._given, "users": [{"name": self._given["users"][0]["name"], "user": {"token": token}}]}

    async def close(self) -> None:
        """End all connections."""
        await self._session.close()

    async def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Object:
        """Send and receive JSON.

        Raises:
            aiohttp.ClientError: no answer, or one with a status of 400 or above.
        """
        data = None if body is None else json.dumps(body)
        headers = {"content-type": kind}
        async with self._session.request(method, path, data=data, headers=headers) as answer:
            answer.raise_for_status()
            found: Object = await answer.json()
            return found

    async def events(self, path: str, version: str) -> AsyncIterator[tuple[str, Object]]:
        """What happens to the objects of a collection after ``version``, until the API server ends the watch."""
        query = f"{path}{'&' if '?' in path else '?'}watch=1&allowWatchBookmarks=true"
        query += f"&timeoutSeconds={WATCH_S}&resourceVersion={version}"
        async with self._session.get(query, read_bufsize=2**24) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                event = json.loads(line)
                yield event["type"], event["object"]


class Store:
    """The objects of one collection as they are now; ``changed`` gets a key and its object, None when it is gone."""

    def __init__(self, api: Api, path: str, changed: Callable[[Key, Object | None], None]) -> None:
        self._api, self._path, self._changed = api, path, changed
        self.objects: dict[Key, Object] = {}
        self.complete = asyncio.Event()  # listed once

    async def follow(self) -> None:
        """List, watch, and again whenever that breaks off."""
        while True:
            try:
                version = await self._list()
                self.complete.set()
                async for kind, obj in self._api.events(self._path, version):
                    if kind == "ERROR":
                        break
                    if kind != "BOOKMARK":
                        self._put(obj, gone=kind == "DELETED")
            except (aiohttp.ClientError, TimeoutError, OSError):
                pass
            await asyncio.sleep(PAUSE_S)

    async def _list(self) -> str:
        found = await self._api.request("GET", self._path)
        items = {key_of(item): item for item in found["items"]}
        for key in [key for key in self.objects if key not in items]:
            self._put(self.objects[key], gone=True)
        for key, item in items.items():
            if self.objects.get(key) != item:
                self._put(item, gone=False)
        return str(found["metadata"]["resourceVersion"])

    def _put(self, obj: Object, *, gone: bool) -> None:
        key = key_of(obj)
        if gone:
            self.objects.pop(key, None)
        else:
            self.objects[key] = obj
        self._changed(key, None if gone else obj)


def key_of(obj: Object) -> Key:
    """Namespace and name."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
