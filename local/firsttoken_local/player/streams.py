"""Bytes from one connection to another, both ways, until both ends have said all they had to say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CHUNK = 65536


async def _one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def join(left: Streams, right: Streams) -> None:
    """Carry bytes between two connections, then close both. Whoever breaks off ends the other one, too."""
    ways = [asyncio.create_task(_one_way(left[0], right[1])), asyncio.create_task(_one_way(right[0], left[1]))]
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
        for one in done:
            with contextlib.suppress(OSError):
                one.result()
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for _, writer in (left, right):
            writer.close()


def forwarder(connect: Callable[[], Awaitable[Streams]]) -> Serve:
    """A server's callback that joins each connection with a new one; it is closed when there is none."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other = await connect()
        except OSError:
            writer.close()
            return
        await join((reader, writer), other)

    return serve
