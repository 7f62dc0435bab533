"""Clients of an OpenAI-compatible engine that time each token of streamed completions."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from firsttoken_local.errors import LocalError

CHUNK_LINE = b"data: "


@dataclass(frozen=True)
class Ask:
    """One request. `at`: seconds after the start of the run; a byte of the prompt is a token."""

    at: float
    prompt: str
    tokens: int


@dataclass(frozen=True)
class Answer:
    """What a client timed: seconds after the run's start, when it sent and when each token came."""

    sent: float
    came: tuple[float, ...]

    @property
    def ttft(self) -> float:
        """Seconds to the first token."""
        return self.came[0] - self.sent

    @property
    def tpot(self) -> float:
        """Mean seconds between tokens; 0 for a single one."""
        return (self.came[-1] - self.came[0]) / (len(self.came) - 1) if len(self.came) > 1 else 0.0


async def play(port: int, model: str, asks: Sequence[Ask]) -> list[Answer]:
    """All of them at their times, in open loop.

    Raises:
        LocalError: an answer was refused, or had another number of tokens than was asked for.
    """
    start = time.perf_counter()

    async def one(given: Ask) -> Answer:
        await asyncio.sleep(max(0.0, given.at - (time.perf_counter() - start)))
        return await _ask(port, model, given, start)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(given)) for given in asks]
    return [task.result() for task in tasks]


async def one_by_one(port: int, model: str, asks: Sequence[Ask]) -> list[Answer]:
    """Each after the end of the one before, whatever its time says. Raises LocalError, as `play` does."""
    start = time.perf_counter()
    return [await _ask(port, model, given, start) for given in asks]


async def _ask(port: int, model: str, given: Ask, start: float) -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        body = {
            "model": model, "prompt": given.prompt, "max_tokens": given.tokens, "min_tokens": given.tokens,
            "ignore_eos": True, "temperature": 0.0, "stream": True, "return_token_ids": True,
        }  # fmt: skip
        data = json.dumps(body).encode()
        lines = ["POST /v1/completions HTTP/1.1", "Host: engine", "Content-Type: application/json"]
        head = "\r\n".join([*lines, f"Content-Length: {len(data)}", "Connection: close", "", ""])
        sent = time.perf_counter() - start
        writer.write(head.encode() + data)
        await writer.drain()
        return Answer(sent, tuple(await _times(reader, given, start)))
    finally:
        writer.close()


async def _times(reader: asyncio.StreamReader, given: Ask, start: float) -> list[float]:
    """When each token came; several in one event came together."""
    status = await reader.readline()
    if b" 200 " not in status:
        raise LocalError(f"the engine answered {status.decode().strip()}", (await reader.read(4000)).decode())
    times: list[float] = []
    async for line in reader:
        if not line.startswith(CHUNK_LINE) or line.startswith(b"data: [DONE]"):
            continue
        now = time.perf_counter() - start
        for choice in json.loads(line.removeprefix(CHUNK_LINE))["choices"]:
            times += [now] * len(choice.get("token_ids") or ())
    if len(times) != given.tokens:
        raise LocalError(f"an answer had {len(times)} tokens instead of {given.tokens}")
    return times
