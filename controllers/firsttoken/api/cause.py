"""One thing that is wrong with an object: where, and what the API server says about it."""

from dataclasses import dataclass

At = tuple[str | int, ...]
"""Where a value is: keys and indices from the root."""


@dataclass(frozen=True)
class Cause:
    """`message` is the API server's; `path` is its notation of `at`; `rule` is the message of a broken CEL rule.

    `blocks` says that rules about this place can't be judged (wrong type, missing, too long); a value that is only out
    of bounds doesn't keep the API server from evaluating them. `line` is only given where it isn't the value's own.
    """

    at: At
    message: str
    path: str = ""
    rule: str = ""
    blocks: bool = False
    line: int = 0


def child(at: At, key: str | int) -> At:
    """The place of a child."""
    return (*at, key)


def text_path(at: At) -> str:
    """`at` in Kubernetes' notation, such as `spec.slos[0].target`."""
    out = ""
    for part in at:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            out += f".{part}" if out else part
    return out
