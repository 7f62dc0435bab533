"""Running the command line inside the test process, through the same door as the console script."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from firsttoken_operator.cli.main import main


@dataclass(frozen=True)
class Result:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`cli("validate", "-f", path)`; a defect of ours (code 70) fails the test at once."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("KUBECONFIG", raising=False)

    def run(*arguments: object, program: str = "firsttoken") -> Result:
        code = main([str(a) for a in arguments], program)
        out, err = capsys.readouterr()
        assert code != 70, err
        return Result(code, out, err)

    return run
