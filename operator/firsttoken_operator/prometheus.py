"""Asking Prometheus, or what speaks its HTTP API, the fleet-wide questions of `measurement/questions.py`."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from firsttoken.measurement.answers import AnswerError, Folded, Key, series_of, time_of
from firsttoken.measurement.blocks import Measurements
from firsttoken.measurement.questions import QUESTIONS

BLOCKS = 6  # of a window
TOTAL_SECONDS = 60.0  # for all questions together
CONNECT_SECONDS = 5.0
# A thousand services with six prompt-length buckets are some 3 MiB an answer and some 30 a round.
MOST_BYTES = 32 * 2**20  # of one answer, which is made small before the next is asked for
MOST_ROUND_BYTES = 128 * 2**20  # of all answers of a round

_ADDRESS = "--prometheus-url (the chart's prometheus.url)"
# What stands in the condition of every service: words that stay the same through an outage. The log has the details.
_SAYS = {
    "unreachable": f"can't be reached: see that {_ADDRESS} is right, and that network policies let the operator out",
    "slow": f"does not answer in time: see its load, and that {_ADDRESS} is right",
    "denied": "denies access: see that it asks the operator for no token or password, which are not sent yet",
    "refused": "refuses a question: see the operator's log; a shorter --prometheus-window has fewer samples",
    "partial": "has only part of the measurements: see that all its stores answer",
    "large": "answers with more than the operator reads: see what else exports firsttoken_ series",
    "failing": "fails: see its own log",
    "garbled": f"does not answer as Prometheus does: see that {_ADDRESS} is right, its path too",
}


def is_url(text: str) -> bool:
    """Whether it can be the base URL of a server. Without a user in it: conditions tell it to whoever reads them."""
    try:
        parts = urlsplit(text)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        return right and parts.username is None and not parts.query and not parts.fragment
    except ValueError:
        return False


class PrometheusError(Exception):
    """Why there are no measurements: one sentence that ends with the remedy. `detail`: for the log."""

    def __init__(self, what: str, detail: str = "") -> None:
        super().__init__(what)
        self.detail = detail


class Prometheus:
    """One server by its base URL. `window`: seconds that are looked back, in `BLOCKS` parts."""

    def __init__(self, url: str, window: float) -> None:
        self.url, self._block = url.rstrip("/"), window / BLOCKS

    async def ask(self) -> Mapping[Key, Measurements]:
        """What it has of each service. Raises PrometheusError, and never anything else for what a server does."""
        patience = aiohttp.ClientTimeout(total=TOTAL_SECONDS, sock_connect=CONNECT_SECONDS)
        try:
            async with asyncio.timeout(TOTAL_SECONDS), aiohttp.ClientSession(timeout=patience, trust_env=True) as http:
                return await self._round(_Asker(self.url, http))
        except TimeoutError as error:
            raise self._error("slow", error) from error
        except AnswerError as error:
            raise self._error(error.kind, error) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._error("unreachable", error) from error

    async def _round(self, asker: "_Asker") -> Mapping[Key, Measurements]:
        # By its own clock: an operator's that is off would ask for a time that is not there yet.
        end = time_of(await asker.get("query", {"query": "time()"}))
        folded = Folded(end, self._block, BLOCKS)
        for question in QUESTIONS:
            start = end - (0 if question.whole else (BLOCKS - 1) * self._block)
            asked = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{self._block:.3f}"}
            answer = await asker.get("query_range", {"query": question.over(self._block, BLOCKS), **asked})
            await asyncio.to_thread(folded.add, question, series_of(answer))
        return await asyncio.to_thread(folded.found)

    def _error(self, kind: str, error: Exception) -> PrometheusError:
        detail = (str(error) or type(error).__name__).splitlines()[0][:200]
        return PrometheusError(f"Prometheus at {self.url} {_SAYS[kind]}", detail)


class _Asker:
    """One round's questions, with a bound on the bytes of all answers."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self._url, self._http, self._left = url, http, MOST_ROUND_BYTES

    async def get(self, what: str, asked: dict[str, str]) -> Any:
        """The JSON of an answer. Raises AnswerError, and what aiohttp raises."""
        async with self._http.get(f"{self._url}/api/v1/{what}", params=asked, max_redirects=3) as answer:
            # 400 and 422 carry its own words on the question.
            if answer.status not in (200, 400, 422):
                raise AnswerError(f"status {answer.status}", _kind(answer.status))
            body, most = bytearray(), min(MOST_BYTES, self._left)
            async for part in answer.content.iter_chunked(2**20):
                body += part
                if len(body) > most:
                    raise AnswerError(f"an answer has more than {most} bytes", "large")
        self._left -= len(body)
        try:
            return await asyncio.to_thread(json.loads, body)
        except (ValueError, RecursionError) as error:
            raise AnswerError("an answer is no JSON") from error


def _kind(status: int) -> str:
    if status in (401, 403, 407):
        return "denied"
    return "failing" if status >= 500 or status == 429 else "garbled"
