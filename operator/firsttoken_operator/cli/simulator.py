"""The simulator behind the commands: whether it is installed, and compiled before anybody waits without knowing why."""

import threading

from firsttoken_operator.cli.console import complain
from firsttoken_operator.cli.errors import BadInput

INSTALL = "run `make install` in a clone, or `pip install '.[simulation]'` there"
# Compiled code is kept on disk, so this takes long only once for each version.
PATIENCE = 2.0  # seconds until a word is said
NOTE = "compiling the simulator, once for this version: half a minute on an idle machine"


def installed() -> None:
    """Raises BadInput: the extra `simulation` is missing, and how to install it."""
    try:
        import numba  # noqa: F401, PLC0415 - the extra may be missing
        import numpy as np  # noqa: F401, PLC0415
    except ImportError as error:
        raise BadInput(f"simulating needs more packages ({error}): {INSTALL}") from error


def compiled() -> None:
    """The simulator is compiled when this returns. Says so on stderr where it takes long."""
    note = threading.Timer(PATIENCE, complain, [NOTE])
    note.daemon = True
    note.start()
    try:
        _compile()
    finally:
        note.cancel()


def _compile() -> None:
    """One request through a fleet of an engine, and through an engine alone, calls all that is compiled of both."""
    from firsttoken.planning.accelerators import catalogue  # noqa: PLC0415 - numba may be missing
    from firsttoken.planning.timing.device import device_from_profile  # noqa: PLC0415
    from firsttoken.planning.timing.step import StepModel  # noqa: PLC0415
    from firsttoken.simulation.fast import FastEngine  # noqa: PLC0415
    from firsttoken.simulation.fleet import Fleet  # noqa: PLC0415
    from firsttoken.simulation.fleet_shape import colocated  # noqa: PLC0415
    from firsttoken.simulation.measured_models import measured_facts  # noqa: PLC0415
    from firsttoken.simulation.requests import requests  # noqa: PLC0415
    from firsttoken.simulation.settings import EngineSettings  # noqa: PLC0415
    from firsttoken.simulation.step_table import step_table  # noqa: PLC0415

    facts = measured_facts("meta-llama/Llama-3.1-8B", "bf16")
    assert not isinstance(facts, str)  # noqa: S101 - it is in the catalogue
    table = step_table(StepModel(facts, device_from_profile(catalogue()["nvidia-h100-80gb"])), 16, 2)
    one, settings = requests([0.0], [4], [2]), EngineSettings(16, 2, 8)
    FastEngine(one, settings, table).run()
    Fleet(one, [colocated(1, settings, table)]).run()
