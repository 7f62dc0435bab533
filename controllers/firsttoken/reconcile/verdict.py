"""The answer to whether a service is ready."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """Whether the service is ready, and if not, what is in the way."""

    ready: bool
    reason: str
    message: str
    stalled: bool = False  # nothing will change until somebody acts
    soon: bool = False  # a matter of seconds
    late: tuple[str, ...] = ()  # Envoys that are awaited
