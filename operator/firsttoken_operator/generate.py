"""Writes what is generated from the code: `python -m firsttoken_operator.generate crds|validation|fields|cli [PATH]`.

The texts are made elsewhere, without I/O; `make crds` and `make docs` call this.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from firsttoken.api import crd, validation_docs
from firsttoken_operator.cli import docs, field_docs


def write_crds(directory: Path) -> None:
    """One CustomResourceDefinition a file below `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in crd.files().items():
        (directory / name).write_text(text, encoding="utf-8")


def write_validation(file: Path) -> None:
    """The page about what is refused."""
    _write(file, validation_docs.text())


def write_fields(file: Path) -> None:
    """The page about the fields of a service."""
    _write(file, field_docs.reference())


def write_cli(file: Path) -> None:
    """The page about the command line."""
    _write(file, docs.reference())


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


WRITERS: Mapping[str, tuple[Callable[[Path], None], Path]] = {
    "crds": (write_crds, Path("crds")),
    "validation": (write_validation, Path("docs/validation.md")),
    "fields": (write_fields, Path("docs/fields.md")),
    "cli": (write_cli, Path("docs/cli.md")),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write one of them; without a path, where it lies in the repository (from the repository's root)."""
    parser = argparse.ArgumentParser(
        prog="python -m firsttoken_operator.generate", description="Write what is generated."
    )
    parser.add_argument("what", choices=tuple(WRITERS))
    parser.add_argument("path", nargs="?", type=Path, help="file or directory; default: its place in the repository")
    given = parser.parse_args(arguments)
    write, place = WRITERS[given.what]
    write(given.path or place)


if __name__ == "__main__":
    main()
