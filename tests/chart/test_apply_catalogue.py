"""The script that keeps the accelerator catalogue up to date."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

SCRIPT = Path(__file__).parents[2] / "charts" / "firsttoken" / "files" / "apply_catalogue.py"
PROFILE = {"apiVersion": "firsttoken.dev/v1alpha1", "kind": "AcceleratorProfile", "metadata": {"name": "cpu"}}


def refusal(status: int, **body: Any) -> ApiException:
    error = ApiException(status=status, reason="Refused")
    error.body = json.dumps(body) if body else None
    return error


class Api:
    """Answers in turn, the last one for ever."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[Any, ...]] = []
        self.options: dict[str, Any] = {}

    def patch_cluster_custom_object(self, *args: Any, **options: Any) -> None:
        self.calls.append(args)
        self.options = options
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("apply_catalogue", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.log.setLevel("INFO")
    clock = iter(range(10_000))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    return module


def test_profiles_are_applied_without_force(script: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    api = Api(None)
    assert script.settle(api, PROFILE, 100)
    assert api.calls == [("firsttoken.dev", "v1alpha1", "acceleratorprofiles", "cpu", PROFILE)]
    assert api.options["force"] is False
    assert api.options["field_manager"] == "firsttoken-catalogue"
    assert api.options["_content_type"] == "application/apply-patch+yaml"
    assert caplog.messages == ["cpu: applied"]


def test_an_edited_profile_is_left_and_the_log_says_who_edited_what(
    script: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    cause = {"message": 'conflict with "kubectl-edit" using firsttoken.dev/v1alpha1', "field": ".spec.memory"}
    assert script.settle(Api(refusal(409, details={"causes": [cause]})), PROFILE, 100)
    expected = 'cpu: left as it is: conflict with "kubectl-edit" using firsttoken.dev/v1alpha1: .spec.memory'
    assert caplog.messages == [expected]


@pytest.mark.parametrize("fault", [refusal(404), refusal(429), refusal(503), HTTPError("refused")])
def test_what_may_pass_is_tried_again(script: ModuleType, fault: Exception) -> None:
    api = Api(fault, fault, None)
    assert script.settle(api, PROFILE, 100)
    assert len(api.calls) == 3
    assert not script.settle(Api(fault), PROFILE, 100)


def test_what_is_refused_is_not_tried_again(script: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    api = Api(refusal(403, message="not allowed"))
    assert not script.settle(api, PROFILE, 100)
    assert len(api.calls) == 1
    assert caplog.messages == ["cpu: 403 not allowed"]
