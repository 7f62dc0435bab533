"""The hub against a server on this machine: what is asked, what comes back, and every way it can fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from firsttoken.api.service_inputs import ModelSpec, SecretKey
from firsttoken_operator import hub
from firsttoken_operator.hub import DEFAULT_ENDPOINT, Hub, HubError, fetch_config, wants_hub

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "bos_token_id": 1}
SPEC = ModelSpec(uri="hf://somebody/model")
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the machine would be asked instead of the server here."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


class Server:
    """A hub on a free port of 127.0.0.1 that remembers what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.seen, self.tokens = answer, [], []  # type: ignore[var-annotated]
        self.url = f"http://127.0.0.1:{unused_port()}"
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Server:
        app = web.Application()
        app.add_routes([web.get("/{any:.*}", self._handle)])
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", int(self.url.rsplit(":", 1)[1])).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request.raw_path)
        self.tokens.append(request.headers.get("Authorization"))
        return await self.answer(request)


def files(**contents: object) -> Answer:
    """Files by name without suffix; a Response is sent as it is, all others are 404."""

    async def answer(request: web.Request) -> web.StreamResponse:
        found = contents.get(request.path.rsplit("/", 1)[-1].removesuffix(".json"), web.Response(status=404))
        if isinstance(found, web.StreamResponse):
            return found
        return web.Response(body=found if isinstance(found, bytes) else json.dumps(found).encode())

    return answer


def ask(answer: Answer, spec: ModelSpec = SPEC, **environment: str) -> tuple[dict[str, Any] | HubError, Server]:
    async def run() -> tuple[dict[str, Any] | HubError, Server]:
        async with Server(answer) as server:
            try:
                return await fetch_config(spec, {"HF_ENDPOINT": f"{server.url}/", **environment}), server
            except HubError as error:
                return error, server

    return asyncio.run(run())


def test_the_config_of_a_revision_is_asked_for_and_its_essentials_come_back() -> None:
    found, server = ask(files(config=CONFIG), SPEC.model_copy(update={"revision": "refs/pr/1"}))
    assert found == {k: v for k, v in CONFIG.items() if k != "bos_token_id"}
    first, second = server.seen
    assert first == "/somebody/model/resolve/refs%2Fpr%2F1/config.json"
    assert second.endswith("/hf_quant_config.json")
    assert server.tokens == [None, None]
    assert ask(files(config=CONFIG))[1].seen[0] == "/somebody/model/resolve/main/config.json"


def test_the_token_is_sent_to_the_hub_and_not_to_where_it_redirects() -> None:
    async def run() -> tuple[list[Any], list[Any]]:
        async with Server(files(config=CONFIG)) as elsewhere:

            async def redirect(request: web.Request) -> web.StreamResponse:
                raise web.HTTPTemporaryRedirect(f"{elsewhere.url}{request.path}")

            async with Server(redirect) as first:
                await fetch_config(SPEC, {"HF_ENDPOINT": first.url, "HF_TOKEN": "hf_secret\n"})
                return first.tokens, elsewhere.tokens

    there, behind = asyncio.run(run())
    assert set(there) == {"Bearer hf_secret"}
    assert set(behind) == {None}


