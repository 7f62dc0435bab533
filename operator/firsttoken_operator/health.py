"""/healthz and /readyz of the operator's pod, for the leader and for a standby."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def health_server(
    address: str, port: int, faults: Callable[[], list[str]], unready: Callable[[], list[str]] = list
) -> AsyncIterator[None]:
    """Serve while the block runs: 200, else 503 with one fault a line. Port 0: no server.

    `faults` are what a restart may mend; /readyz says in addition what keeps this replica from working (`unready`).
    """
    if not port:
        yield
        return

    def answer(found: list[str]) -> web.Response:
        return web.Response(status=503 if found else 200, text="\n".join(found or ["ok"]) + "\n")

    async def health(_request: web.Request) -> web.Response:
        return answer(faults())

    async def readiness(_request: web.Request) -> web.Response:
        return answer([*faults(), *unready()])

    app = web.Application()
    app.add_routes([web.get("/healthz", health), web.get("/readyz", readiness)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, port).start()
        yield
    finally:
        await runner.cleanup()
