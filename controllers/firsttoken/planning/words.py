"""Numbers in sentences: one way to write a figure, a count with its noun, and a time."""

from collections.abc import Iterable
from decimal import Decimal

from firsttoken.planning.types import Plan

IDLE = "for an idle replica"


def number(value: float) -> str:
    """Three significant digits, never with an exponent: `0.605`, `25.1`, `1130`."""
    return f"{Decimal(f'{value:.3g}'):f}"


def count(value: int, noun: str) -> str:
    """`1 GPU`, `2 GPUs`. `noun` is the singular of a regular one."""
    return f"{value} {noun}{'' if value == 1 else 's'}"


def milliseconds(seconds: float) -> str:
    """A time: three digits, and seconds where that reads better."""
    # 0.9996 s rounds to 1000 ms, which is 1 s.
    return f"{number(seconds)} s" if seconds >= 0.9995 else f"{number(seconds * 1000)} ms"


def at_rate(rate: float) -> str:
    """The load of a prediction; where a replica carries next to nothing, what one request alone would see."""
    return f"at {number(rate)} requests/s" if rate > 0 else IDLE


def device_noun(accelerators: Iterable[str]) -> str:
    """What the devices of these AcceleratorProfiles are called: `cpu` is none of anybody's GPUs."""
    return "device" if "cpu" in accelerators else "GPU"


def size(plan: Plan) -> str:
    """What a plan takes over all roles and replicas: `2 GPUs`, `1 device`."""
    return count(plan.gpus, device_noun(role.accelerator for role in plan.roles))
