"""The engine server over HTTP: answers, streams, refusals, clients that leave, settings that change."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from engine_server.support import SETTINGS, chat, data, served, tokens
from firsttoken.simulation.settings import EngineSettings
from firsttoken_local.engine_server.questions import Limits


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_it_says_that_it_is_simulated() -> None:
    async def work() -> None:
        async with served() as one:
            async with one.client.get(one.base + "/v1/models") as answer:
                (model,) = (await answer.json())["data"]
            assert (model["id"], model["max_model_len"]) == ("tiny", 1024)
            assert "simulated" in model["owned_by"]
            async with one.client.get(one.base + "/health") as answer:
                assert answer.status == 200
            _, found = await one.post("/v1/chat/completions", chat("hi", max_tokens=20))
            assert "no model runs here" in found["choices"][0]["message"]["content"]

    run(work())


def test_a_whole_answer_has_the_shape_and_usage_of_openai() -> None:
    async def work() -> None:
        async with served() as one:
            status, found = await one.post("/v1/completions", tokens(100, max_tokens=5))
            assert status == 200
            assert found["object"] == "text_completion"
            assert found["choices"][0]["finish_reason"] == "length"
            assert found["usage"] == {
                "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105,
                "prompt_tokens_details": {"cached_tokens": 0},
            }  # fmt: skip
            _, found = await one.post("/v1/chat/completions", chat("hello there"))
            assert found["object"] == "chat.completion"
            assert found["choices"][0]["finish_reason"] == "stop"  # nobody bounded it
            assert found["choices"][0]["message"]["role"] == "assistant"
            assert found["usage"]["prompt_tokens"] == 2 + 3

    run(work())


def test_a_stream_is_events_of_one_token_each_in_openai_s_form() -> None:
    async def work() -> None:
        async with served() as one:
            body = chat("hi", max_tokens=3, stream_options={"include_usage": True})
            *events, done = await one.events("/v1/chat/completions", body)
            assert done == b"data: [DONE]"
            role, *words, usage = [data(event) for event in events]
            assert {one["object"] for one in (role, *words, usage)} == {"chat.completion.chunk"}
            assert len({one["id"] for one in (role, *words, usage)}) == 1
            assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            assert [one["choices"][0]["delta"] for one in words] == [
                {"content": "This"}, {"content": " answer"}, {"content": " comes"},
            ]  # fmt: skip
            assert [one["choices"][0]["finish_reason"] for one in words] == [None, None, "length"]
            assert usage["choices"] == []
            assert usage["usage"]["completion_tokens"] == 3
            *events, done = await one.events("/v1/completions", tokens(10, max_tokens=2))
            assert [data(event)["choices"][0]["text"] for event in events] == ["This", " answer"]

    run(work())


def test_tokens_leave_one_by_one_when_they_are_due() -> None:
    async def work() -> None:
        async with served() as one:
            body = {**tokens(50, max_tokens=40), "stream": True}
            async with one.client.post(one.base + "/v1/completions", json=body) as answer:
                await answer.content.readline()
                assert len(one.driver.engine.running) == 1  # the first is here while the others are still to be made
                assert one.driver.engine.running[0].generated < 40
                whole = await answer.content.read()
            assert whole.count(b"data: ") == 39 + 1

    run(work())


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/v1/completions", tokens(1024), 400, "maximum context length is 1024 tokens. However, your request has 1024"),
        ("/v1/completions", tokens(1000, max_tokens=25), 400, "'max_tokens' is too large: 25"),
        ("/v1/chat/completions", chat("a", max_completion_tokens=0), 400, "must be at least 1"),
        ("/v1/completions", {**tokens(3), "model": "other"}, 404, "The model `other` does not exist."),
        ("/v1/completions", {"model": "tiny"}, 400, "prompt must be"),
        ("/v1/completions", {"model": "tiny", "prompt": ""}, 400, "cannot be empty"),
        ("/v1/chat/completions", {"model": "tiny", "messages": []}, 400, "messages must be a list"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "text only",
        ),
        ("/v1/completions", tokens(3, n=2), 400, "leave n out"),
        ("/v1/completions", tokens(3, n=True), 400, "leave n out"),
        ("/v1/completions", tokens(3, best_of=2), 400, "leave best_of out"),
        ("/v1/completions", tokens(3, stop=["x"]), 400, "leave stop out"),
        ("/v1/chat/completions", chat("a", stop="x"), 400, "leave stop out"),
        ("/v1/completions", tokens(3, echo=True), 400, "leave echo out"),
        ("/v1/completions", tokens(3, suffix="x"), 400, "leave suffix out"),
        ("/v1/completions", tokens(3, priority=1), 400, "Priority scheduling is not enabled"),
        ("/v1/completions", tokens(3, stream_options={"include_usage": True}), 400, "only be defined when"),
        ("/v1/completions", [], 400, "JSON object"),
        ("/v1/embeddings", {}, 404, "Not Found"),
    ],
)
def test_what_cannot_be_served_is_refused_in_openai_s_form(path: str, body: Any, status: int, says: str) -> None:
    async def work() -> None:
        async with served() as one:
            found, answer = await one.post(path, body)
            assert (found, answer["error"]["code"]) == (status, status)
            assert says in answer["error"]["message"]
            assert await one.driver_is_idle()

    run(work())


@pytest.mark.parametrize(
    ("body", "headers", "says"),
    [
        (b"{", {}, "is not JSON"),
        (b"[" * 100_000, {}, "nested too deep"),
        (b'{"prompt": [' + b"1" * 5000 + b"]}", {}, "is not JSON"),
        (b'{"prompt": "\xff"}', {}, "is not JSON"),
        (b"{}", {"content-type": "application/json; charset=bogus"}, "charset is not known"),
        (b"{}", {"content-type": "application/json; charset=hex"}, "charset is not known"),
        (b"\x1f\x8bnope", {"content-encoding": "gzip"}, "content-encoding"),
        (b"nope", {"content-encoding": "deflate"}, "content-encoding"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_body_that_cannot_be_read_is_refused_in_openai_s_form(
    body: bytes, headers: dict[str, str], says: str
) -> None:
    async def work() -> None:
        async with (
            served() as one,
            one.client.post(one.base + "/v1/completions", data=body, headers=headers) as answer,
        ):
            assert answer.status == 400
            assert says in (await answer.json())["error"]["message"]

    run(work())


def test_what_changes_nothing_is_taken() -> None:
    async def work() -> None:
        async with served() as one:
            status, _ = await one.post(
                "/v1/completions", tokens(3, n=1, stop=[], echo=False, suffix=None, max_tokens=1)
            )
            assert status == 200

    run(work())


def test_an_engine_that_has_stopped_is_not_healthy_and_takes_no_requests() -> None:
    async def work() -> None:
        async with served() as one:

            async def sick() -> bool:
                async with one.client.get(one.base + "/health") as answer:
                    return answer.status == 503

            assert not await sick()
            one.driver.engine.run_until = _broken  # type: ignore[method-assign]
            one.driver._changed.set()
            await one.until(sick)
            assert "the simulated engine stopped" in one.said[0]
            assert "it broke" in one.said[0]
            status, answer = await one.post("/v1/completions", tokens(3))
            assert (status, answer["error"]["type"]) == (500, "InternalServerError")

    run(work())


def _broken(_: float) -> None:
    raise ArithmeticError("it broke")


def test_an_equal_prefix_is_cached_and_shortens_prefill() -> None:
    async def work() -> None:
        async with served() as one:
            text = "word " * 300
            _, first = await one.post("/v1/chat/completions", chat(text, max_tokens=1))
            before = await one.sample("firsttoken_ttft_stage_seconds_sum", prompt_tokens="256-512", stage="prefill")
            _, second = await one.post("/v1/chat/completions", chat(text + "and more", max_tokens=1))
            after = await one.sample("firsttoken_ttft_stage_seconds_sum", prompt_tokens="256-512", stage="prefill")
            assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
            assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 288  # full blocks of 16 of 301
            assert after - before < before  # the engine's own times, not the machine's
            assert await one.sample("firsttoken_cached_prompt_tokens_total", prompt_tokens="256-512") == 288

    run(work())


def test_a_client_that_leaves_frees_what_it_held() -> None:
    async def work() -> None:
        async with served() as one:
            body = {**tokens(100, max_tokens=900), "stream": True}
            async with one.client.post(one.base + "/v1/completions", json=body) as answer:
                await answer.content.readline()
                assert one.driver.engine.pool.used > 0
            await one.until(one.driver_is_idle)
            gone = await one.sample("firsttoken_requests_total", prompt_tokens="64-256", outcome="client_gone")
            assert gone == 1
            assert await one.sample("firsttoken_requests_total", prompt_tokens="64-256", outcome="ok") == 0
            assert await one.sample("firsttoken_ttft_seconds_count", prompt_tokens="64-256", stream="true") == 1

    run(work())


def test_the_arrival_stamp_is_the_gateway_s() -> None:
    async def work() -> None:
        async with served() as one:
            now = one.driver.now()
            for headers in (
                {"x-request-start": f"t={now - 7:.3f}"},
                {"baggage": f"a=b, x-request-start={now - 7:.3f};p"},
            ):
                await one.post("/v1/completions", tokens(10, max_tokens=1), headers=headers)
            stage = await one.sample("firsttoken_ttft_stage_seconds_sum", prompt_tokens="0-64", stage="gateway")
            assert stage is not None
            assert stage >= 14 - 0.002
            for bad in ("t=abc", "t=inf", f"t={now + 1000}", f"t={now - 100000}"):
                await one.post("/v1/completions", tokens(10, max_tokens=1), headers={"x-request-start": bad})
            after = await one.sample("firsttoken_ttft_stage_seconds_sum", prompt_tokens="0-64", stage="gateway")
            assert after == stage

    run(work())


def test_ttft_is_the_sum_of_its_stages() -> None:
    async def work() -> None:
        async with served() as one:
            await asyncio.gather(*(one.events("/v1/completions", tokens(200, 7 * k, max_tokens=3)) for k in range(5)))
            found = await one.samples()
            stages = [v for (name, labels), v in found.items() if name == "firsttoken_ttft_stage_seconds_sum"]
            (ttft,) = [v for (name, labels), v in found.items() if name == "firsttoken_ttft_seconds_sum"]
            assert sum(stages) == pytest.approx(ttft)
            assert await one.sample("firsttoken_tpot_seconds_count", prompt_tokens="64-256") == 5

    run(work())


def test_live_settings_count_within_a_second_and_broken_ones_do_not(tmp_path: Path) -> None:
    live = tmp_path / "settings.json"

    def write(generation: int, budget: int, trial: Any = None) -> None:
        values = {"tokenBudget": budget, "decodeCap": 8, "longPrefillThreshold": 0}
        live.write_text(json.dumps({"generation": generation, "default": values, "trial": trial}))

    async def work() -> None:
        async with served(live=live) as one:

            async def told(generation: int) -> bool:
                return await one.sample("firsttoken_settings_generation") == generation

            assert await told(1)  # read before the first request
            assert await one.sample("firsttoken_token_budget") == 128
            await one.post("/v1/completions", tokens(500, max_tokens=1))
            assert one.driver.telemetry.histograms["firsttoken_step_tokens", ("prefill",)].count == 4
            write(2, 100000)
            await one.until(lambda: told(2))
            assert await one.sample("firsttoken_token_budget") == SETTINGS.token_budget  # the value at the start
            live.write_text("{")
            await one.until(lambda: asyncio.sleep(0, bool(one.said)))
            assert "what was applied before stays" in one.said[0]
            assert await told(2)
            write(
                3,
                512,
                {"podUIDs": ["uid-1"], "settings": {"tokenBudget": 1, "decodeCap": 8, "longPrefillThreshold": 0}},
            )
            await one.until(lambda: told(3))
            assert await one.sample("firsttoken_token_budget") == 8 + 16  # the cap and a smallest chunk

    write(1, 128)
    run(work())


BROKEN = {
    "not UTF-8": b'{"generation": \xff}',
    "nested too deep": b"[" * 100_000,
    "is 1": b'{"generation": 1'
    + b"0" * 400
    + b', "default": {"tokenBudget": 9, "decodeCap": 8, "longPrefillThreshold": 0}}',
    "more than 1048576 bytes": b" " * (2**20 + 1),
    "(": b'{"generation": ' + b"1" * 5000 + b"}",
}


@pytest.mark.parametrize(("says", "content"), BROKEN.items(), ids=lambda value: str(value)[:20])
def test_settings_that_break_a_reader_are_told_and_later_ones_count(tmp_path: Path, says: str, content: bytes) -> None:
    """Both where the engine starts with such a file and where it comes later."""
    live = tmp_path / "settings.json"
    values = {"tokenBudget": 64, "decodeCap": 8, "longPrefillThreshold": 0}

    async def work() -> None:
        async with served(live=live) as one:
            assert says in one.said[0]
            assert len(one.said[0]) < 300
            for generation in (1, 2):

                async def told(number: int = generation) -> bool:
                    return await one.sample("firsttoken_settings_generation") == number

                live.write_text(json.dumps({"generation": generation, "default": values}))
                await one.until(told)
                live.write_bytes(content)
                heard = len(one.said)
                await one.until(lambda heard=heard: asyncio.sleep(0, len(one.said) > heard))  # type: ignore[misc]
                assert await told()  # the last good ones
            status, _ = await one.post("/v1/completions", tokens(100, max_tokens=1))
            assert status == 200
            assert await one.sample("firsttoken_token_budget") == 64

    live.write_bytes(content)
    run(work())


def test_priorities_count_where_the_engine_was_started_with_them() -> None:
    settings = EngineSettings(token_budget=64, max_num_seqs=1, kv_blocks=400, priorities=True)

    async def work() -> None:
        async with served(settings, Limits("tiny", 1024, priorities=True)) as one:
            order: list[str] = []

            async def ask(name: str, priority: int) -> None:
                await one.post("/v1/completions", tokens(64, max_tokens=20, priority=priority))
                order.append(name)

            first = asyncio.create_task(ask("first", 0))
            await one.until(lambda: asyncio.sleep(0, bool(one.driver.engine.running)))
            later = [asyncio.create_task(ask("later", 5))]
            await one.until(lambda: asyncio.sleep(0, len(one.driver._flights) == 2))
            later.append(asyncio.create_task(ask("urgent", -5)))
            await asyncio.gather(first, *later)
            assert order == ["first", "urgent", "later"]

    run(work())


def test_a_changing_head_before_a_shared_part_is_told() -> None:
    async def work() -> None:
        async with served() as one:
            shared = list(range(1000, 1160))
            for head in range(2):
                await one.post("/v1/completions", {"prompt": [head] * 16 + shared, "max_tokens": 1})
            assert await one.sample("firsttoken_prefix_instability_total", position="0-25") == 1
            await one.post("/v1/completions", {"prompt": [1] * 16 + shared + [7] * 32, "max_tokens": 1})
            found = [v for (name, _), v in (await one.samples()).items() if name.startswith("firsttoken_prefix_")]
            assert found == [1]  # a new end is no instability

    run(work())
