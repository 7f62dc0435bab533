"""Values as the API server gives them back, so that a comparison of desired and observed sees no difference.

The API server rewrites quantities (`1000m` becomes `1`, `1024Mi` becomes `1Gi`) and leaves out empty lists, nulls,
empty `env` values and `readOnly: false`. What users pass through the pod template is brought into that form here.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from firsttoken.api.quantities import quantity

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")


def canonical_quantity(value: str | int | float) -> str:
    """`value` in Kubernetes' canonical form; unparsable text is returned as it is (the API server refuses it)."""
    text = str(value)
    try:
        number = quantity(text)
    except ValueError:
        return text
    if text.endswith("i") and number >= 1024 and number == number.to_integral_value():
        return _scaled(int(number), 1024, _BINARY)
    nano = int((number * 10**9).to_integral_value(rounding="ROUND_CEILING"))
    return _scaled(nano, 1000, _DECIMAL) if nano else "0"


def _scaled(number: int, base: int, suffixes: tuple[str, ...]) -> str:
    """The largest suffix that leaves a whole number."""
    step = 0
    while number % base == 0 and step < len(suffixes) - 1:
        number //= base
        step += 1
    return f"{number}{suffixes[step]}"


def gibibytes(size: int | Decimal) -> str:
    """`size` bytes, rounded up to whole GiB, as a canonical quantity."""
    whole = -(-int(size) // 2**30)
    return canonical_quantity(f"{whole}Gi")


def passthrough(value: Any) -> Any:
    """A user's Kubernetes value without what the API server would leave out.

    Empty maps stay: `emptyDir: {}` and an empty label selector mean something.
    """
    if isinstance(value, Mapping):
        return {
            key: passthrough(item)
            for key, item in value.items()
            if item is not None and item != [] and not (key == "readOnly" and item is False)
        }
    return [passthrough(item) for item in value] if isinstance(value, list) else value


def environment(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A user's `env` entry: an empty `value` is the same as none."""
    return {key: item for key, item in passthrough(entry).items() if not (key == "value" and item == "")}
