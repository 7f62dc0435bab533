"""The machine's side of the two sockets: the API server for the namespace, and the namespace for the machine.

``python -m firsttoken_local.player.bridge API_PORT PORT``, in the state directory: who connects to the API socket
reaches 127.0.0.1:API_PORT; who connects to 127.0.0.1:PORT reaches the namespace's proxy.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from firsttoken_local.player import API_SOCKET, OUT_SOCKET
from firsttoken_local.player.streams import forwarder


async def main(api_port: int, port: int) -> None:
    """Serve until the process is ended."""
    into = forwarder(lambda: asyncio.open_connection("127.0.0.1", api_port))
    out = forwarder(lambda: asyncio.open_unix_connection(OUT_SOCKET))
    servers = [await asyncio.start_unix_server(into, API_SOCKET), await asyncio.start_server(out, "127.0.0.1", port)]
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    Path(API_SOCKET).unlink(missing_ok=True)
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
