"""The entry point of `firsttoken` and `kubectl firsttoken`: runs one command and turns what it raises into one line."""

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import typer
from typer.exceptions import TyperException

from firsttoken_operator.cli.application import application
from firsttoken_operator.cli.console import complain, flush, mute, nowhere
from firsttoken_operator.cli.errors import CliError, Ended, ExitCode, PipeClosed

NAME = "firsttoken"
KUBECTL_PREFIX = "kubectl-"


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv[1:], program_name(sys.argv[0])))


def program_name(path: str) -> str:
    """What the caller typed: kubectl starts `kubectl-firsttoken` for `kubectl firsttoken`."""
    name = Path(path).name.removesuffix(".exe")
    return f"kubectl {NAME}" if name.startswith(KUBECTL_PREFIX) else NAME


def main(arguments: Sequence[str], program: str = NAME) -> int:
    """Run one command; the exit code. Never raises, never prints a traceback without --debug."""
    _prepare_streams()
    try:
        code = _command(arguments, program)
    except (PipeClosed, BrokenPipeError):
        code = _abandon_stdout()
    except Ended as end:
        code = end.code
    except CliError as error:
        complain(f"{program}: {error}")
        code = error.code
    except TyperException as error:
        message = error.format_message().rstrip(".").replace("Value error, ", "")  # pydantic's words, inside typer
        complain(f"{program}: {message} (see `{_help_of(error, program)}`)")
        code = ExitCode.BAD_INPUT
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except Exception as error:
        code = _defect(error, arguments, program)
    return _flushed(int(code))


def _command(arguments: Sequence[str], program: str) -> int:
    command = typer.main.get_command(application(program))
    try:
        result = command.main(list(arguments), prog_name=program, standalone_mode=False)
    except SystemExit as end:  # completion scripts end so
        result = end.code
    except typer.Abort:
        return ExitCode.INTERRUPTED
    return int(result) if isinstance(result, int) else ExitCode.DONE


def _help_of(error: TyperException, program: str) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context is not None else program} --help"


def _defect(error: Exception, arguments: Sequence[str], program: str) -> int:
    if "--debug" in arguments:
        for line in traceback.format_exc().splitlines():
            complain(line)
    text = " ".join(str(error).split())[:300]
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    again = "" if "--debug" in arguments else f"; `{program} --debug …` shows where, please report it"
    complain(f"{program}: unexpected {what}{again}")
    return ExitCode.DEFECT


def _prepare_streams() -> None:
    """Output never fails over a character that the terminal can't show, nor because the caller closed a stream."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, nowhere())
        reconfigure = getattr(getattr(sys, name), "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _abandon_stdout() -> int:
    """Nobody reads any more (`| head`): end quietly, as programs in C do."""
    sys.stdout = nowhere()
    return ExitCode.PIPE_CLOSED


def _flushed(code: int) -> int:
    """Flush here, where a full disk or a closed pipe can still be told; the interpreter would print a traceback."""
    try:
        flush()
    except PipeClosed:
        return _abandon_stdout()
    except CliError as error:
        _abandon_stdout()
        complain(str(error))
        return code or ExitCode.DEFECT
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        mute()
    return code


if __name__ == "__main__":
    run()
