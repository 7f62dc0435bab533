"""Requests of the OpenAI API as the simulated engine takes them, and vLLM's refusals in vLLM's form."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firsttoken.manifests.names import REQUEST_START
from firsttoken.simulation.requests import PRIORITIES
from firsttoken_local.engine_server.prompts import Pieces, chat_pieces, text_pieces

ANSWER_TOKENS = 256  # of an answer whose length nobody bounds: a model would end it somewhere
COMPLETION_TOKENS = 16  # what the API takes where /v1/completions gets no max_tokens
# What would change the answer's text or length, and could only be ignored here.
IGNORED = ("stop", "stop_token_ids", "echo", "suffix")
OLDEST_STAMP_S = 3600.0


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """A request that is answered by an error: HTTP status, OpenAI's type, message, and the parameter at fault."""

    def __init__(self, status: int, kind: str, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": parameter, "code": status}}


def bad(message: str, parameter: str | None = None) -> Refusal:
    """A refusal of what was asked."""
    return Refusal(400, "BadRequestError", message, parameter)


@dataclass(frozen=True)
class Limits:
    """What one engine was started with: the model's name, its length in tokens, and whether priorities count."""

    model: str
    max_model_length: int
    priorities: bool


@dataclass(frozen=True)
class Question:
    """A request that can be served. ``ends``: it ends with its last token by itself, not by the bound."""

    chat: bool
    pieces: Pieces
    output: int
    ends: bool
    stream: bool
    usage: bool  # wanted as the stream's last chunk
    priority: int


def read_question(body: Any, limits: Limits, *, chat: bool) -> Question:
    """Read a request's JSON.

    Raises:
        Refusal: it is answered by an error.
    """
    if not isinstance(body, Mapping):
        raise bad("the body must be a JSON object")
    if body.get("model") not in (None, limits.model):
        raise Refusal(404, "NotFoundError", f"The model `{body['model']}` does not exist.", "model")
    for name in ("n", "best_of"):
        if body.get(name) not in (None, 1) or isinstance(body.get(name), bool):
            raise bad(f"the simulated engine gives one answer: leave {name} out", name)
    for name in IGNORED:
        if body.get(name) not in (None, False, "", []):
            raise bad(f"the simulated engine makes no text that {name} could change: leave {name} out", name)
    pieces = _pieces(body, chat)
    output, ends = _output(body, len(pieces), limits, chat)
    stream = _flag(body, "stream")
    return Question(
        chat=chat,
        pieces=pieces,
        output=output,
        ends=ends,
        stream=stream,
        usage=_usage(body, stream),
        priority=_priority(body, limits),
    )


def _pieces(body: Mapping[str, Any], chat: bool) -> Pieces:
    if chat:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(m, Mapping) for m in messages):
            raise bad("messages must be a list of at least one message", "messages")
        try:
            return chat_pieces(messages)
        except ValueError as error:
            raise bad(str(error), "messages") from error
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        found = text_pieces(prompt)
    elif isinstance(prompt, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in prompt):
        found = [str(one) for one in prompt]
    else:
        raise bad("prompt must be one text, or one list of token ids", "prompt")
    if not found:
        raise bad("The decoder prompt cannot be empty", "prompt")
    return found


def _output(body: Mapping[str, Any], prompt: int, limits: Limits, chat: bool) -> tuple[int, bool]:
    """Tokens of the answer, and whether it ends by itself."""
    room = limits.max_model_length - prompt
    if room < 1:
        raise bad(
            f"This model's maximum context length is {limits.max_model_length} tokens. However, your request has "
            f"{prompt} input tokens. Please reduce the length of the input messages.",
            "messages" if chat else "prompt",
        )
    names = ("max_completion_tokens", "max_tokens") if chat else ("max_tokens",)
    name, most = next(((n, body[n]) for n in names if body.get(n) is not None), ("", None))
    if most is None:
        bound = ANSWER_TOKENS if chat else COMPLETION_TOKENS
        return min(bound, room), chat and bound <= room
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise bad(f"{name} must be at least 1, got {most}.", name)
    if most > room:
        raise bad(
            f"'{name}' is too large: {most}. This model's maximum context length is {limits.max_model_length} tokens "
            f"and your request has {prompt} input tokens ({most} > {limits.max_model_length} - {prompt}).",
            name,
        )
    return most, False


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value not in (None, True, False):
        raise bad(f"{name} must be true or false", name)
    return bool(value)


def _usage(body: Mapping[str, Any], stream: bool) -> bool:
    options = body.get("stream_options")
    if options is None:
        return False
    if not stream:
        raise bad("Stream options can only be defined when `stream=True`.", "stream_options")
    if not isinstance(options, Mapping):
        raise bad("stream_options must be an object", "stream_options")
    return _flag(options, "include_usage")


def _priority(body: Mapping[str, Any], limits: Limits) -> int:
    value = body.get("priority") or 0
    if not isinstance(value, int) or isinstance(value, bool) or not PRIORITIES[0] <= value <= PRIORITIES[1]:
        raise bad(f"priority must be a whole number from {PRIORITIES[0]} to {PRIORITIES[1]}", "priority")
    if value and not limits.priorities:
        raise bad(f"Got priority {value} but Priority scheduling is not enabled.", "priority")
    return value


def arrival_stamp(headers: Mapping[str, str], received: float) -> float:
    """When the gateway saw a request, seconds since 1970: its header, else baggage, else when it was ``received``.

    A stamp from the future, or older than an hour, is no gateway's and is not believed.
    """
    member = re.search(rf"(?:^|,)\s*{REQUEST_START}=([^,;\s]+)", headers.get("baggage", ""))
    for text in (headers.get(REQUEST_START, "").removeprefix("t="), member.group(1) if member else ""):
        try:
            stamp = float(text)
        except ValueError:
            continue
        if math.isfinite(stamp) and received - OLDEST_STAMP_S < stamp < received + 1.0:
            return min(stamp, received)
    return received
