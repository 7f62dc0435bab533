"""An engine server on loopback, and clients of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from firsttoken.simulation.settings import EngineSettings
from firsttoken.simulation.telemetry import Telemetry
from firsttoken_local.engine_server.driver import Driver, epoch_clock
from firsttoken_local.engine_server.questions import Limits
from firsttoken_local.engine_server.server import EngineServer
from simulation.cases import TABLE

LIMITS = Limits("tiny", 1024, priorities=False)
SETTINGS = EngineSettings(token_budget=512, max_num_seqs=32, kv_blocks=400)
Json = dict[str, Any]


@dataclass
class Running:
    """A server that runs, and a client."""

    base: str
    driver: Driver
    client: aiohttp.ClientSession
    said: list[str]

    async def post(self, path: str, body: Any, **more: Any) -> tuple[int, Json]:
        async with self.client.post(self.base + path, json=body, **more) as answer:
            assert answer.headers["x-firsttoken-engine"] == "simulated"
            return answer.status, await answer.json()

    async def events(self, path: str, body: Json) -> list[bytes]:
        """Every event of a stream, as sent."""
        async with self.client.post(self.base + path, json={**body, "stream": True}) as answer:
            assert answer.status == 200
            assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert answer.headers["x-firsttoken-engine"] == "simulated"
            whole = await answer.read()
        assert whole.endswith(b"\n\n")
        return whole.split(b"\n\n")[:-1]

    async def samples(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """What /metrics exports, read by Prometheus' own parser."""
        async with self.client.get(self.base + "/metrics") as answer:
            text = await answer.text()
        found = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
        return found

    async def sample(self, name: str, **labels: str) -> float | None:
        return (await self.samples()).get((name, tuple(sorted(labels.items()))))

    async def driver_is_idle(self) -> bool:
        """No request is known, and no KV held."""
        engine = self.driver.engine
        return not self.driver._flights and not engine.running and not engine.waiting and not engine.pool.used

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(30):
            while not await condition():  # noqa: ASYNC110 - what is awaited is on the other side of HTTP
                await asyncio.sleep(0.02)


@asynccontextmanager
async def served(
    settings: EngineSettings = SETTINGS, limits: Limits = LIMITS, live: Path | None = None
) -> AsyncIterator[Running]:
    said: list[str] = []
    telemetry = Telemetry((64, 256, 512), backend="FLASH_ATTN")
    driver = Driver(settings, TABLE, telemetry, now=epoch_clock(), live=live, pod_uid="uid-1", say=said.append)
    async with EngineServer(driver, limits).serving("127.0.0.1", 0) as port, aiohttp.ClientSession() as client:
        yield Running(f"http://127.0.0.1:{port}", driver, client, said)


def chat(text: str, **more: Any) -> Json:
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], **more}


def tokens(count: int, first: int = 0, **more: Any) -> Json:
    """A prompt of token ids."""
    return {"model": "tiny", "prompt": list(range(first, first + count)), **more}


def data(event: bytes) -> Json:
    assert event.startswith(b"data: ")
    found: Json = json.loads(event.removeprefix(b"data: "))
    return found
