"""How a decision inside the planner says no."""

from collections.abc import Mapping
from typing import Any

from firsttoken.planning.types import Infeasible

SLO = "SLO"  # a promise below what the data sheet allows


class InfeasibleError(Exception):
    """Raised by a planning step that can't go on; `make_plan` turns it into the `Infeasible` it carries."""

    def __init__(self, constraint: str, message: str, nearest: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.infeasible = Infeasible(constraint, message, dict(nearest or {}))
