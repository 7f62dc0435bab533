"""`firsttoken accuracy`: every row of a file of measured runs, predicted by simulation and compared."""

import io
import json
import math

from rich.console import RenderableType
from rich.text import Text

from firsttoken.simulation.errors import SimulationInputError
from firsttoken.simulation.measured_runs import read_runs
from firsttoken.simulation.replay import Replay
from firsttoken.simulation.replay_report import Compared, Errors, Report, report
from firsttoken_operator.cli.console import columns, echo, heading, printable, show
from firsttoken_operator.cli.errors import BadInput, ExitCode
from firsttoken_operator.cli.files import Source, Unreadable, large
from firsttoken_operator.cli.simulator import compiled

MAX_BYTES = 256 * 2**20
WORST = 5


def accuracy(path: str, *, as_json: bool) -> ExitCode:
    """Predict all rows of `path` and show how far off they are; NO if none could be predicted."""
    try:
        source = _text(path)
        runs, refused = read_runs(io.StringIO(source.text, newline=None), source.name)
    except SimulationInputError as error:
        raise BadInput(str(error)) from error
    if not runs and not refused:
        raise BadInput(f"{path}: has a header and no rows: give at least one measured run")
    compiled()
    found = report(runs, refused, Replay())
    if as_json:
        echo(json.dumps(found.wire(), indent=2, ensure_ascii=False))
    else:
        show(*_view(found))
    return ExitCode.DONE if found.compared else ExitCode.NO


def _text(path: str) -> Source:
    found = large(path, MAX_BYTES)
    if isinstance(found, Unreadable):
        raise BadInput(f"{found.name}: {found.why}")
    return found


def _view(found: Report) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(_headline(found), style="bold")]
    if found.compared:
        parts += [heading("Errors, |predicted / measured - 1|"), _groups(found), heading("Furthest off"), _worst(found)]
    if found.unpredicted:
        parts.append(heading("Not predicted, and in no mean"))
        parts += [Text(printable(f"  line {line}: {reason}")) for line, reason in found.unpredicted.items()]
    return parts


def _headline(found: Report) -> str:
    done = f"{len(found.compared)} of {found.rows} rows predicted"
    if not found.compared:
        return done
    return f"{done}: mean error of TTFT {_percent(found.ttft.mean)}, of TPOT {_percent(found.tpot.mean)}"


def _groups(found: Report) -> RenderableType:
    names = ("MODEL", "PRECISION", "GPU", "ROWS", "TTFT MEDIAN", "MEAN", "WORST", "TPOT MEDIAN", "MEAN", "WORST")
    table = columns(*names, right=frozenset(range(3, 10)))
    for group in found.groups:
        figures = (*_figures(group.ttft), *_figures(group.tpot))
        table.add_row(*map(printable, (group.model, group.precision, group.system, str(group.rows))), *figures)
    table.add_row("all", "", "", str(len(found.compared)), *_figures(found.ttft), *_figures(found.tpot))
    return table


def _worst(found: Report) -> RenderableType:
    names = ("LINE", "RUN", "TTFT MEASURED", "PREDICTED", "TPOT MEASURED", "PREDICTED")
    table = columns(*names, right=frozenset((0, 2, 3, 4, 5)))
    for one in found.worst(WORST):
        table.add_row(str(one.run.line), printable(_run(one)), *_times(one))
    return table


def _run(one: Compared) -> str:
    run = one.run
    return f"{run.model} {run.system} TP{run.tensor_parallel} {run.prompt}+{run.output}, {run.clients} clients"


def _times(one: Compared) -> tuple[str, ...]:
    seconds = (one.run.ttft, one.predicted.ttft, one.run.tpot, one.predicted.tpot)
    return tuple("-" if math.isnan(s) else f"{1e3 * s:,.1f} ms" for s in seconds)


def _figures(errors: Errors) -> tuple[str, ...]:
    return tuple(map(_percent, (errors.median, errors.mean, errors.worst)))


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"
