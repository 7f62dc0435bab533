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
# Digits are bounded so that no sum of parts leaves the calendar: 32 characters hold less than 500 years.
DURATION_PATTERN = r"^([0-9]{1,6}(\.[0-9]{1,6})?(ms|s|m|h)|[0-9]{1,4}(\.[0-9]{1,6})?d)+$"
DURATION_BOUND = "a number of at most 6 digits (4 for d) with a unit, such as 1200ms, 1.5s, 10m or 2h"
_DURATION = re.compile(DURATION_PATTERN.removesuffix("$") + r"\Z")
_LONGEST_DURATION = 32  # characters
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12), "P": Decimal(10**15),
    "E": Decimal(10**18),
}  # fmt: skip
# A suffix or an exponent: `1E` is 10^18, `1E3` is 1000. Kubernetes caps at 2^63 - 1, so exponents have two digits.
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,2})|([A-Za-z]*))")


def duration_seconds(text: str) -> float:
    """Seconds in a duration such as `1200ms`, `1h30m` or `2d`. Raises ValueError on anything else."""
    if len(text) > _LONGEST_DURATION or not _DURATION.match(text):
        raise ValueError(f"not a duration: {text[:64]!r}; write {DURATION_BOUND}")
    return float(sum(Decimal(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))


def quantity(text: str | int | float) -> Decimal:
    """The number a Kubernetes quantity stands for (`500m` is 0.5, `1Gi` 1073741824, `1e3` 1000). Raises ValueError."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"not a quantity: {text!r}; write a number with a unit, such as 500m, 16Gi or 80")
    number, exponent, unit = match.groups()
    if exponent is not None:
        return Decimal(number).scaleb(int(exponent))
    if unit in _BINARY:
        return Decimal(number) * _BINARY[unit]
    if unit in _DECIMAL:
        return Decimal(number) * _DECIMAL[unit]
    raise ValueError(f"not a quantity: {text!r}; unknown unit {unit!r}")
