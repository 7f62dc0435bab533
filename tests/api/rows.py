"""Rows of docs/validation.md as files."""

import yaml

from firsttoken.api.example import Example
from firsttoken.api.validation_examples import rejected


def rejected_yaml(example: Example) -> str:
    """The object that `example` is about, as YAML text."""
    return yaml.safe_dump(rejected(example), sort_keys=False, allow_unicode=True, width=10**6)
