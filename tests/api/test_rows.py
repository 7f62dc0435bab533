"""Every row of docs/validation.md without a cluster (e2e/validation asks a real API server the same)."""

from pathlib import Path

import pytest

from api.rows import rejected_yaml
from api.test_crds import walk
from firsttoken.api.example import BASES, Example
from firsttoken.api.schema import VALIDATIONS
from firsttoken.api.validation import check_object, schemas, validate
from firsttoken.api.validation_docs import text
from firsttoken.api.validation_examples import EXAMPLES, merge, rejected

PAGE = Path(__file__).parents[2] / "docs" / "validation.md"
REFUSED = [e for e in EXAMPLES if not e.change]


@pytest.mark.parametrize("example", REFUSED, ids=lambda e: e.id)
def test_a_row_is_refused_for_one_reason_at_its_place(example: Example) -> None:
    (fault,) = validate(rejected_yaml(example)).faults
    assert fault.path == example.path
    assert fault.kind == example.kind
    assert fault.line > 1 or "metadata" not in example.path
    if example.message:
        assert fault.message == example.message


@pytest.mark.parametrize("example", REFUSED, ids=lambda e: e.id)
def test_a_message_is_one_line_that_names_a_remedy(example: Example) -> None:
    (cause,) = check_object(rejected(example))
    assert "\n" not in cause.message
    if cause.rule:
        assert len(cause.rule) <= 160, "too long for a terminal"
        assert any(mark in cause.rule for mark in (": ", ", ", "set exactly one")), cause.rule


@pytest.mark.parametrize("base", BASES.values(), ids=list(BASES))
def test_the_smallest_objects_are_valid(base: str) -> None:
    result = validate(base)
    assert result.faults == ()
    assert result.checked == 1


def test_every_rule_of_the_models_has_a_row() -> None:
    told = {cause.rule for example in REFUSED for cause in check_object(rejected(example))}
    told |= {"a revision is a record and can't be changed: edit the InferenceService"}
    untold = {
        rule["message"]
        for kind, schema in schemas().items()
        for path, child in walk(schema, kind)
        for rule in child.get(VALIDATIONS, [])
        if ".status" not in path and rule["message"] not in told
    }
    assert untold == set()


def test_rows_have_names_of_their_own() -> None:
    ids = [example.id for example in EXAMPLES]
    assert len(set(ids)) == len(ids)


def test_the_page_is_what_the_rows_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == text(), "run `make docs` and read the difference"


def test_a_patch_is_merged_as_rfc_7396_says() -> None:
    assert merge({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None, "e": 3}, "d": [2]}) == {
        "a": {"c": 2, "e": 3},
        "d": [2],
    }
