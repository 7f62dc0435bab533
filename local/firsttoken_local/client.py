"""Clients of a played service: real requests through its Envoys, timed where a user would sit."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from itertools import accumulate
from typing import Any

from firsttoken_local.chat import ask, events
from firsttoken_local.errors import LocalError

AROUND = 3  # tokens that the chat template adds to one message (engine_server/prompts.py)


@dataclass(frozen=True)
class Timed:
    """One answer: tokens of its prompt and of them cached, and seconds to the first token and to the end."""

    prompt: int
    cached: int
    ttft: float
    total: float


def question(tokens: int, *, shared: int = 0, seed: int = 0) -> str:
    """A message whose prompt has so many tokens in all; its first ``shared`` are those of every other question."""
    words = (f"s{n}" if n < shared else f"w{seed % 1000}x{n % 100}" for n in range(tokens - AROUND))
    return " ".join(words)


def timed(base: str, model: str, text: str, tokens: int) -> Timed:
    """Ask, read the stream to its end, and time it.

    Raises:
        LocalError: refused, or cut before its end.
        OSError, HTTPException: no answer, or a connection that broke off.
    """
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    usage: dict[str, Any] = {}
    started, first = time.monotonic(), 0.0
    for event in events(ask(base, "/v1/chat/completions", body)):
        first = first or time.monotonic() - started
        usage = event.get("usage") or usage
    if usage.get("completion_tokens") != tokens:
        raise LocalError(f"an answer ended without its {tokens} tokens")
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return Timed(usage["prompt_tokens"], cached, first, time.monotonic() - started)


def at_a_rate(
    base: str, model: str, prompts: Sequence[str], tokens: int, rate: float, *, seed: int | None = None
) -> list[Timed]:
    """Send all prompts, ``rate`` a second however long each takes, and wait for the answers.

    ``seed``: at random moments, as users do; without one they are evenly spaced.
    """
    source = random.Random(seed)  # noqa: S311 - when to send, not a secret
    gaps = (1 / rate if seed is None else source.expovariate(rate) for _ in prompts[1:])
    began, after = time.monotonic(), list(accumulate(gaps, initial=0.0))

    def one(number: int) -> Timed:
        time.sleep(max(0.0, began + after[number] - time.monotonic()))
        return timed(base, model, prompts[number], tokens)

    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(one, range(len(prompts))))


class Watchers:
    """Clients that read one stream after the other until told to stop, and count those that were cut."""

    def __init__(self, base: str, model: str, clients: int, tokens: int) -> None:
        self._base, self._model, self._tokens = base, model, tokens
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.whole = 0
        self.faults: list[str] = []
        self._threads = [threading.Thread(target=self._read, args=(n,), daemon=True) for n in range(clients)]

    def __enter__(self) -> Watchers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for the streams under way to end."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=60.0)

    def _read(self, client: int) -> None:
        for number in self._numbers():
            fault = ""
            try:
                timed(self._base, self._model, question(300, seed=client * 100 + number), self._tokens)
            except LocalError as error:
                fault = f"{error.message} {error.details or ''}".strip()
            except (OSError, HTTPException, ValueError) as error:
                fault = repr(error)
            with self._lock:
                self.whole += not fault
                self.faults += [fault] if fault else []

    def _numbers(self) -> Iterator[int]:
        number = 0
        while not self._stop.is_set():
            yield number
            number += 1
