"""The API server as the operator uses it: get, list, server-side apply, delete. Objects are plain dicts."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.dynamic import DynamicClient, Resource
from kubernetes.aio.dynamic.exceptions import DynamicApiError

from firsttoken.manifests.names import FIELD_MANAGER
from firsttoken_operator.kinds import Kind, kind_of

REQUEST_TIMEOUT_SECONDS = 30
_PAGE = 500


class ClusterError(Exception):
    """The API server's answer to a request that failed: HTTP status, reason, message, and when to try again."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message, self.retry_after = status, reason, message, retry_after

    @property
    def is_refusal(self) -> bool:
        """Whether trying the same again would be refused again: a bad object, a missing permission, a webhook that is
        down or says no. The status tells it; a slow retry goes on.
        """
        webhook = self.status >= 500 and "failed calling webhook" in self.message
        return webhook or (self.status in (400, 403, 404, 405, 413, 415, 422) and not self.is_terminating)

    @property
    def is_terminating(self) -> bool:
        """The namespace is going away: nothing can be created, and nothing needs to be."""
        return self.status == 403 and "being terminated" in self.message


class Cluster:
    """A connection. Every call raises ClusterError when the API server says no, OSError or TimeoutError without it."""

    def __init__(self, api: Any) -> None:
        self._dynamic = DynamicClient(api)  # not awaited: no discovery, the kinds are known
        self._api = api

    async def get(self, kind: Kind, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        """One object, None if there is none."""
        try:
            return await self._request("get", kind, name=name, namespace=namespace)
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    async def list(
        self, kind: Kind, namespace: str | None, selector: str = "", fields: str = ""
    ) -> list[dict[str, Any]] | None:
        """All objects that match label and field selectors, in pages; None if the cluster doesn't know the kind."""
        items: list[dict[str, Any]] = []
        token = None
        while True:
            query: dict[str, Any] = {
                "label_selector": selector or None,
                "field_selector": fields or None,
                "limit": _PAGE,
                "_continue": token,
            }
            try:
                page = await self._request("get", kind, namespace=namespace, **query)
            except ClusterError as error:
                if error.status == 404:
                    return None
                raise
            items += [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page["items"]]
            token = page["metadata"].get("continue")
            if not token:
                return items

    async def apply(self, obj: Mapping[str, Any], subresource: str = "") -> dict[str, Any]:
        """Server-side apply with our field manager. Forced: every field in `obj` is ours."""
        meta = obj["metadata"]
        return await self._request(
            "patch",
            kind_of(obj["apiVersion"], obj["kind"]),
            name=meta["name"],
            namespace=meta.get("namespace"),
            subresource=subresource,
            body=dict(obj),
            content_type="application/apply-patch+yaml",
            field_manager=FIELD_MANAGER,
            force_conflicts=True,
            query_params=[("fieldValidation", "Strict")],
        )

    async def create(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Create; ClusterError 409 if the name is taken."""
        kind = kind_of(obj["apiVersion"], obj["kind"])
        return await self._request(
            "post", kind, namespace=obj["metadata"].get("namespace"), body=dict(obj), field_manager=FIELD_MANAGER
        )

    async def replace(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Replace; ClusterError 409 if `metadata.resourceVersion` is not the newest."""
        meta, kind = obj["metadata"], kind_of(obj["apiVersion"], obj["kind"])
        return await self._request(
            "put", kind, name=meta["name"], namespace=meta.get("namespace"), body=dict(obj), field_manager=FIELD_MANAGER
        )

    async def merge(
        self, kind: Kind, name: str, namespace: str, patch: Mapping[str, Any], subresource: str = ""
    ) -> dict[str, Any]:
        """A merge patch."""
        return await self._request(
            "patch",
            kind,
            name=name,
            namespace=namespace,
            subresource=subresource,
            body=dict(patch),
            content_type="application/merge-patch+json",
            field_manager=FIELD_MANAGER,
        )

    async def delete(self, obj: Mapping[str, Any]) -> None:
        """Delete exactly this object (by uid), dependants in the background; gone or replaced already is fine."""
        meta = obj["metadata"]
        body = {"preconditions": {"uid": meta["uid"]}, "propagationPolicy": "Background"}
        try:
            await self._request(
                "delete",
                kind_of(obj["apiVersion"], obj["kind"]),
                name=meta["name"],
                namespace=meta.get("namespace"),
                body=body,
            )
        except ClusterError as error:
            if error.status not in (404, 409):
                raise

    async def _request(
        self,
        method: str,
        kind: Kind,
        name: str | None = None,
        namespace: str | None = None,
        subresource: str = "",
        **options: Any,
    ) -> dict[str, Any]:
        path = _path(kind, name, namespace, subresource)
        timeout = {"_request_timeout": REQUEST_TIMEOUT_SECONDS}
        try:
            response = await self._dynamic.request(method, path, serialize=False, **timeout, **options)
            body: dict[str, Any] = await response.json()
        except (DynamicApiError, ApiException) as error:
            raise _cluster_error(error) from None
        return body


def _path(kind: Kind, name: str | None, namespace: str | None, subresource: str) -> str:
    resource = Resource(
        prefix="apis" if kind.group else "api",
        group=kind.group,
        api_version=kind.version,
        kind=kind.kind,
        namespaced=kind.namespaced,
        name=kind.plural,
    )
    path = str(resource.path(name=name, namespace=namespace))
    return f"{path}/{subresource}" if subresource else path


def _cluster_error(error: DynamicApiError | ApiException) -> ClusterError:
    try:
        body = json.loads(error.body)
        reason, message = body.get("reason", error.reason), body.get("message", "")
    except (AttributeError, TypeError, ValueError):
        reason, message = error.reason, str(error.body or "")[:500]
    retry_after = (error.headers or {}).get("Retry-After")
    seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
    return ClusterError(int(error.status or 0), str(reason), str(message), seconds)


@asynccontextmanager
async def connect(kubeconfig: str | None = None, context: str | None = None) -> AsyncIterator[Cluster]:
    """A connection by `kubeconfig` (or $KUBECONFIG, ~/.kube/config), or by the pod's service account."""
    configuration = client.Configuration()
    try:
        await config.load_kube_config(kubeconfig, context=context, client_configuration=configuration)
    except config.ConfigException:
        if kubeconfig is not None or context is not None:
            raise
        config.load_incluster_config(client_configuration=configuration)
    async with client.ApiClient(configuration) as api:
        yield Cluster(api)
