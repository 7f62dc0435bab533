"""Asking Prometheus, or what speaks its HTTP API, the fleet-wide questions of `measurement/questions.py`."""

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from firsttoken.measurement.answers import AnswerError, Key, measurements_of, series_of
from firsttoken.measurement.blocks import Measurements
from firsttoken.measurement.questions import QUESTIONS

BLOCKS = 6  # of a window
TOTAL_SECONDS = 60.0  # for all questions together
CONNECT_SECONDS = 5.0
MOST_BYTES = 128 * 2**20  # of one answer: some thousand services have a tenth of it

_REMEDY = "see that --prometheus-url (the chart's prometheus.url) is right and that it answers"


def is_url(text: str) -> bool:
    """Whether it can be the base URL of a server. Without a user in it: conditions tell it to whoever reads them."""
    try:
        parts = urlsplit(text)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        return right and parts.username is None and not parts.query and not parts.fragment
    except ValueError:
        return False


class PrometheusError(Exception):
    """Why there are no measurements: one sentence that ends with the remedy."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: {_REMEDY}")


class Prometheus:
    """One server by its base URL. `window`: seconds that are looked back, in `BLOCKS` parts."""

    def __init__(self, url: str, window: float) -> None:
        self.url, self._block = url.rstrip("/"), window / BLOCKS

    async def ask(self) -> dict[Key, Measurements]:
        """What it has of each service. Raises PrometheusError, and never anything else for what a server does."""
        patience = aiohttp.ClientTimeout(total=TOTAL_SECONDS, sock_connect=CONNECT_SECONDS)
        try:
            async with asyncio.timeout(TOTAL_SECONDS), aiohttp.ClientSession(timeout=patience, trust_env=True) as http:
                # By its own clock: an operator's that is off would ask for a time that is not there yet.
                end = await self._time(http)
                answers = {q.name: await self._range(http, q.over(self._block), end) for q in QUESTIONS}
                return await asyncio.to_thread(measurements_of, answers, end, self._block, BLOCKS)
        except TimeoutError as error:
            raise PrometheusError(f"Prometheus at {self.url} does not answer in time") from error
        except AnswerError as error:
            raise PrometheusError(f"Prometheus at {self.url} answers, but {error}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise PrometheusError(f"Prometheus at {self.url} can't be reached ({_short(error)})") from error

    async def _time(self, http: aiohttp.ClientSession) -> float:
        answer = await self._get(http, "query", {"query": "time()"})
        try:
            return float(answer["data"]["result"][1])
        except (TypeError, KeyError, IndexError, ValueError) as error:
            raise AnswerError("it does not tell the time") from error

    async def _range(self, http: aiohttp.ClientSession, text: str, end: float) -> list[Any]:
        start = end - (BLOCKS - 1) * self._block
        asked = {"query": text, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{self._block:.3f}"}
        return series_of(await self._get(http, "query_range", asked))

    async def _get(self, http: aiohttp.ClientSession, what: str, asked: dict[str, str]) -> Any:
        async with http.get(f"{self.url}/api/v1/{what}", params=asked, max_redirects=3) as answer:
            # 400 and 422 carry its own words on the question.
            if answer.status not in (200, 400, 422):
                raise AnswerError(f"with status {answer.status}")
            body = bytearray()
            async for part in answer.content.iter_chunked(2**20):
                body += part
                if len(body) > MOST_BYTES:
                    raise AnswerError(f"with more than {MOST_BYTES >> 20} MiB")
        try:
            return await asyncio.to_thread(json.loads, body)
        except (ValueError, RecursionError) as error:
            raise AnswerError("an answer is no JSON") from error


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]
