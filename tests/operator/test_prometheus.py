"""Asking Prometheus: a fixed number of questions, and one sentence for whatever a server does instead of answering."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from firsttoken.measurement.answers import Key
from firsttoken.measurement.blocks import Measurements, Window
from firsttoken.measurement.questions import QUESTIONS
from firsttoken_operator import prometheus
from firsttoken_operator.measuring import Fleet
from firsttoken_operator.prometheus import BLOCKS, Prometheus, PrometheusError, is_url

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LABELS = {"namespace": "apps", "firsttoken_service": "chat", "firsttoken_revision": "chat-1", "role": "serve"}
END = 1_800_000_000.0


@asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/{rest:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def good(services: int = 1) -> tuple[Handler, Counter[str]]:
    asked: Counter[str] = Counter()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked[request.path] += 1
        if request.path == "/api/v1/query":
            return web.json_response({"status": "success", "data": {"resultType": "scalar", "result": [END, str(END)]}})
        assert float(request.query["end"]) == END
        whole = "resets" in request.query["query"]
        assert float(request.query["end"]) - float(request.query["start"]) == pytest.approx(0.0 if whole else 50.0)
        series = [
            {"metric": {**LABELS, "firsttoken_service": f"chat-{n}", "prompt_tokens": "0-64", "phase": "decode"},
             "values": [[END, "3"]]}
            for n in range(services)
        ]  # fmt: skip
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": series}})

    return answer, asked


def ask(handler: Handler, path: str = "") -> Mapping[Key, Measurements]:
    async def run() -> Mapping[Key, Measurements]:
        async with server(handler) as url:
            return await Prometheus(url + path, 60.0).ask()

    return asyncio.run(run())


@pytest.mark.parametrize("services", [0, 1, 300])
def test_the_number_of_questions_is_the_same_whatever_the_fleet(services: int) -> None:
    handler, asked = good(services)
    found = ask(handler)
    assert len(found) == services
    assert asked == {"/api/v1/query": 1, "/api/v1/query_range": len(QUESTIONS)}
    for one in found.values():
        window = one.windows["chat-1", "serve"]
        assert (window.seconds, len(window.blocks)) == (10.0, BLOCKS)
        assert window.blocks[-1]["step_tokens", "decode"] == 3.0


def text(body: str, status: int = 200) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=body, status=status)

    return answer


def but(body: Any, status: int = 200) -> Handler:
    """The time is told, everything else is answered so."""
    whole, _ = good()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1/query":
            return await whole(request)
        return web.Response(text=body if isinstance(body, str) else json.dumps(body), status=status)

    return answer


GARBLED = "does not answer as Prometheus does"


@pytest.mark.parametrize(
    ("handler", "says", "detail"),
    [
        (text("oops", 500), "fails: see its own log", "status 500"),
        (text("<html>sign in</html>", 302), GARBLED, "status 302"),
        (text("no", 404), GARBLED, "status 404"),
        (text("who are you", 401), "no token or password", "status 401"),
        (text("<html>"), GARBLED, "no JSON"),
        (text("[" * 200_000), GARBLED, "no JSON"),
        (text("{}"), GARBLED, "does not tell the time"),
        (but("oops", 503), "fails: see its own log", "status 503"),
        (but({"status": "error", "error": "too many samples"}, 422), "--prometheus-window", "too many samples"),
        (but({"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}}]}}), GARBLED, "be read"),
        (but({"status": "success", "warnings": ["10.0.0.7: gone"], "data": {"resultType": "matrix", "result": []}}),
         "only part", "10.0.0.7: gone"),
    ],
)  # fmt: skip
def test_whatever_it_answers_comes_out_as_one_sentence_with_a_remedy(handler: Handler, says: str, detail: str) -> None:
    with pytest.raises(PrometheusError) as error:
        ask(handler)
    assert says in str(error.value)
    assert ": see " in str(error.value)
    assert detail in error.value.detail
    assert detail not in str(error.value), "what may differ each time is for the log, not for every service's status"
    assert "\n" not in str(error.value) + error.value.detail


@pytest.mark.parametrize("bound", ["MOST_BYTES", "MOST_ROUND_BYTES"])
def test_an_endless_answer_is_cut(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    monkeypatch.setattr(prometheus, bound, 2**16)

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(b"x" * 2**16)
        return response

    with pytest.raises(PrometheusError, match="more than the operator reads"):
        ask(endless)


def test_all_answers_of_a_round_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    handler, asked = good(300)
    monkeypatch.setattr(prometheus, "MOST_ROUND_BYTES", 300_000)
    with pytest.raises(PrometheusError, match="more than the operator reads"):
        ask(handler)
    assert 1 < asked["/api/v1/query_range"] < len(QUESTIONS)


def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "TOTAL_SECONDS", 0.2)

    async def hang(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    with pytest.raises(PrometheusError, match="in time"):
        ask(hang)


def test_nobody_there() -> None:
    with pytest.raises(PrometheusError, match="can't be reached"):
        asyncio.run(Prometheus("http://127.0.0.1:1", 60.0).ask())


def test_urls() -> None:
    assert all(map(is_url, ("http://prometheus:9090", "https://example.org/prom", "http://[::1]:9090")))
    assert not any(
        map(
            is_url,
            ("prometheus:9090", "ftp://x", "http://", "http://x:99999", "http://me:secret@x", "http://x?a=b", ""),
        )
    )


class Script:
    """Answers one after the other; the last one again and again."""

    def __init__(self, *answers: Mapping[Key, Measurements] | PrometheusError) -> None:
        self.answers = list(answers)

    async def ask(self) -> Mapping[Key, Measurements]:
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, PrometheusError):
            raise found
        return found


KEY = ("apps", "chat")
SOME = {KEY: Measurements({("chat-1", "serve"): Window(10.0, ({("resets", ""): 0.0},))})}
OTHER = {KEY: Measurements({("chat-2", "serve"): Window(10.0, ({("resets", ""): 0.0},))})}
DOWN = PrometheusError("it is down")


def rounds(*answers: Mapping[Key, Measurements] | PrometheusError) -> tuple[Fleet, list[Any]]:
    woken: list[Any] = []

    def wake(keys: Iterable[Key] | None) -> None:
        woken.append(None if keys is None else set(keys))

    async def run() -> Fleet:
        fleet = Fleet(Script(*answers), wake)
        for _ in answers:
            await fleet.round()
        return fleet

    return asyncio.run(run()), woken


def test_services_are_woken_when_what_can_be_used_changes_and_not_each_round() -> None:
    fleet, woken = rounds(SOME, SOME, OTHER, {})
    assert woken == [{KEY}, set(), {KEY}, {KEY}]
    assert fleet.of(KEY) == Measurements()


def test_a_server_that_is_down_from_the_start_is_told_at_once_and_once() -> None:
    fleet, woken = rounds(DOWN, DOWN, DOWN)
    assert fleet.of(KEY).fault == str(DOWN)
    assert woken == [None]


def test_one_round_that_fails_between_two_is_not_told() -> None:
    fleet, woken = rounds(SOME, DOWN)
    assert fleet.of(KEY) == SOME[KEY]
    assert woken == [{KEY}]


def test_an_outage_is_told_and_its_end_too() -> None:
    fleet, woken = rounds(SOME, DOWN, DOWN, SOME)
    assert woken == [{KEY}, None, None]
    assert fleet.of(KEY) == SOME[KEY]
    assert rounds(SOME, DOWN, DOWN)[0].of(KEY) == Measurements(fault=str(DOWN))


def test_a_first_answer_that_does_not_come_is_not_waited_for() -> None:
    class Never:
        async def ask(self) -> Mapping[Key, Measurements]:
            await asyncio.sleep(60)
            return {}

    async def run() -> Measurements:
        fleet = Fleet(Never(), lambda _: None)
        await fleet.round(0.05)
        return fleet.of(KEY)

    def failed() -> float:
        return REGISTRY.get_sample_value("firsttoken_operator_prometheus_rounds_total", {"result": "failed"}) or 0.0

    before = failed()
    assert "not answered" in asyncio.run(run()).fault
    assert failed() == before + 1
