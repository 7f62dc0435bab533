"""The HTTP server of one simulated engine, on the address and port of its pod."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError
from prometheus_client import CONTENT_TYPE_LATEST

from firsttoken.simulation.errors import SimulationInputError
from firsttoken_local.engine_server.answers import Answer
from firsttoken_local.engine_server.driver import Driver, Flight
from firsttoken_local.engine_server.exposition import Exposition
from firsttoken_local.engine_server.prompts import PrefixWatch, block_hashes
from firsttoken_local.engine_server.questions import Limits, Question, Refusal, arrival_stamp, bad, read_question

OWNER = "firsttoken-simulated-engine"
MARK = {"x-firsttoken-engine": "simulated"}
STREAM_HEADERS = {**MARK, "content-type": "text/event-stream; charset=utf-8"}
MOST_BYTES = 64 * 2**20
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Visit:
    """One request and its times, seconds since 1970: the gateway's stamp, here, first and last chunk written."""

    question: Question
    stamp: float
    received: float
    written: float = 0.0
    last: float = 0.0
    outcome: str = "client_gone"  # unless it comes to its end


class EngineServer:
    """Serves one engine; use :meth:`serving`."""

    def __init__(self, driver: Driver, limits: Limits) -> None:
        self._driver, self._limits = driver, limits
        self._block = driver.engine.settings.block_tokens
        self._prefixes = PrefixWatch(self._block)
        self._exposition = Exposition(driver.telemetry, limits.model, driver.counts)

    @contextlib.asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[int]:
        """The server and its engine run inside the block; yields the port, chosen by the system where 0 was given."""
        app = web.Application(client_max_size=MOST_BYTES, middlewares=[_say_what_it_is])
        app.add_routes(
            [
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._chat),
                *(web.get(path, self._health) for path in ("/health", "/ping")),
                web.get("/v1/models", self._models),
                web.get("/metrics", self._metrics),
            ]
        )
        runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, keepalive_timeout=75.0, shutdown_timeout=0.0
        )
        await runner.setup()
        async with self._driver.running():
            try:
                site = web.TCPSite(runner, host, port)
                await site.start()
                yield int(runner.addresses[0][1])
            finally:
                await runner.cleanup()

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=200 if self._driver.works else 503)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, chat=False)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._serve(request, chat=True)

    async def _models(self, _: web.Request) -> web.StreamResponse:
        limits = self._limits
        model = {"id": limits.model, "object": "model", "created": 0, "owned_by": OWNER, "root": limits.model}
        return web.json_response({"object": "list", "data": [{**model, "max_model_len": limits.max_model_length}]})

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        return web.Response(body=self._exposition.page(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def _serve(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        received = self._driver.now()
        stamp = arrival_stamp(request.headers, received)
        if not self._driver.works:
            raise Refusal(500, "InternalServerError", "the simulated engine has stopped: its log says why")
        body = await _json(request)
        question = read_question(body, self._limits, chat=chat)
        visit = Visit(question, stamp, received)
        self._driver.telemetry.in_use(len(question.pieces), stream=question.stream)
        hashes = block_hashes(question.pieces, self._block)
        try:
            flight = self._driver.submit(
                len(question.pieces), question.output, priority=question.priority, hashes=hashes
            )
        except SimulationInputError as error:
            raise bad(f"the KV cache is too small for this request: {error}") from error
        self._watch_prefix(question)
        try:
            return await self._answer(request, visit, flight)
        except ConnectionError:
            return web.Response()  # nobody reads it
        except Exception:
            visit.outcome = "error"
            raise
        finally:
            self._driver.leave(flight)
            self._book_end(visit, flight)

    async def _answer(self, request: web.Request, visit: Visit, flight: Flight) -> web.StreamResponse:
        question, chat = visit.question, visit.question.chat
        own = request.headers.get("x-request-id") or uuid.uuid4().hex
        answer = Answer(f"{'chatcmpl' if chat else 'cmpl'}-{own}", int(visit.received), self._limits.model, question)
        response: web.StreamResponse | None = None
        async for token in flight.tokens():
            if token.number == 1:
                answer = Answer(answer.id, answer.created, answer.model, question, flight.served.cached)
                if question.stream:
                    response = web.StreamResponse(headers=STREAM_HEADERS)
                    await response.prepare(request)
            if response is not None:
                await response.write(answer.chunks(token.number))
                visit.last = self._driver.now()
                if token.number == 1:
                    visit.written = visit.last
                    self._book_first(visit, flight)
        if response is None:  # its first body chunk is the whole of it
            visit.last = visit.written = self._driver.now()
            self._book_first(visit, flight)
            response = web.json_response(answer.whole())
        else:
            await response.write_eof()
        visit.outcome = "ok"
        return response

    def _watch_prefix(self, question: Question) -> None:
        position = self._prefixes.look(question.pieces)
        if position is not None:
            key = ("firsttoken_prefix_instability_total", (position,))
            self._driver.telemetry.values[key] = self._driver.telemetry.values.get(key, 0) + 1

    def _book_first(self, visit: Visit, flight: Flight) -> None:
        """The first token is out. What happens inside the engine is simulated; gateway and delivery really took it."""
        served = flight.served
        stages = {
            "gateway": visit.received - visit.stamp,
            "input": served.ready - visit.received,
            "queue": served.queued - served.ready,
            "prefill": served.first - served.queued,
        }
        prompt, stream = len(visit.question.pieces), visit.question.stream
        if stream:  # without it the other tokens are made before anything is delivered
            stages["delivery"] = visit.written - served.first
        ttft = visit.written - visit.stamp
        self._driver.telemetry.first_token(prompt, served.cached, ttft, stages, stream=stream)

    def _book_end(self, visit: Visit, flight: Flight) -> None:
        served, question = flight.served, visit.question
        more = served.generated - 1
        took = visit.last - visit.written if question.stream else served.finish - served.first
        tpot = took / more if visit.outcome == "ok" and more > 0 else None
        self._driver.telemetry.ended(
            len(question.pieces), visit.outcome, stream=question.stream, tpot=tpot, kv_tokens=served.computed
        )


async def _json(request: web.Request) -> Any:
    """The body. Raises Refusal: it can't be read, or is no JSON."""
    try:
        return json.loads(await request.text())
    except LookupError as error:
        raise bad(f"the body's charset is not known: {error}") from error
    except ValueError as error:  # not of its charset, or no JSON
        raise bad(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise bad("the body is nested too deep") from error
    except (web.RequestPayloadError, ContentEncodingError) as error:
        raise bad(f"the body does not have the content-encoding that its header says: {error}") from error


@web.middleware
async def _say_what_it_is(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors in OpenAI's form, and the header on every answer (streams begin with it)."""
    try:
        response = await handler(request)
    except Refusal as refusal:
        response = web.json_response(refusal.body, status=refusal.status)
    except web.HTTPException as error:
        body = {
            "error": {"message": error.reason, "type": "invalid_request_error", "param": None, "code": error.status}
        }
        response = web.Response(text=json.dumps(body), status=error.status, content_type="application/json")
    if not response.prepared:
        response.headers.update(MARK)
    return response
