"""Whether a value has the types that its dataclass says: what was read back from storage may have been edited."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def check_types(value: Any, hint: Any, path: str) -> None:
    """Raises TypeError that names the path of the first value of another type. Numbers must be finite."""
    if isinstance(hint, type) and is_dataclass(hint):
        if not isinstance(value, hint):
            raise TypeError(f"{path} is {type(value).__name__}")
        hints = _hints(hint)
        for one in fields(hint):
            check_types(getattr(value, one.name), hints[one.name], f"{path}.{one.name}")
        return
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None and NoneType in inner:
            return
        (hint,) = (i for i in inner if i is not NoneType)
        check_types(value, hint, path)
    elif origin is tuple:
        _check_each(value, tuple, inner[0], path)
    elif origin is Mapping:
        _check_each(value, Mapping, inner[1], path)
    elif hint is not Any and not _is(value, hint):
        raise TypeError(f"{path} is {str(value)[:40]!r}, not {hint.__name__}")


@lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _check_each(value: Any, kind: type, hint: Any, path: str) -> None:
    found: Any = value
    if not isinstance(found, kind):
        raise TypeError(f"{path} is {type(value).__name__}")
    pairs: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, one in pairs:
        check_types(one, hint, f"{path}[{key}]")


def _is(value: Any, hint: type) -> bool:
    if isinstance(value, bool) and hint is not bool:
        return False
    if hint is float:
        return isinstance(value, (int, float)) and math.isfinite(value)
    return isinstance(value, hint)
