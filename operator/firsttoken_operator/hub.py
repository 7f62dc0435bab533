"""A model's config.json from the model hub, for what neither the spec nor the catalogue knows. Nothing else is fetched.

Environment, as Hugging Face's own tools have it: HF_ENDPOINT (a mirror), HF_TOKEN (models behind a licence),
HF_HUB_OFFLINE (ask nobody), and the proxies' usual variables.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import aiohttp

from firsttoken.api.service_inputs import ModelSpec
from firsttoken.planning.hf_config import essentials, is_config
from firsttoken.planning.hf_quantization import quantization_of
from firsttoken.planning.models import wants_config
from firsttoken.planning.refusal import InfeasibleError
from firsttoken_operator.config_json import CONFIG, MAX_BYTES, QUANTIZATION, NotConfigError, json_object

DEFAULT_ENDPOINT = "https://huggingface.co"
REMEDY = "give spec.model.architecture.inline or preset"
TOKEN, LICENCE = "set HF_TOKEN where this runs (the chart's extraEnv)", "accept the licence with that token's account"

TOTAL_SECONDS = 10.0  # a config.json has a few KB; a worker waits no longer than this
CONNECT_SECONDS = 4.0
KEEP_SECONDS = 3600.0  # until a branch is looked at again; only new plans look
RETRY_SECONDS = 60.0  # until the hub is asked again after it failed

_CHUNK = 64 * 2**10
_REDIRECTS = 3
_TRUE = ("1", "on", "yes", "true")


class HubError(Exception):
    """Why there is no config.json: one sentence that ends with the remedy."""

    def __init__(self, what: str, remedy: str = REMEDY) -> None:
        super().__init__(f"{what}: {remedy}")


class _NotFoundError(Exception):
    pass


def wants_hub(spec: ModelSpec) -> bool:
    """Whether the hub may know what nobody else does: an hf:// model without architecture, not in the catalogue."""
    return spec.uri.startswith("hf://") and wants_config(spec)


async def fetch_config(spec: ModelSpec, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What the planner reads of the config.json of an hf:// model at its revision.

    Raises HubError, and never anything else for what the hub does.
    """
    if environment.get("HF_HUB_OFFLINE", "").lower() in _TRUE:
        raise HubError(f"{spec.uri} is not in the model catalogue, and HF_HUB_OFFLINE forbids asking the hub")
    endpoint = (environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    if not endpoint.startswith(("https://", "http://")):
        raise HubError(f"HF_ENDPOINT is {endpoint!r}, no URL of a hub")
    repository = spec.uri.removeprefix("hf://").strip("/")
    if repository.count("/") != 1:
        raise HubError(f"{spec.uri} is no hf://org/name")
    token = environment.get("HF_TOKEN", "").strip()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    asked = _Question(endpoint, repository, spec.revision or "main", headers, spec.credentials is not None)
    patience = aiohttp.ClientTimeout(total=TOTAL_SECONDS, sock_connect=CONNECT_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=patience, trust_env=True) as session:
            return await _config(session, asked)
    except TimeoutError as error:
        raise HubError(f"the hub at {endpoint} does not answer in time") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise HubError(f"the hub at {endpoint} can't be reached ({_short(error)})") from error


@dataclass(frozen=True)
class _Question:
    endpoint: str
    repository: str
    revision: str
    headers: Mapping[str, str]
    credentials: bool  # whether the service names a Secret for its pods

    def url(self, name: str) -> str:
        """Where the hub keeps a file of the repository."""
        return f"{self.endpoint}/{quote(self.repository)}/resolve/{quote(self.revision, safe='')}/{name}"


async def _config(session: aiohttp.ClientSession, asked: _Question) -> dict[str, Any]:
    try:
        config = await _parsed(await _text(session, asked, CONFIG), asked, CONFIG)
    except _NotFoundError:
        at = f"{asked.repository} at revision {asked.revision}"
        raise HubError(f"the hub at {asked.endpoint} has no {CONFIG} of {at}") from None
    if not is_config(config):
        raise HubError(f"{CONFIG} of {asked.repository} has neither model_type nor architectures")
    if quantization_of(config) is None:
        with contextlib.suppress(_NotFoundError):
            body = await _text(session, asked, QUANTIZATION)
            config["quantization_config"] = await _parsed(body, asked, QUANTIZATION)
    try:
        return await asyncio.to_thread(essentials, config)
    except InfeasibleError as error:
        raise HubError(f"{CONFIG} of {asked.repository} can't be kept ({error})") from error


async def _text(session: aiohttp.ClientSession, asked: _Question, name: str) -> bytes:
    # aiohttp takes the token off when a redirect leads to another origin.
    async with session.get(asked.url(name), headers=asked.headers, max_redirects=_REDIRECTS) as answer:
        if answer.status == 404:
            raise _NotFoundError
        if answer.status in (401, 403):
            raise _refused(asked, answer.status)
        if answer.status != 200:
            raise HubError(f"the hub at {asked.endpoint} answered {answer.status} for {name} of {asked.repository}")
        body = bytearray()
        async for chunk in answer.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > MAX_BYTES:
                break  # `json_object` says so
        return bytes(body)


async def _parsed(body: bytes, asked: _Question, name: str) -> dict[str, Any]:
    """In a thread, as all that reads a whole file: megabytes of somebody's JSON must not hold up the operator."""
    try:
        return await asyncio.to_thread(json_object, body)
    except NotConfigError as error:
        raise HubError(f"{name} of {asked.repository} is {error}") from error


def _refused(asked: _Question, status: int) -> HubError:
    """Who asks without an account gets the same answer for a gated repository as for one that is not there."""
    have, remedy = ("does not open it", LICENCE) if asked.headers else ("is not set here", TOKEN)
    pods = "; spec.model.credentials is for the pods alone, the operator reads no Secrets" if asked.credentials else ""
    why = f"it is gated, private or not there, and HF_TOKEN {have}{pods}"
    what = f"the hub at {asked.endpoint} refuses {CONFIG} of {asked.repository} ({status})"
    return HubError(f"{what}: {why}", f"{remedy}, or {REMEDY}")


def _short(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"


Answer = dict[str, Any] | HubError
Fetch = Callable[[ModelSpec], Any]


@dataclass
class Hub:
    """Answers of the hub, kept for a while: reconciles are many, models few. One instance per operator process."""

    fetch: Fetch = fetch_config
    clock: Callable[[], float] = time.monotonic
    _known: dict[tuple[str, str | None], tuple[float, Answer]] = field(default_factory=dict)
    _asking: dict[tuple[str, str | None], asyncio.Task[Answer]] = field(default_factory=dict)

    async def config(self, spec: ModelSpec) -> Answer | None:
        """The config.json, why there is none, or None where nobody needs one. Never raises."""
        if not wants_hub(spec):
            return None
        key, now = (spec.uri, spec.revision), self.clock()
        self._known = {k: v for k, v in self._known.items() if v[0] > now}
        if key in self._known:
            return self._known[key][1]
        task = self._asking.get(key)
        if task is None:  # services of the same model wait for one answer
            task = self._asking[key] = asyncio.create_task(self._ask(spec))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        answer = await asyncio.shield(task)
        seconds = RETRY_SECONDS if isinstance(answer, HubError) else KEEP_SECONDS
        self._known[key] = (self.clock() + seconds, answer)
        return answer

    async def _ask(self, spec: ModelSpec) -> Answer:
        try:
            config: dict[str, Any] = await self.fetch(spec)
        except HubError as error:
            return error
        return config
