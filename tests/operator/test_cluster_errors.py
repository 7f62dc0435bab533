"""What the API server's refusals mean to the operator: again, never again, or when."""

import json
from typing import Any

import pytest
from kubernetes.aio.client.exceptions import ApiException

from firsttoken_operator.cluster import ClusterError, _cluster_error


def answer(status: int, body: Any, **headers: str) -> ClusterError:
    error = ApiException(status=status, reason="reason phrase", body=body)
    error.headers = {key.replace("_", "-"): value for key, value in headers.items()}
    return _cluster_error(error)


def test_reason_and_message_come_from_the_status_object() -> None:
    error = answer(422, json.dumps({"kind": "Status", "reason": "Invalid", "message": "spec.x: too long"}))
    assert (error.status, error.reason, error.message) == (422, "Invalid", "spec.x: too long")
    assert str(error) == "422 Invalid: spec.x: too long"


@pytest.mark.parametrize("body", ["<html>bad gateway</html>", "", None])
def test_an_answer_that_is_no_status_object_is_told_as_it_is(body: str | None) -> None:
    error = answer(502, body)
    assert (error.status, error.reason, error.message) == (502, "reason phrase", body or "")


def test_a_long_page_of_a_proxy_is_cut() -> None:
    assert len(answer(502, "x" * 10_000).message) == 500


@pytest.mark.parametrize(("value", "seconds"), [("7", 7.0), ("0", 0.0), ("soon", None), ("-1", None)])
def test_K8_retry_after_in_seconds_is_read(value: str, seconds: float | None) -> None:
    assert answer(429, "{}", Retry_After=value).retry_after == seconds


def test_without_headers_there_is_no_time() -> None:
    error = ApiException(status=500, reason="x", body="{}")
    assert _cluster_error(error).retry_after is None


@pytest.mark.parametrize("status", [400, 403, 405, 413, 415, 422])
def test_what_would_be_refused_again_is_a_refusal(status: int) -> None:
    assert ClusterError(status, "r", "m").is_refusal


@pytest.mark.parametrize("status", [0, 401, 409, 429, 500, 502, 503, 504])
def test_what_may_pass_is_none(status: int) -> None:
    assert not ClusterError(status, "r", "m").is_refusal


def test_a_namespace_that_goes_away_is_no_refusal_of_the_object() -> None:
    error = ClusterError(403, "Forbidden", "unable to create new content in namespace x because it is being terminated")
    assert error.is_terminating
    assert not error.is_refusal
    assert not ClusterError(403, "Forbidden", "no permission").is_terminating


@pytest.mark.parametrize("body", ['"overloaded"', "[]", "null", "1"])
def test_json_that_is_no_status_object_is_told_as_it_is(body: str) -> None:
    assert answer(503, body).message == body
