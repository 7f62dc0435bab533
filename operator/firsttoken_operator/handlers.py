"""kopf's part: watch, and wake the queue. Nothing is decided here, and kopf writes nothing to any object.

Only `on.event` handlers: they need no finalizers, no progress annotations and no copy of the spec (K4, K10).
"""

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import kopf

from firsttoken.manifests.images import Images
from firsttoken.manifests.names import SERVICE_LABEL
from firsttoken_operator import metrics
from firsttoken_operator.cluster import Cluster, ClusterError, connect
from firsttoken_operator.gather import Key
from firsttoken_operator.hub import Hub
from firsttoken_operator.kinds import CHILDREN, PROFILE, REVISION, SERVICE
from firsttoken_operator.measuring import Fleet
from firsttoken_operator.prometheus import Prometheus
from firsttoken_operator.reconciler import Reconciler
from firsttoken_operator.workqueue import Workqueue

log = logging.getLogger("firsttoken")


SWEEP_SECONDS = 300.0
FIRST_SECONDS = 15.0  # that the first answer of Prometheus is waited for


@dataclass
class State:
    """What the handlers of one operator process share."""

    images: Images
    ask_envoys: bool
    pod_proxy: str | None = None  # by which pods are reached
    kubeconfig: str | None = None
    namespaces: list[str] = field(default_factory=list)  # none: all
    workers: int = 8
    prometheus: Prometheus | None = None  # None: nothing is measured
    interval: float = 300.0  # of the questions to it, seconds
    queue: Workqueue[Key] = field(default_factory=Workqueue)
    profiles_of: dict[Key, frozenset[str]] = field(default_factory=dict)  # known services -> profiles they name
    exits: AsyncExitStack = field(default_factory=AsyncExitStack)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def faults(self) -> list[str]:
        """What makes this process worth a restart; none in a standby."""
        dead = sum(task.done() for task in self.tasks)
        return [f"{dead} of {len(self.tasks)} workers have ended"] if dead else []


def registry(state: State) -> kopf.OperatorRegistry:
    """All handlers, in a registry of their own."""
    handlers = kopf.OperatorRegistry()
    # A start that fails ends the process: whoever runs it restarts it, and the reason is on top of the log.
    kopf.on.startup(registry=handlers, errors=kopf.ErrorsMode.PERMANENT)(_startup(state))
    kopf.on.login(registry=handlers)(_login)
    kopf.on.cleanup(registry=handlers)(_cleanup(state))
    kopf.on.event(SERVICE.group, SERVICE.version, SERVICE.plural, registry=handlers)(_service_seen(state))
    kopf.on.event(PROFILE.group, PROFILE.version, PROFILE.plural, registry=handlers)(_profile_seen(state))
    for kind in (REVISION, *CHILDREN):
        kopf.on.event(kind.group, kind.version, kind.plural, registry=handlers)(_child_seen(state))
    return handlers


def _startup(state: State) -> Any:
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings, state.namespaces)
        cluster = await state.exits.enter_async_context(connect(state.kubeconfig))
        metrics.QUEUE_LENGTH.set_function(lambda: len(state.queue))
        metrics.SERVICES.set_function(lambda: len(state.profiles_of))
        fleet = await _measuring(state)
        reconciler = Reconciler(
            cluster,
            state.queue,
            state.images,
            ask_envoys=state.ask_envoys,
            pod_proxy=state.pod_proxy,
            hub=Hub(),
            fleet=fleet,
        )
        state.tasks += [asyncio.create_task(state.queue.work(reconciler.handle)) for _ in range(state.workers)]
        state.tasks.append(asyncio.create_task(_sweep(state, cluster)))

    return start


async def _measuring(state: State) -> Fleet | None:
    """The measurements, asked for once before anything is decided: a restart must not look like an outage."""
    if state.prometheus is None:
        return None

    def wake(keys: Iterable[Key] | None) -> None:
        for key in list(state.profiles_of) if keys is None else keys:
            if key in state.profiles_of:
                state.queue.add(key)

    fleet = Fleet(state.prometheus, wake)
    await fleet.round(FIRST_SECONDS)
    state.tasks.append(asyncio.create_task(fleet.run(state.interval)))
    return fleet


async def _sweep(state: State, cluster: Cluster) -> None:
    """Find what no watch told of: after an etcd restore versions run backwards, and watches are deaf for a while."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        namespaces: list[str | None] = [*state.namespaces] or [None]
        for namespace in namespaces:
            try:
                for service in await cluster.list(SERVICE, namespace) or ():
                    state.queue.add((service["metadata"]["namespace"], service["metadata"]["name"]))
            except (ClusterError, OSError, TimeoutError) as error:
                log.warning("looking for services nobody told of failed: %s", error)


def _login(**kwargs: Any) -> Any:
    """A pod's service account, else the kubeconfig; a pod has none, and kopf would warn of that each time."""
    found = kopf.login_with_service_account(**kwargs)
    there = os.environ.get("KUBECONFIG") or Path("~/.kube/config").expanduser().exists()
    return found or (kopf.login_with_kubeconfig(**kwargs) if there else None)


class Backoffs:
    """Seconds between tries of a request that fails, without an end."""

    def __iter__(self) -> Iterator[float]:
        return chain((1, 1, 2, 3, 5, 8), repeat(13))


def configure(settings: kopf.OperatorSettings, namespaces: Sequence[str] = ()) -> None:
    """kopf's settings: time-outs on silent streams (K2), chunked lists and label selectors (K3), no writes.

    With several namespaces, one that may not be watched (its Role went with it) must not end the watches of the others:
    it is tried again for ever, and the log says so. With one, or all, a watch that is refused ends the process.
    """
    if len(namespaces) > 1:
        settings.networking.error_backoffs = Backoffs()
    settings.posting.enabled = False
    settings.scanning.disabled = False
    settings.watching.inactivity_timeout = 70
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = 500
    settings.queueing.worker_limit = 64
    settings.networking.request_timeout = 60
    for kind in (REVISION, *CHILDREN):
        settings.watching.label_selectors[kind.group, kind.version, kind.plural] = SERVICE_LABEL


def _cleanup(state: State) -> Any:
    async def stop(**_: Any) -> None:
        for task in state.tasks:
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        await state.exits.aclose()

    return stop


def _service_seen(state: State) -> Any:
    def seen(type: str | None, body: Mapping[str, Any], **_: Any) -> None:  # noqa: A002 - kopf's name
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        if type == "DELETED":
            state.profiles_of.pop(key, None)
        else:
            accelerator = (body.get("spec") or {}).get("accelerator") or {}
            roles = [accelerator, accelerator.get("prefill") or {}, accelerator.get("decode") or {}]
            state.profiles_of[key] = frozenset(r["type"] for r in roles if "type" in r)
        state.queue.add(key)

    return seen


def _profile_seen(state: State) -> Any:
    def seen(body: Mapping[str, Any], **_: Any) -> None:
        name = body["metadata"]["name"]
        for key, profiles in state.profiles_of.items():
            if name in profiles:
                state.queue.add(key)

    return seen


def _child_seen(state: State) -> Any:
    def seen(body: Mapping[str, Any], **_: Any) -> None:
        meta = body["metadata"]
        service = (meta.get("labels") or {}).get(SERVICE_LABEL)
        if service:
            state.queue.add((meta["namespace"], service))

    return seen