def test_what_modelopt_keeps_in_a_file_of_its_own_is_read() -> None:
    quantisation = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["x"]}}
    found, _ = ask(files(config=CONFIG, hf_quant_config=quantisation))
    assert isinstance(found, dict)
    assert found["quantization_config"] == {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
    said = {**CONFIG, "quantization_config": {"quant_method": "awq", "bits": 4}}
    found, server = ask(files(config=said))
    assert len(server.seen) == 1, "what says so itself needs no second question"


async def _slowly(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


async def _drop(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def _around(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound(request.path)


@pytest.mark.parametrize(
    ("answer", "environment", "part"),
    [
        (files(), {}, "has no config.json of somebody/model at revision main"),
        (
            files(config=web.Response(status=401)), {},
            "refuses config.json of somebody/model (401): it is gated, private or not there, and HF_TOKEN",
        ),
        (
            files(config=web.Response(status=403)), {"HF_TOKEN": "x"},
            "HF_TOKEN does not open it: accept the licence with that token's account, or give",
        ),
        (files(config=web.Response(status=429)), {}, "answered 429 for config.json"),
        (files(config=web.Response(status=503)), {}, "answered 503"),
        (files(config=b"<html>log in</html>"), {}, "config.json of somebody/model is no JSON (Expecting value: line 1"),
        (files(config=b"\xff\xfe"), {}, "is no JSON"),
        (files(config=b"[" * 100_000), {}, "is no JSON"),
        (files(config=[1, 2]), {}, "is no JSON object"),
        (files(config={"hello": "world"}), {}, "has neither model_type nor architectures"),
        (files(config=b" " * (5 * 2**20)), {}, "is larger than 4 MiB"),
        (files(config=CONFIG, hf_quant_config=web.Response(status=500)), {}, "answered 500 for hf_quant_config.json"),
        (_slowly, {}, "does not answer in time"),
        (_drop, {}, "can't be reached"),
        (_around, {}, "can't be reached"),
        (files(config=CONFIG), {"HF_TOKEN": "two\nlines"}, "can't be reached"),
        (files(config=CONFIG), {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE forbids"),
        (files(config=CONFIG), {"HF_ENDPOINT": "ftp://mirror"}, "HF_ENDPOINT is 'ftp://mirror'"),
        (files(config=CONFIG), {"HF_ENDPOINT": "http://"}, "no URL of a hub"),
        (files(config=CONFIG), {"HF_ENDPOINT": "http://ex ample:x"}, "can't be reached"),
    ],
)  # fmt: skip
def test_every_failure_is_one_sentence_that_ends_with_the_remedy(
    answer: Answer, environment: dict[str, str], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "TOTAL_SECONDS", 0.5)
    error, _ = ask(answer, **environment)
    assert isinstance(error, HubError), error
    assert part in str(error)
    assert str(error).endswith("give spec.model.architecture.inline or preset")
    assert "\n" not in str(error)
    for secret in environment.get("HF_TOKEN", "").split():
        assert len(secret) == 1 or secret not in str(error)


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_model_is_told_where_a_token_helps_and_where_it_does_not(status: int) -> None:
    """The operator reads no Secrets, so the one that a service names for its pods opens nothing here."""
    named = SPEC.model_copy(update={"credentials": SecretKey(name="hf-token")})
    remedy = ": set HF_TOKEN where this runs (the chart's extraEnv), or give spec.model.architecture.inline or preset"
    for spec, words in ((SPEC, False), (named, True)):
        error, _ = ask(files(config=web.Response(status=status)), spec)
        assert isinstance(error, HubError)
        assert str(error).endswith(remedy)
        assert ("spec.model.credentials is for the pods alone, the operator reads no Secrets" in str(error)) == words


def test_nobody_there() -> None:
    url = f"http://127.0.0.1:{unused_port()}"
    with pytest.raises(HubError, match="can't be reached"):
        asyncio.run(fetch_config(SPEC, {"HF_ENDPOINT": url}))


def test_a_uri_that_is_no_repository() -> None:
    for uri in ("hf://somebody", "hf://a/b/c"):
        with pytest.raises(HubError, match="no hf://org/name"):
            asyncio.run(fetch_config(ModelSpec(uri=uri), {"HF_ENDPOINT": "http://127.0.0.1:9"}))


def test_characters_of_a_uri_do_not_leave_their_place() -> None:
    _, server = ask(files(), ModelSpec(uri="hf://some?body/mod#el"))
    assert server.seen == ["/some%3Fbody/mod%23el/resolve/main/config.json"]


def test_the_endpoint_has_a_default() -> None:
    assert DEFAULT_ENDPOINT.startswith("https://")


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        ({"uri": "hf://somebody/model"}, True),
        ({"uri": "hf://Qwen/Qwen3-8B"}, False),
        ({"uri": "pvc://claim/model"}, False),
        ({"uri": "hf://somebody/model", "architecture": {"preset": "qwen3-8b"}}, False),
    ],
)
def test_only_what_nobody_knows_is_asked_for(model: dict[str, Any], wanted: bool) -> None:
    assert wants_hub(ModelSpec.model_validate(model)) is wanted


# --- answers are kept ---


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def counted(*answers: dict[str, Any] | HubError) -> tuple[Hub, Clock, list[str]]:
    """A Hub whose answers are given one after another, the last for good."""
    asked: list[str] = []
    clock = Clock()

    async def fetch(spec: ModelSpec) -> dict[str, Any]:
        asked.append(f"{spec.uri}@{spec.revision}")
        await asyncio.sleep(0)
        answer = answers[min(len(asked), len(answers)) - 1]
        if isinstance(answer, HubError):
            raise answer
        return answer

    return Hub(fetch, clock), clock, asked


def test_an_answer_serves_many_reconciles_and_a_failure_is_asked_again_soon() -> None:
    keeper, clock, asked = counted(HubError("down"), CONFIG)

    async def run() -> None:
        assert isinstance(await keeper.config(SPEC), HubError)
        assert isinstance(await keeper.config(SPEC), HubError)
        clock.now += hub.RETRY_SECONDS + 1
        assert await keeper.config(SPEC) == CONFIG
        clock.now += hub.KEEP_SECONDS - 1
        assert await keeper.config(SPEC) == CONFIG
        assert len(asked) == 2
        clock.now += 2
        assert await keeper.config(SPEC) == CONFIG
        assert len(asked) == 3

    asyncio.run(run())


def test_services_of_one_model_wait_for_one_answer_and_revisions_are_apart() -> None:
    keeper, _, asked = counted(CONFIG)
    other = SPEC.model_copy(update={"revision": "v2"})

    async def run() -> None:
        answers = await asyncio.gather(*(keeper.config(s) for s in (SPEC, SPEC, other, SPEC)))
        assert answers == [CONFIG] * 4

    asyncio.run(run())
    assert sorted(asked) == ["hf://somebody/model@None", "hf://somebody/model@v2"]


def test_a_reconcile_that_is_cancelled_leaves_the_question_to_the_others() -> None:
    keeper, _, asked = counted(CONFIG)

    async def run() -> None:
        first = asyncio.create_task(keeper.config(SPEC))
        await asyncio.sleep(0)
        first.cancel()
        assert await keeper.config(SPEC) == CONFIG

    asyncio.run(run())
    assert len(asked) == 1


def test_a_known_model_is_not_asked_for() -> None:
    keeper, _, asked = counted(CONFIG)
    assert asyncio.run(keeper.config(ModelSpec(uri="hf://Qwen/Qwen3-8B"))) is None
    assert not asked
