"""How commands end: exit codes that scripts may rely on (DESIGN §7), and the errors that carry them."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process says to its caller."""

    DONE = 0
    NO = 1  # the answer is no: infeasible, not ready, not found
    BAD_INPUT = 2
    UNREACHABLE = 3  # the cluster can't be asked
    DEFECT = 70  # sysexits' EX_SOFTWARE: a defect of this program
    INTERRUPTED = 130  # 128 + SIGINT, as shells say it
    PIPE_CLOSED = 141  # 128 + SIGPIPE, as shells say it


class CliError(Exception):
    """Ends the command with one line on stderr."""

    code = ExitCode.DEFECT


class AnswerIsNo(CliError):  # noqa: N818 - named after the exit code
    """The question was answered, with no."""

    code = ExitCode.NO


class BadInput(CliError):  # noqa: N818 - named after the exit code
    """The caller has to correct a file, a flag or a kubeconfig."""

    code = ExitCode.BAD_INPUT


class Unreachable(CliError):  # noqa: N818 - named after the exit code
    """The cluster doesn't answer, doesn't let us in, or doesn't know Firsttoken."""

    code = ExitCode.UNREACHABLE


class Ended(CliError):  # noqa: N818 - not an error to tell: everything was said already
    """Ends the command with a code and without another line."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__("")
        self.code = code


class PipeClosed(CliError):  # noqa: N818 - not an error to tell: nobody reads
    """Whoever read our output has gone. Not a BrokenPipeError: typer would turn that into exit code 1."""

    code = ExitCode.PIPE_CLOSED


def end(code: ExitCode) -> None:
    """Ends the command with `code`, unless it is DONE: then it ends by itself."""
    if code is not ExitCode.DONE:
        raise Ended(code)
