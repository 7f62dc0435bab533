"""What happened, in virtual time: who did what, with a reason constant for programs and a sentence for people."""

from collections.abc import Callable
from dataclasses import dataclass

Tell = Callable[[str, str, str], None]  # who, reason, message


@dataclass(frozen=True)
class Entry:
    """`who`: operator, cluster, world or traffic. `at`: seconds since the service was applied."""

    at: float
    who: str
    reason: str
    message: str
