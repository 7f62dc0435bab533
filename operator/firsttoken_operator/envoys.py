"""Asking a service's Envoys, pod by pod, what they have taken up (reconcile/envoy_views.py says why)."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

import aiohttp

from firsttoken.manifests.names import GATEWAY_METRICS_PORT
from firsttoken.reconcile.envoy_views import STATS_PATH, STATS_QUERY, Envoys, EnvoyView, askable, read_view
from firsttoken.reconcile.objects import Object
from firsttoken_operator import metrics

log = logging.getLogger("firsttoken")

Key = tuple[str, str]  # namespace, name of the service

PATIENCE_SECONDS = 1.0  # a pod of this cluster answers in milliseconds
UNREACHED_SECONDS = 60.0  # a service none of whose Envoys answered is left alone for so long
_MOST_BYTES = 2**20  # a line per revision and cluster; who sends more is not our Envoy


class EnvoyAsker:
    """Asks Envoys. Remembers which services can't be reached, so that these cost no pass its time."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        proxy: str | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """`proxy`: URL of the HTTP proxy by which pods are reached; None: directly. `patience`: seconds an Envoy has
        for its whole answer.
        """
        self._clock, self._proxy, self._patience = clock, proxy, patience
        self._unreached: dict[Key, float] = {}  # until when
        self._silent: dict[Key, tuple[str, ...]] = {}  # as last logged

    def may_ask(self, key: Key) -> bool:
        """Whether it is worth trying: an Envoy answered last time, or that was long ago."""
        if self._clock() >= self._unreached.get(key, 0.0):
            return True
        metrics.ENVOY_ASKS.labels("skipped").inc()
        return False

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._unreached.pop(key, None)
        self._silent.pop(key, None)

    async def ask(self, key: Key, pods: Iterable[Object]) -> Envoys:
        """What those of `pods` say that are ready Envoys of the service. Never raises."""
        asked = askable(pods, key[1])
        if not asked:
            return Envoys()
        timeout = aiohttp.ClientTimeout(total=self._patience)
        headers = {"Accept-Encoding": "identity"}
        async with aiohttp.ClientSession(timeout=timeout, headers=headers, auto_decompress=False) as session:
            answers = await asyncio.gather(*(_ask(session, pod, self._proxy) for pod in asked))
        views = tuple(answer for answer in answers if isinstance(answer, EnvoyView))
        silent = {pod["metadata"]["name"]: why for pod, why in zip(asked, answers, strict=True) if isinstance(why, str)}
        self._remember(key, silent, any_answered=bool(views))
        return Envoys(views, tuple(sorted(silent)))

    def _remember(self, key: Key, silent: dict[str, str], *, any_answered: bool) -> None:
        if any_answered:
            self._unreached.pop(key, None)
        else:
            self._unreached[key] = self._clock() + UNREACHED_SECONDS
        names = tuple(sorted(silent))
        if names == self._silent.get(key, ()):
            return
        if names:
            self._silent[key] = names
            why = "; ".join(f"{name}: {silent[name]}" for name in names)
            what = "some Envoys give no answer" if any_answered else "no Envoy can be asked, what was written counts"
            log.warning("%s/%s: %s (%s)", *key, what, why)
        else:
            del self._silent[key]
            log.info("%s/%s: every Envoy answers", *key)


async def _ask(session: aiohttp.ClientSession, pod: Object, proxy: str | None) -> EnvoyView | str:
    """The view, or why there is none."""
    try:
        address = pod["status"]["podIP"]
        host = f"[{address}]" if ":" in address else address
        url = f"http://{host}:{GATEWAY_METRICS_PORT}{STATS_PATH}"
        async with session.get(url, params=STATS_QUERY, allow_redirects=False, proxy=proxy) as answer:
            if answer.status != 200:
                raise ValueError(f"status {answer.status}")
            view = read_view(pod["metadata"]["name"], await _text(answer))
    except Exception as error:  # whatever a stranger answers, it must not end the pass
        metrics.ENVOY_ASKS.labels("failed").inc()
        return repr(error)
    metrics.ENVOY_ASKS.labels("answered").inc()
    return view


async def _text(answer: aiohttp.ClientResponse) -> str:
    body = b""
    async for part in answer.content.iter_any():
        body += part
        if len(body) > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES} bytes")
    return body.decode()
