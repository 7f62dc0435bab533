"""`python -m firsttoken_operator.cli.docs FILE` writes the reference of the command line."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from firsttoken_operator.cli.application import application
from firsttoken_operator.cli.main import NAME

_INTRODUCTION = """\
<!-- Made by `python -m firsttoken_operator.cli.docs docs/cli.md` from the command line itself; don't edit. -->

# `firsttoken` on the command line

`firsttoken` and `kubectl firsttoken` (kubectl finds `kubectl-firsttoken` on the PATH) are the same program.
It is not on PyPI: `make install` in a clone puts both into `.venv/bin`, with all that they need.

Results go to stdout, everything about what went wrong to stderr, one line each. Colours appear on terminals only and
never with `NO_COLOR` set. Without a terminal, reports are laid out for 120 columns (`COLUMNS` changes that), and lines
meant for scripts are never wrapped: those of `validate`, the table of `status`, JSON and YAML.

`firsttoken --install-completion` sets up completion in your shell.
"""


def reference() -> str:
    """The whole page."""
    root: Any = typer.main.get_command(application(NAME))
    parts = [_INTRODUCTION, "\n".join(_help(root.help)), "\n".join(_options(root))]
    for name, command in root.commands.items():
        parts.append(f"## {NAME} {name}")
        parts.append("\n".join(_help(command.help)))
        parts.append("\n".join(_options(command)))
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def _help(text: str) -> Iterator[str]:
    """Paragraphs as they are; what is kept as written on a terminal (below a backspace) becomes a code block."""
    for index, paragraph in enumerate(text.strip().split("\n\n")):
        if index:
            yield ""
        if paragraph.startswith("\b"):
            title, *lines = paragraph.removeprefix("\b\n").splitlines()
            yield from (title, "", "```text", *(line.removeprefix("  ") for line in lines), "```")
        else:
            yield from paragraph.splitlines()


def _options(command: Any) -> Iterator[str]:
    # Completion options are typer's own, in words of its own; the introduction names them.
    shown = [p for p in command.params if not p.hidden and not {"install_completion", "show_completion"} & {p.name}]
    if not shown:
        return
    yield from ("| option | meaning | default |", "|---|---|---|")
    for parameter in shown:
        yield f"| {_names(parameter)} | {_meaning(parameter)} | {_default(parameter)} |"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    value = "" if parameter.is_flag else f" {_metavar(parameter)}"
    return ", ".join(f"`{name}{value}`" for name in sorted(parameter.opts, key=len))


def _metavar(parameter: Any) -> str:
    # A bare bar would end the table's cell, even inside code.
    return str(parameter.metavar).replace("|", "\\|")


def _meaning(parameter: Any) -> str:
    return str(parameter.help or "") + (" Required." if parameter.required else "")


def _default(parameter: Any) -> str:
    if parameter.required or parameter.default in (None, False, []) or callable(parameter.default):
        return ""
    return f"`{_text(parameter.default)}`"


def _text(value: Any) -> str:
    return str(getattr(value, "value", value))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
