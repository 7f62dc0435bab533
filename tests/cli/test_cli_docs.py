"""docs/cli.md is what the program says of itself."""

from pathlib import Path

from firsttoken_operator.cli.docs import reference

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def test_the_reference_is_up_to_date() -> None:
    remedy = "run: python -m firsttoken_operator.cli.docs docs/cli.md"
    assert PAGE.read_text(encoding="utf-8") == reference(), remedy
