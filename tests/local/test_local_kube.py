"""The client of the API server when that is busy."""

from __future__ import annotations

import pytest

from firsttoken_local import kube
from firsttoken_local.kube import ApiError, KubeClient, pause


class Answer:
    def __init__(self, status: int, after: str | None) -> None:
        self.status, self.after = status, after

    def getheader(self, name: str) -> str | None:
        assert name == "Retry-After"
        return self.after


def client(monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, str | None]) -> tuple[KubeClient, list[float]]:
    """A client that gets these answers one by one, the last one for ever; and the seconds it slept."""
    now, left, slept = [0.0], list(answers), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    def send(*_: object) -> tuple[Answer, bytes]:
        status, after = left.pop(0) if len(left) > 1 else left[0]
        return Answer(status, after), b'{"items": []}' if status < 400 else b'{"message": "storage is initializing"}'

    one = KubeClient.__new__(KubeClient)
    monkeypatch.setattr(one, "_send", send)
    monkeypatch.setattr(kube.time, "sleep", sleep)
    monkeypatch.setattr(kube.time, "monotonic", lambda: now[0])
    return one, slept


def test_a_busy_server_is_asked_again_when_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    one, slept = client(monkeypatch, (429, "2"), (503, "1"), (429, None), (200, None))
    assert one.request("GET", "/x") == {"items": []}
    assert slept == [2.0, 1.0, 1.0]


def test_a_server_that_stays_busy_is_given_up_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    one, slept = client(monkeypatch, (429, "1"))
    with pytest.raises(ApiError, match="storage is initializing"):
        one.request("GET", "/x")
    assert sum(slept) <= kube.BUSY_S


@pytest.mark.parametrize("status", [400, 403, 404, 409, 500, 503])
def test_other_refusals_are_final(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    one, slept = client(monkeypatch, (status, None))
    with pytest.raises(ApiError):
        one.request("GET", "/x")
    assert slept == []


def test_a_pause_is_never_none_at_all() -> None:
    assert pause(429, "0") == 0.1
    assert pause(429, "soon") == 1.0
    assert pause(404, "1") is None
