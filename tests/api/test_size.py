"""A spec has a bounded size, so that etcd takes every object that the schema lets through."""

import json

import pytest

from api.worst_case import UnboundedError, character_width, worst_case
from firsttoken.api.schema import Schema
from firsttoken.api.validation import MAX_TEXT_CHARACTERS, schemas, validate

ETCD_LIMIT = 1_572_864  # bytes of a request (--max-request-bytes)
COPIES_IN_A_REVISION = 3  # inputs, and what two roles are rendered from


def part(kind: str, name: str) -> Schema:
    schema: Schema = schemas()[kind]["properties"][name]
    return schema


def test_the_largest_service_fits_into_etcd_with_its_status() -> None:
    assert worst_case(part("InferenceService", "spec")) + worst_case(part("InferenceService", "status")) < ETCD_LIMIT


def test_a_revision_of_the_largest_service_fits_into_etcd() -> None:
    largest = COPIES_IN_A_REVISION * worst_case(part("InferenceService", "spec"))
    assert largest + worst_case(part("InferenceRevision", "status")) < ETCD_LIMIT


def test_the_largest_profile_fits_into_etcd() -> None:
    assert worst_case(part("AcceleratorProfile", "spec")) < ETCD_LIMIT


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "object", "maxProperties": 3, "additionalProperties": {"type": "integer"}},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    ],
    ids=json.dumps,
)
def test_what_has_no_bound_is_found(schema: Schema) -> None:
    with pytest.raises(UnboundedError):
        worst_case({"type": "object", "properties": {"field": schema}})


def test_a_text_that_may_hold_anything_counts_six_bytes_a_character() -> None:
    assert character_width({"type": "string"}) == 6
    assert character_width({"type": "string", "pattern": "^[a-z]*$"}) == 1
    assert worst_case({"type": "string", "maxLength": 10}) == 62


def test_a_text_for_validation_has_a_bound() -> None:
    (fault,) = validate("#" * (MAX_TEXT_CHARACTERS + 1)).faults
    assert fault.message.startswith("too large: 524289 characters, at most 524288 are read")


def test_aliases_that_stand_for_a_lot_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    (fault,) = validate("\n".join(lines)).faults
    assert "too large: more than 100000 values" in fault.message
