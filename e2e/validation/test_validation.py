"""Every row of docs/validation.md against a real API server: what it refuses, where, and in which words."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.validation.conftest import path_of
from e2e.validation.random_objects import random_object

from firsttoken.api.example import BASES, Example
from firsttoken.api.schema import with_defaults
from firsttoken.api.validation import check_object, schemas
from firsttoken.api.validation_examples import EXAMPLES, rejected

MANIFESTS = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
REFUSED = [e for e in EXAMPLES if not e.change]
OURS = set(schemas())


def ids(example: Example) -> str:
    return example.id


@pytest.mark.parametrize("example", REFUSED, ids=ids)
def test_a_row_is_refused_with_the_message_that_validation_gives_offline(server: Any, example: Example) -> None:
    value = rejected(example)
    expected = {(cause.path, cause.message) for cause in check_object(value)}
    answer = server.create(value, dryRun="All")
    if answer.code == 400:  # strict decoding has no causes, its faults stand in the message
        assert all(message in answer.body["message"] for _, message in expected), answer.body["message"]
    else:
        assert answer.code == 422, answer.body
        assert answer.causes == expected


@pytest.mark.parametrize("example", REFUSED, ids=ids)
def test_a_row_is_refused_by_server_side_apply_too(server: Any, example: Example) -> None:
    assert server.apply(rejected(example), dryRun="All", force="true").code in (400, 422, 500)


@pytest.mark.parametrize("base", BASES.values(), ids=list(BASES))
def test_the_smallest_objects_are_accepted_and_get_the_defaults_we_expect(server: Any, base: str) -> None:
    value = yaml.safe_load(base)
    answer = server.create(value, dryRun="All")
    assert answer.code == 201, answer.body
    assert answer.body["spec"] == with_defaults(value, schemas()[value["kind"]])["spec"]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=[m.name for m in MANIFESTS])
def test_an_example_is_accepted(server: Any, manifest: Path) -> None:
    values = [v for v in yaml.safe_load_all(manifest.read_text(encoding="utf-8")) if v and v["kind"] in OURS]
    for value in values:
        value["metadata"].pop("namespace", None)
        answer = server.create(value, dryRun="All")
        assert answer.code == 201, answer.body.get("message")


def test_a_change_of_a_revision_is_refused(server: Any) -> None:
    (example,) = (e for e in EXAMPLES if e.change)
    stored = yaml.safe_load(BASES[example.kind])
    assert server.apply(stored, force="true").code in (200, 201)
    answer = server.apply(rejected(example), force="true")
    assert answer.code == 422
    message = "Invalid value: a revision is a record and can't be changed: edit the InferenceService"
    assert answer.causes == {(example.path, message)}
    assert server.request("DELETE", f"{path_of(example.kind)}/{stored['metadata']['name']}").code == 200


# A map has no order: which of several flags a message names is up to the API server.
NAMED = re.compile(r"(extraArgs (?:has|sets)) [^:,]+")


@pytest.mark.parametrize("seed", range(0, 300, 50))
def test_random_objects_are_judged_alike(server: Any, seed: int) -> None:
    """Fifty objects a case: same verdict, same places, same words, same defaults."""
    verdicts = set()
    for number in range(seed, seed + 50):
        value = random_object(number)
        ours = {(c.path, NAMED.sub(r"\1 …", c.message)) for c in check_object(value)}
        answer = server.create(value, dryRun="All")
        theirs = {(field, NAMED.sub(r"\1 …", message)) for field, message in answer.causes}
        verdicts.add(answer.code)
        if answer.code == 201:
            assert not ours, number
            assert answer.body["spec"] == with_defaults(value, schemas()[value["kind"]])["spec"], number
        elif answer.code == 422:
            assert theirs == ours if answer.judged else theirs <= ours, number
        else:
            assert any(message in answer.body["message"] for _, message in ours), number
    assert verdicts >= {201, 422}
