"""A small client of the API server: what the local cluster itself and its tests need, and no more."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from firsttoken_local.errors import LocalError
from firsttoken_local.kubeconfig import read_kubeconfig
from firsttoken_local.waiting import wait_for

Object = dict[str, Any]
BUSY_S = 20.0
T = TypeVar("T")


class ApiError(LocalError):
    """The API server refused a request; ``status`` is the HTTP status, ``reason`` Kubernetes' word for it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"the API server answered {status} {reason}: {message}")
        self.status = status
        self.reason = reason


@dataclass(frozen=True)
class Resource:
    """One kind as the API server serves it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of the collection, of one object, or of its subresource."""
        parts = ["api" if "/" not in self.api_version else "apis", *self.api_version.split("/")]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)


class KubeClient:
    """Requests on behalf of the user of one kubeconfig; usable from several threads."""

    def __init__(self, kubeconfig: Path) -> None:
        self._connection = read_kubeconfig(kubeconfig)
        self._resources: dict[tuple[str, str], Resource] = {}

    def raw(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> bytes:
        """Send one request and return the body of the answer.

        A server that is busy is asked again for up to ``BUSY_S`` seconds: for instance, it answers 429 while the
        storage of a new kind is made ready.

        Raises:
            ApiError: the answer's status is 400 or above.
            OSError: the API server was not reached.
        """
        deadline = time.monotonic() + BUSY_S
        while True:
            answer, data = self._send(method, path, body, headers, timeout_s)
            if answer.status < 400:
                return data
            delay_s = pause(answer.status, answer.getheader("Retry-After"))
            if delay_s is None or time.monotonic() + delay_s > deadline:
                raise _refusal(answer.status, data)
            time.sleep(delay_s)

    def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None, timeout_s: float
    ) -> tuple[http.client.HTTPResponse, bytes]:
        target = self._connection
        connection = http.client.HTTPSConnection(target.host, target.port, timeout=timeout_s, context=target.context)
        try:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            answer = connection.getresponse()
            return answer, answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(f"the API server's answer broke off: {error!r}") from error
        finally:
            connection.close()

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Object:
        """Send and receive JSON; see :meth:`raw` for the errors."""
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": "firsttoken-local"}
        data = self.raw(method, path, None if body is None else json.dumps(body).encode(), headers)
        result: Object = json.loads(data)
        return result

    def resource(self, api_version: str, kind: str) -> Resource:
        """Return how a kind is served.

        Raises:
            ApiError: 404, the kind is not served (yet).
        """
        known = self._resources.get((api_version, kind))
        if known:
            return known
        root = "/api/" if "/" not in api_version else "/apis/"
        for entry in self.request("GET", root + api_version)["resources"]:
            if "/" not in entry["name"]:
                found = Resource(api_version, entry["kind"], entry["name"], entry["namespaced"])
                self._resources[(api_version, entry["kind"])] = found
        if (api_version, kind) not in self._resources:
            raise ApiError(404, "NotFound", f"{api_version} has no kind {kind}")
        return self._resources[(api_version, kind)]

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Return one object, or None when there is none; ``namespace`` is "default" unless told."""
        resource = self.resource(api_version, kind)
        try:
            return self.request("GET", resource.path(namespace or "default", name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, api_version: str, kind: str, namespace: str | None = None, selector: str = "") -> list[Object]:
        """Return the objects of a kind, in all namespaces unless told, that match a label selector."""
        path = self.resource(api_version, kind).path(namespace)
        items = self.request("GET", f"{path}?{urlencode({'labelSelector': selector})}").get("items")
        return [{"apiVersion": api_version, "kind": kind, **item} for item in items or []]

    def apply(self, obj: Object, field_manager: str = "firsttoken-local", force: bool = True) -> Object:
        """Create or change one object by server-side apply, with strict field validation.

        Raises:
            ApiError: the object is not accepted, or its kind is not served.
        """
        resource = self.resource(obj["apiVersion"], obj["kind"])
        path = resource.path(obj["metadata"].get("namespace", "default"), obj["metadata"]["name"])
        query = {"fieldManager": field_manager, "force": str(force).lower(), "fieldValidation": "Strict"}
        return self.request("PATCH", f"{path}?{urlencode(query)}", obj, "application/apply-patch+yaml")

    def delete(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> None:
        """Delete one object, its dependents in the background; nothing happens when there is none."""
        resource = self.resource(api_version, kind)
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        try:
            self.request("DELETE", resource.path(namespace or "default", name), options)
        except ApiError as error:
            if error.status != 404:
                raise

    def wait(
        self,
        api_version: str,
        kind: str,
        name: str,
        condition: Callable[[Object], object],
        *,
        namespace: str | None = None,
        timeout_s: float = 30.0,
    ) -> Object:
        """Wait until one object exists and ``condition`` holds for it, and return it.

        Raises:
            LocalError: ``timeout_s`` seconds passed.
        """

        def poll() -> Object | None:
            found = self.get(api_version, kind, name, namespace)
            return found if found is not None and condition(found) else None

        return wait_for(f"{kind} {name}", unless_busy(poll), timeout_s=timeout_s, interval_s=0.1)


def pause(status: int, retry_after: str | None) -> float | None:
    """Return after how many seconds to ask again, None when the answer is final: only 429 and 503 may say so."""
    if status == 429 or (status == 503 and retry_after is not None):
        seconds = float(retry_after) if retry_after is not None and retry_after.isdigit() else 1.0
        return max(0.1, seconds)
    return None


def unless_busy(condition: Callable[[], T]) -> Callable[[], T | None]:
    """Let a wait go on while the API server is overloaded or has a fault of its own: 429, or 500 and above."""

    def tolerant() -> T | None:
        try:
            return condition()
        except ApiError as error:
            if error.status == 429 or error.status >= 500:
                return None
            raise

    return tolerant


def _refusal(status: int, data: bytes) -> ApiError:
    try:
        body = json.loads(data)
        return ApiError(status, body.get("reason", ""), body.get("message", ""))
    except (ValueError, AttributeError):
        return ApiError(status, http.client.responses.get(status, ""), data[:500].decode(errors="replace"))
