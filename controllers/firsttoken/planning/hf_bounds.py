"""What a value out of somebody's config.json may be, and how a message quotes it."""

import math
from collections.abc import Mapping
from typing import Any

from firsttoken.planning.refusal import InfeasibleError

MOST = 2**31 - 1  # of a count, as in the API
MOST_WHOLE = 2**63 - 1  # what the API server stores without a loss
LONGEST_TEXT = 128  # characters; the longest published class name has about 50
_QUOTED = 40  # characters of a value in a message


def refuse(field: str, value: Any, what: str) -> InfeasibleError:
    """The refusal of a value: the field by its path in config.json, what it holds, and what is wrong with it."""
    return InfeasibleError("UnknownModel", f"config.json: {field} is {quoted(value)}, {what}")


def scalar(field: str, value: Any) -> Any:
    """`value`: null, a boolean, a finite number, or text. Raises InfeasibleError for what no record can hold."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise refuse(field, value, f"longer than {LONGEST_TEXT} characters")
        if not value.isprintable():
            raise refuse(field, value, "with characters that are no text")
        return value
    if isinstance(value, int) and abs(value) <= MOST_WHOLE:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise refuse(field, value, f"not a finite number up to {MOST_WHOLE}")


def dimension(config: Mapping[str, Any], field: str, most: int, otherwise: int | None = None) -> int:
    """A whole number from 1 to `most` at the last name of `field`, its path in config.json; `otherwise` if absent.

    Raises InfeasibleError for anything else.
    """
    value = config.get(field.rpartition(".")[2])
    if value is None and otherwise is not None:
        return otherwise
    if value is None:
        raise InfeasibleError("UnknownModel", f"config.json: {field} is missing")
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 or not 1 <= value <= most:
        raise refuse(field, value, f"not a whole number from 1 to {most}")
    return int(value)


def is_container(value: Any) -> bool:
    """Whether it holds other values: an object or a list."""
    return isinstance(value, Mapping | list | tuple)


def quoted(value: Any, most: int = _QUOTED) -> str:
    """A value as a message shows it: on one line, and of at most `most` characters."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        # What lists hold may be nested deeper than `str` can go.
        text = "a list" if any(map(is_container, value[:_QUOTED])) else str(list(value[:_QUOTED]))
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = value[: most + 1] if isinstance(value, str) else str(value)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[: most + 1])
    return text if len(text) <= most else text[: most - 1] + "…"
