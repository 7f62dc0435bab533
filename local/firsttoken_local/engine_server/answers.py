"""Answers in the form of OpenAI's API as vLLM gives it: whole, or as server-sent events."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from firsttoken_local.engine_server.questions import Question

TEXT = "This answer comes from a simulated engine : no model runs here and no word means anything ."
WORDS = TEXT.split()
DONE = b"data: [DONE]\n\n"


def token_text(number: int) -> str:
    """The text of the answer's ``number``th token, from 1."""
    word = WORDS[(number - 1) % len(WORDS)]
    return word if number == 1 else f" {word}"


def event(content: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return f"data: {json.dumps(content, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


@dataclass(frozen=True)
class Answer:
    """One answer: its id, when it began (seconds since 1970), whose it is, and prompt tokens from the cache."""

    id: str
    created: int
    model: str
    question: Question
    cached: int = 0

    @property
    def reason(self) -> str:
        """Why it ends."""
        return "stop" if self.question.ends else "length"

    def usage(self, output: int) -> dict[str, Any]:
        """Tokens so far."""
        prompt = len(self.question.pieces)
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + output,
            "completion_tokens": output,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }

    def _frame(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}

    def whole(self) -> dict[str, Any]:
        """The answer in one piece."""
        output = self.question.output
        text = "".join(token_text(number) for number in range(1, output + 1))
        part = {"message": {"role": "assistant", "content": text}} if self.question.chat else {"text": text}
        choice = {"index": 0, **part, "logprobs": None, "finish_reason": self.reason}
        kind = "chat.completion" if self.question.chat else "text_completion"
        return {**self._frame(kind, [choice]), "usage": self.usage(output)}

    def chunks(self, number: int) -> bytes:
        """The events of one token, and after the last those that end the stream."""
        last = number == self.question.output
        text, reason = token_text(number), self.reason if last else None
        if self.question.chat:
            begin = self._chunk({"delta": {"role": "assistant", "content": ""}}, None) if number == 1 else b""
            found = begin + self._chunk({"delta": {"content": text}}, reason)
        else:
            found = self._chunk({"text": text}, reason)
        if last and self.question.usage:
            found += event({**self._frame(self._kind, []), "usage": self.usage(number)})
        return found + DONE if last else found

    @property
    def _kind(self) -> str:
        return "chat.completion.chunk" if self.question.chat else "text_completion"

    def _chunk(self, part: dict[str, Any], reason: str | None) -> bytes:
        choice = {"index": 0, **part, "logprobs": None, "finish_reason": reason}
        return event(self._frame(self._kind, [choice]))
