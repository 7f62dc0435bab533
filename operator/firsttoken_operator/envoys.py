"""Asking a service's Envoys, pod by pod, which endpoints they know (reconcile/gateways.py says why)."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import aiohttp

from firsttoken.manifests.names import GATEWAY_METRICS_PORT, GATEWAY_ROLE, ROLE_LABEL
from firsttoken.reconcile.gateways import STATS_PATH, STATS_QUERY, GatewayView, read_view
from firsttoken.reconcile.objects import condition, label

log = logging.getLogger("firsttoken")

_PATIENCE = aiohttp.ClientTimeout(total=2.0)  # seconds; a pod of this cluster answers in milliseconds


async def ask_envoys(pods: Iterable[dict[str, Any]]) -> tuple[GatewayView, ...]:
    """The views of those Envoys among `pods` that are ready and answer. Never raises."""
    asked = [pod for pod in pods if label(pod, ROLE_LABEL) == GATEWAY_ROLE and _ready(pod)]
    if not asked:
        return ()
    async with aiohttp.ClientSession(timeout=_PATIENCE) as session:
        answers = await asyncio.gather(*(_ask(session, pod) for pod in asked))
    return tuple(answer for answer in answers if answer is not None)


async def _ask(session: aiohttp.ClientSession, pod: dict[str, Any]) -> GatewayView | None:
    name, address = pod["metadata"]["name"], pod["status"]["podIP"]
    host = f"[{address}]" if ":" in address else address
    try:
        async with session.get(f"http://{host}:{GATEWAY_METRICS_PORT}{STATS_PATH}", params=STATS_QUERY) as answer:
            answer.raise_for_status()
            return read_view(name, await answer.text())
    except (aiohttp.ClientError, OSError, TimeoutError, UnicodeDecodeError) as error:
        namespace = pod["metadata"]["namespace"]
        log.warning("%s/%s: Envoy can't be asked (%r); its routes count as arrived", namespace, name, error)
        return None


def _ready(pod: dict[str, Any]) -> bool:
    ready = condition(pod, "Ready")
    there = not pod["metadata"].get("deletionTimestamp") and bool((pod.get("status") or {}).get("podIP"))
    return there and ready is not None and ready["status"] == "True"
