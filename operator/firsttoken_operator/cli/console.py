"""Where output goes: colours only for a terminal (and never with NO_COLOR), plain stable text for everything else."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from firsttoken_operator.cli.errors import CliError, PipeClosed

# Reports in a pipe or a log are laid out for this many columns unless COLUMNS says otherwise.
PLAIN_WIDTH = 120


def stdout() -> Console:
    """A console on standard output."""
    # A console finds width and colour itself on a terminal; markup stays off, because text comes from users' files.
    if sys.stdout.isatty():
        return Console(markup=False, highlight=False, emoji=False)
    return Console(markup=False, highlight=False, emoji=False, width=plain_width(), color_system=None)


def plain_width() -> int:
    """Columns where there is no terminal."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdigit() and 20 <= int(columns) <= 1000 else PLAIN_WIDTH


def show(*parts: RenderableType) -> None:
    """Print a report for people. Lines end where their text ends: padding would only fill logs."""
    console = stdout()
    if console.is_terminal:
        with written():
            for part in parts:
                console.print(part)
        return
    buffer = io.StringIO()
    plain = Console(
        file=buffer, width=console.width, markup=False, highlight=False, emoji=False, color_system=None, no_color=True
    )
    for part in parts:
        plain.print(part)
    for line in buffer.getvalue().splitlines():
        echo(line.rstrip())


def echo(text: str) -> None:
    """Print one line, never wrapped: for scripts, and for documents such as JSON and YAML."""
    with written():
        sys.stdout.write(f"{text}\n")


def flush() -> None:
    """What was printed leaves now: somebody watches."""
    with written():
        sys.stdout.flush()


@contextmanager
def written() -> Iterator[None]:
    """Turns what can go wrong with writing into this program's own errors."""
    try:
        yield
    except BrokenPipeError as error:
        raise PipeClosed from error
    except OSError as error:
        raise CliError(f"output can't be written: {error.strerror or error}") from error


def complain(text: str) -> None:
    """One line on stderr. Where that can't be written, the exit code has to say it all, and is left as it is."""
    try:
        sys.stderr.write(f"{printable(text)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # a full disk, a closed pipe; a stream that was closed
        mute()


def mute() -> None:
    """Nothing more goes to stderr. What it still holds would fail again at the interpreter's end, with another code."""
    sys.stderr = nowhere()


def nowhere() -> TextIO:
    """A stream that takes everything."""
    return Path(os.devnull).open("w", encoding="utf-8")


def printable(text: str) -> str:
    """`text` on one line and without control characters: a file's content must not steer the terminal."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return " " if character in "\n\t" else character.encode("unicode_escape").decode("ascii")


def columns(*headings: str, right: frozenset[int] = frozenset()) -> Table:
    """A table without lines, as kubectl prints them; `right` numbers the columns that are aligned to the right."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold", show_edge=False)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index in right else "left", overflow="fold")
    return table


def pairs(rows: list[tuple[str, RenderableType]], indent: int = 2) -> Table:
    """Names and values, two columns; a long value is wrapped beside its name."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False, show_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(" " * indent + name, value)
    return table


def heading(text: str) -> Text:
    """The line above a section."""
    return Text(f"\n{text}", style="bold")


def bullets(sentences: list[str], indent: int = 2) -> Table:
    """Sentences under each other, continuation lines aligned."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=False, show_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for sentence in sentences:
        table.add_row(" " * indent + "-", Text(sentence))
    return table


Painter = Callable[[str, str], str]


def painter() -> Painter:
    """Colours single words of stable lines: `paint(text, style)` gives the text back unchanged unless on a terminal."""
    console = stdout()
    if not console.is_terminal or console.no_color:
        return lambda text, _style: text

    def paint(text: str, style: str) -> str:
        with console.capture() as captured:
            console.print(text, style=style, end="", soft_wrap=True)
        return captured.get()

    return paint
