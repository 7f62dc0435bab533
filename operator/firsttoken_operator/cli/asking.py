"""Asking a cluster: connect as kubectl does, fetch what `status` needs, and say plainly why that fails."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from firsttoken_operator.cli.errors import BadInput, Unreachable
from firsttoken_operator.cli.status_report import Report, report

try:
    from aiohttp import ClientError
    from kubernetes.aio.config import ConfigException
    from kubernetes.aio.config.kube_config import list_kube_config_contexts

    from firsttoken.manifests.names import SERVICE_LABEL
    from firsttoken_operator.cluster import Cluster, ClusterError, connect
    from firsttoken_operator.kinds import EVENT, REVISION, SERVICE, Kind
except ImportError as error:  # without the extra `operator`, only what works on files is installed
    raise Unreachable(f"asking a cluster needs more packages ({error}): run `make install` in a clone") from error

T = TypeVar("T")

# The library warns on stderr of what is said here in its own words.
logging.getLogger("kubernetes").addHandler(logging.NullHandler())
logging.getLogger("kubernetes").propagate = False

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class Access:
    """Which cluster, as the caller named it."""

    kubeconfig: str | None = None
    context: str | None = None


def default_namespace(access: Access) -> str:
    """The namespace of the kubeconfig's context, or the pod's own, or `default`, as kubectl has it."""
    try:
        contexts, active = list_kube_config_contexts(access.kubeconfig)
    except ConfigException:
        return _POD_NAMESPACE.read_text(encoding="utf-8").strip() if _POD_NAMESPACE.exists() else "default"
    except Exception as error:  # the library parses without checking: anything can come out of a broken file
        raise BadInput(f"the kubeconfig can't be used: {_short(error)}") from error
    chosen = active if access.context is None else next((c for c in contexts if c["name"] == access.context), None)
    return str(((chosen or {}).get("context") or {}).get("namespace") or "default")


@asynccontextmanager
async def connected(access: Access) -> AsyncIterator[Cluster]:
    """A connection. Raises BadInput for an unusable kubeconfig, Unreachable if there is none."""
    connection = connect(access.kubeconfig, access.context)
    try:
        cluster = await connection.__aenter__()
    except ConfigException as error:
        if access.kubeconfig is not None or access.context is not None:
            raise BadInput(f"the kubeconfig can't be used: {_short(error)}") from error
        raise Unreachable("no cluster is configured: set KUBECONFIG, or give --kubeconfig FILE") from error
    except Exception as error:
        raise BadInput(f"the kubeconfig can't be used: {_short(error)}") from error
    try:
        yield cluster
    finally:
        await connection.__aexit__(None, None, None)


async def one(cluster: Cluster, namespace: str, name: str) -> Report | None:
    """The report on one service; None if there is none of that name."""
    service = await _asked(cluster.get(SERVICE, name, namespace))
    if service is None:
        await _known(cluster, namespace)
        return None
    notes: list[str] = []
    selector = f"{SERVICE_LABEL}={name}"
    revisions, events = await asyncio.gather(
        _or_note(lambda: cluster.list(REVISION, namespace, selector), "revisions", notes),
        _or_note(lambda: cluster.list(EVENT, namespace, fields=f"involvedObject.name={name}"), "events", notes),
    )
    return report(service, revisions, events, notes)


async def every(cluster: Cluster, namespace: str | None) -> list[Report]:
    """Reports on all services of a namespace (None: of all), without their revisions and events."""
    services = await _asked(cluster.list(SERVICE, namespace))
    if services is None:
        raise _unknown_kind()
    return sorted((report(s) for s in services), key=lambda r: (r.namespace, r.name))


async def namespace_exists(cluster: Cluster, namespace: str) -> bool:
    """Whether a namespace is there; one that we may not look at counts as there."""
    try:
        return await cluster.get(NAMESPACE, namespace) is not None
    except (ClusterError, TimeoutError, OSError, ClientError):
        return True


async def _known(cluster: Cluster, namespace: str) -> None:
    """A 404 for one object also means that the kind doesn't exist: tell the two apart."""
    if await _asked(cluster.list(SERVICE, namespace)) is None:
        raise _unknown_kind()


def _unknown_kind() -> Unreachable:
    return Unreachable(
        "this cluster doesn't know InferenceServices: install Firsttoken's CRDs, or choose another context"
    )


async def _or_note(
    ask: Callable[[], Awaitable[Sequence[Mapping[str, Any]] | None]], what: str, notes: list[str]
) -> Sequence[Mapping[str, Any]]:
    """What is nice to have; without permission the report goes on and says what is missing."""
    try:
        return await _asked(ask()) or ()
    except Unreachable as error:
        notes.append(f"{what} can't be shown: {error}")
        return ()


async def _asked(answer: Awaitable[T]) -> T:
    """The answer. Raises Unreachable with the remedy for whatever the connection or the API server objects to."""
    try:
        return await answer
    except ClusterError as error:
        raise Unreachable(_refused(error)) from error
    except TimeoutError as error:
        raise Unreachable("the API server does not answer in time: is the cluster up, is a VPN needed?") from error
    except (OSError, ClientError) as error:
        raise Unreachable(f"the API server can't be reached: {_short(error)}; is the cluster up?") from error


def _refused(error: ClusterError) -> str:
    if error.status == 401:
        return "the API server doesn't know you (401): log in again, or choose another --context"
    if error.status == 403:
        return f"you may not look at this (403): {error.message}; ask for the right to read it"
    return f"the API server answered {_short(error)}"


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
