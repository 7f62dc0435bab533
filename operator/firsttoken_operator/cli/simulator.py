"""The simulator behind the commands: whether it is installed, and compiled before anybody waits without knowing why."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from firsttoken_operator.cli.console import complain
from firsttoken_operator.cli.errors import BadInput

INSTALL = "run `make install` in a clone, or `pip install '.[simulation]'` there"
if TYPE_CHECKING:  # numpy may be missing
    from firsttoken.simulation.requests import Requests
    from firsttoken.simulation.settings import EngineSettings
    from firsttoken.simulation.step_table import StepTable

# Compiled code is kept on disk, so this takes long only once for each version.
PATIENCE = 2.0  # seconds until a word is said
NOTE = "loading or compiling the simulator; it compiles once for each version, half a minute on an idle machine"


def installed() -> None:
    """Raises BadInput: the extra `simulation` is missing, and how to install it."""
    try:
        import numba  # noqa: F401, PLC0415 - the extra may be missing
        import numpy as np  # noqa: F401, PLC0415
    except ImportError as error:
        raise BadInput(f"simulating needs more packages ({error}): {INSTALL}") from error


def compiled() -> None:
    """The simulator is compiled when this returns. Says so on stderr where it takes long."""
    _patiently(_compile)


def compiled_rehearsal() -> None:
    """The same for the fleet that changes while it runs."""
    _patiently(_compile_live)


def _patiently(what: Callable[[], None]) -> None:
    note = threading.Timer(PATIENCE, complain, [NOTE])
    note.daemon = True
    note.start()
    try:
        what()
    finally:
        note.cancel()


def _compile() -> None:
    """One request through a fleet of an engine, and through an engine alone, calls all that is compiled of both."""
    from firsttoken.simulation.fast import FastEngine  # noqa: PLC0415 - numba may be missing
    from firsttoken.simulation.fleet import Fleet  # noqa: PLC0415
    from firsttoken.simulation.fleet_shape import colocated  # noqa: PLC0415

    one, settings, table = _smallest()
    FastEngine(one, settings, table).run()
    Fleet(one, [colocated(1, settings, table)]).run()


def _compile_live() -> None:
    import numpy as np  # noqa: PLC0415

    from firsttoken.simulation.live_fleet import LiveFleet, Member, Replica  # noqa: PLC0415

    one, settings, table = _smallest()
    fleet = LiveFleet(one)
    fleet.change([Member(fleet.add_pool(), Replica(settings, table))], 0.0)
    fleet.serve(0, np.zeros(1, np.int64), np.inf)


def _smallest() -> tuple["Requests", "EngineSettings", "StepTable"]:
    """One request, an engine, and its clock."""
    from firsttoken.planning.accelerators import catalogue  # noqa: PLC0415 - numba may be missing
    from firsttoken.planning.timing.device import device_from_profile  # noqa: PLC0415
    from firsttoken.planning.timing.step import StepModel  # noqa: PLC0415
    from firsttoken.simulation.measured_models import measured_facts  # noqa: PLC0415
    from firsttoken.simulation.requests import requests  # noqa: PLC0415
    from firsttoken.simulation.settings import EngineSettings  # noqa: PLC0415
    from firsttoken.simulation.step_table import step_table  # noqa: PLC0415

    facts = measured_facts("meta-llama/Llama-3.1-8B", "bf16")
    assert not isinstance(facts, str)  # noqa: S101 - it is in the catalogue
    table = step_table(StepModel(facts, device_from_profile(catalogue()["nvidia-h100-80gb"])), 16, 2)
    return requests([0.0], [4], [2]), EngineSettings(16, 2, 8), table
