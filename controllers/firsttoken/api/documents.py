"""YAML text → documents as the API server reads them, with the line of every value.

Kubernetes reads YAML 1.1 with rules of its own (`1e3` is a number, `1:30` is text, `y` is true, 1.0 is 1): PyYAML finds
the structure here, and scalars are read by Kubernetes' rules.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isinf
from typing import Any

import yaml

from firsttoken.api.cause import At, Cause, child, text_path
from firsttoken.api.go_text import number

# An alias is cheap to write and may stand for a lot: documents may not hold more values than this, written out.
MAX_VALUES = 100_000
_PLAIN = "plain"
_TRUE = frozenset(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE = frozenset(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"))
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_INTEGER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NUMBER_STARTS = tuple("0123456789+-.")
_LONGEST_INTEGER = 68  # 64 binary digits with sign and prefix
_NOT_JSON = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True)
class Document:
    """One document: its value, its first line (from 1), the line of each value, and what is wrong with its YAML."""

    index: int
    line: int
    value: Any = None
    lines: dict[At, int] = field(default_factory=dict)
    causes: tuple[Cause, ...] = ()

    def line_of(self, at: At) -> int:
        """Line of the value at `at`, or of the nearest one around it."""
        while at and at not in self.lines:
            at = at[:-1]
        return self.lines.get(at, self.line)


class TooLargeError(Exception):
    """A document holds too many values once aliases are written out."""


class _Loader(yaml.SafeLoader):
    """Marks plain scalars, so that they are told apart from quoted ones."""

    def resolve(self, kind: type[yaml.Node], value: str, implicit: Any) -> str:  # noqa: ARG002 - PyYAML's signature
        if kind is yaml.ScalarNode:
            return _PLAIN if implicit[0] else "tag:yaml.org,2002:str"
        return "tag:yaml.org,2002:seq" if kind is yaml.SequenceNode else "tag:yaml.org,2002:map"


def read(text: str) -> Iterator[Document]:
    """The documents of `text` that aren't empty; a YAML error ends them with a document that says so."""
    index = 0
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is not None and not _is_empty(node):
                yield _document(node, index)
                index += 1
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = f"not YAML: {error.problem or error.context}"
        if "\\t" in message:
            message += " (indent with spaces, not tabs)"
        yield _broken(index, message, mark.line + 1 if mark else 1)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        yield _broken(index, f"not YAML: character {error.character!r} is not allowed", line)
    except RecursionError:
        yield _broken(index, "nested too deeply: a Firsttoken object has about ten levels", 1)
    except (ValueError, OverflowError) as error:  # PyYAML on escapes such as "\UFFFFFFFF"
        yield _broken(index, f"not YAML: {error}", 1)


def plain(text: str) -> Any:
    """A plain scalar by Kubernetes' rules: null, bool, int, float or text. Raises ValueError for .inf and .nan."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    digits = text.replace("_", "")
    if _NOT_JSON.fullmatch(text):
        raise ValueError(f"{text} can't be stored: JSON has no such number")
    if text[:1] not in _NUMBER_STARTS:
        return text
    if _INTEGER.fullmatch(digits) and len(digits) < _LONGEST_INTEGER:
        value = _integer(digits)
        if -(2**63) <= value < 2**63:
            return value
    if _FLOAT.fullmatch(digits) and not isinf(float(digits)):
        return _whole(float(digits))
    return text


def _integer(digits: str) -> int:
    body = digits.lstrip("+-")
    octal = re.fullmatch("0[0-7]+", body)
    return int(body, 8 if octal else 0) * (-1 if digits.startswith("-") else 1)


def _whole(value: float) -> int | float:
    # On its way to the API server, 1.0 becomes the JSON number 1, which is an integer.
    return int(value) if value.is_integer() and abs(value) < 2**63 else value


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _PLAIN and node.value in _NULL


def _broken(index: int, message: str, line: int) -> Document:
    return Document(index, line, causes=(Cause((), message),))


def _document(node: yaml.Node, index: int) -> Document:
    reader = _Reader()
    line = node.start_mark.line + 1
    try:
        value = reader.value(node, ())
    except TooLargeError:
        return _broken(index, f"too large: more than {MAX_VALUES} values once aliases are written out", line)
    return Document(index, line, value, reader.lines, tuple(reader.causes))


class _Reader:
    """Turns nodes into values and keeps lines and faults on the way."""

    def __init__(self) -> None:
        self.lines: dict[At, int] = {}
        self.causes: list[Cause] = []
        self._left = MAX_VALUES

    def value(self, node: yaml.Node, at: At) -> Any:
        self._left -= 1
        if self._left < 0:
            raise TooLargeError
        self.lines.setdefault(at, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, at)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*at, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, at)

    def _scalar(self, node: yaml.Node, at: At) -> Any:
        if node.tag.endswith((":str", ":binary", ":timestamp")) or node.tag.startswith("!"):
            return str(node.value)
        try:
            return plain(str(node.value))
        except ValueError as error:
            self.causes.append(Cause(at, str(error), blocks=True))
            return None

    def _mapping(self, node: yaml.MappingNode, at: At) -> dict[str, Any]:
        out: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _PLAIN and key_node.value == "<<":
                merged = self._merged(value_node, at) | merged
                continue
            key = self._key(key_node, at)
            if key is None:
                continue
            if key in out:
                where = child(at, key)
                line = key_node.start_mark.line + 1
                self.causes.append(Cause(where, f'key "{key}" already set in map', text_path(where), line=line))
                continue
            self.lines[child(at, key)] = key_node.start_mark.line + 1
            out[key] = self.value(value_node, child(at, key))
        return merged | out

    def _key(self, node: yaml.Node, at: At) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self.causes.append(Cause(at, "a key must be text, not a map or a list"))
            return None
        key = self._scalar(node, at)
        if isinstance(key, bool):
            return "true" if key else "false"
        return number(key) if isinstance(key, int | float) else str(key if key is not None else "null")

    def _merged(self, node: yaml.Node, at: At) -> dict[str, Any]:
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        out: dict[str, Any] = {}
        for part in parts:
            value = self.value(part, at)
            if isinstance(value, dict):
                out = value | out
            else:
                self.causes.append(Cause(at, "map merge requires map or sequence of maps as the value"))
        return out
