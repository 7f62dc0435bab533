"""Kubernetes' notation for durations and resource quantities, parsed to plain numbers."""

import re
from decimal import Decimal

_SECONDS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15),
}  # fmt: skip
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)")


def duration_seconds(text: str) -> float:
    """Seconds in a duration such as `1200ms`, `1h30m` or `2d`. Raises ValueError on anything else."""
    parts = _PART.findall(text)
    if not parts or "".join(n + u for n, u in parts) != text:
        raise ValueError(f"not a duration: {text!r}; write a number with a unit, such as 1200ms, 1.5s, 10m or 2h")
    return float(sum(Decimal(number) * _SECONDS[unit] for number, unit in parts))


def quantity(text: str | int | float) -> Decimal:
    """The number a Kubernetes quantity stands for (`500m` is 0.5, `1Gi` is 1073741824). Raises ValueError."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"not a quantity: {text!r}; write a number with a unit, such as 500m, 16Gi or 80")
    number, unit = match.groups()
    if unit in _BINARY:
        return Decimal(number) * _BINARY[unit]
    if unit in _DECIMAL:
        return Decimal(number) * _DECIMAL[unit]
    raise ValueError(f"not a quantity: {text!r}; unknown unit {unit!r}")
