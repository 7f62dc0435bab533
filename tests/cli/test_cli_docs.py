"""docs/cli.md and docs/fields.md are what the program and its models say of themselves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from firsttoken.api.validation import schemas
from firsttoken.planning.workload import DEFAULTS
from firsttoken_operator.cli import field_docs
from firsttoken_operator.cli.docs import reference

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def test_the_reference_is_up_to_date() -> None:
    remedy = "run: python -m firsttoken_operator.cli.docs docs/cli.md"
    assert PAGE.read_text(encoding="utf-8") == reference(), remedy


def test_the_fields_are_up_to_date_and_complete() -> None:
    text = (PAGE.parent / "fields.md").read_text(encoding="utf-8")
    assert text == field_docs.reference(), "run `make docs`"
    spec = schemas()["InferenceService"]["properties"]["spec"]
    for path, field in leaves(spec, ""):
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{path}` |")]
        _, _, _, default, allowed, meaning, _ = (cell.strip() for cell in row.replace("\\|", "¦").split("|"))
        assert meaning, path
        if "default" in field:
            assert default == f"`{json.dumps(field['default']).strip(chr(34))}`", path
        for value in field.get("enum", ()):
            assert str(value) in allowed, path


def leaves(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fields without fields of their own, Kubernetes' left out."""
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        if "properties" in child and here not in ("podTemplate.spec", "podTemplate.metadata"):
            yield from leaves(child, here)
        elif here not in ("podTemplate.spec", "podTemplate.metadata"):
            yield here, child
            yield from leaves(child.get("items", {}), f"{here}[]")


def test_the_profiles_lengths_and_promises_are_among_the_fields() -> None:
    text = field_docs.reference()
    for profile, default in DEFAULTS.items():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{profile.value}` |")]
        assert f"{default.prompt_p50} / {default.prompt_p95}" in row
        assert all(slo.target in row for slo in default.slos)
