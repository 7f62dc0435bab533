"""Values as Go's fmt prints them, since the API server's messages quote them so."""

from decimal import Decimal
from typing import Any

_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"',
}  # fmt: skip


def quoted(text: str) -> str:
    """`text` as `%q` prints it."""
    return '"' + "".join(_character(c) for c in text) + '"'


def number(value: int | float) -> str:
    """`value` as `%v` prints it: the fewest digits that are exact, an exponent below 1e-4 and from 1e+06 on."""
    if isinstance(value, int):
        return str(value)
    sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
    exponent = Decimal(repr(value)).adjusted()
    if -4 <= exponent < 6 or value == 0:
        return f"{value!r}".removesuffix(".0")
    text = "".join(map(str, digits))
    mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def scalar(value: Any) -> str:
    """`value` as `field.Error` prints a bad value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value) if isinstance(value, str) else number(value)


def _character(c: str) -> str:
    if c in _ESCAPES:
        return _ESCAPES[c]
    if c.isprintable():
        return c
    code = ord(c)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
