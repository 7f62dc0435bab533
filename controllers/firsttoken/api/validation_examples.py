"""The rows of docs/validation.md as a whole: rejected documents and what is said about them."""

from typing import Any

from firsttoken.api import examples_change, examples_engine, examples_model, examples_pod
from firsttoken.api.documents import read
from firsttoken.api.example import BASES, Example

EXAMPLES: tuple[Example, ...] = (
    *examples_model.EXAMPLES,
    *examples_engine.ENGINE,
    *examples_change.CHANGE,
    *examples_pod.EXAMPLES,
)


def rejected(example: Example) -> dict[str, Any]:
    """The object that `example` is about."""
    merged: dict[str, Any] = merge(_load(BASES[example.kind]), _load(example.patch))
    return merged


def merge(target: Any, patch: Any) -> Any:
    """`patch` merged into `target` as RFC 7396 says: maps by key, null removes, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge(out.get(key), value)
    return out


def _load(text: str) -> Any:
    (document,) = read(text)
    return document.value
