"""/healthz and /readyz of the operator's pod, for the leader and for a standby."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def health_server(address: str, port: int, faults: Callable[[], list[str]]) -> AsyncIterator[None]:
    """Serve while the block runs: 200 while `faults()` is empty, else 503 with one fault a line. Port 0: no server."""
    if not port:
        yield
        return

    async def answer(_request: web.Request) -> web.Response:
        found = faults()
        return web.Response(status=503 if found else 200, text="\n".join(found or ["ok"]) + "\n")

    app = web.Application()
    app.add_routes([web.get(path, answer) for path in ("/healthz", "/readyz")])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, port).start()
        yield
    finally:
        await runner.cleanup()
