"""Reading the data files that ship with the planner: with libyaml where PyYAML has it."""

from importlib.resources import files
from typing import Any

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def documents(package: str, path: str) -> list[Any]:
    """The YAML documents of a file of a package, a fresh copy each call."""
    text = files(package).joinpath(path).read_text(encoding="utf-8")
    return list(yaml.load_all(text, _Loader))


def document(package: str, path: str) -> Any:
    """The only one of a file."""
    (found,) = documents(package, path)
    return found
