"""Plain charts as SVG text: lines over time and groups of bars. No script, no font or image from elsewhere."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 26, 34
COLOURS = ("#1f6feb", "#d1570a", "#1a7f37", "#8250df", "#bf3989", "#57606a", "#9a6700", "#0a7e8c")


@dataclass(frozen=True)
class Line:
    """Values at equal distances from `start`; `step` apart. NaN leaves a gap."""

    name: str
    values: Sequence[float]
    start: float
    step: float


def line_chart(title: str, lines: Sequence[Line], *, unit: str, highest: float | None = None) -> str:
    """Lines over seconds; the vertical axis goes from 0 to `highest`, or to the largest value."""
    known = [v for line in lines for v in line.values if not math.isnan(v)]
    top = nice(highest if highest is not None else max(known, default=0.0))
    begin = min((line.start for line in lines), default=0.0)
    end = max((line.start + line.step * max(1, len(line.values) - 1) for line in lines), default=1.0)
    span = (end - begin) or 1.0
    parts = [_frame(title, top, unit), _legend([line.name for line in lines])]
    for share in (0, 0.25, 0.5, 0.75, 1):
        place = LEFT + share * _inner_width()
        parts.append(_text(place, HEIGHT - BOTTOM + 16, f"{begin + share * span:.4g} s", "middle"))
    for number, line in enumerate(lines):
        points = _points(line, begin, span, top)
        parts += [
            f'<polyline fill="none" stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="1.2" points="{piece}"/>'
            for piece in points
        ]
    return _svg(title, parts)


def bar_chart(title: str, groups: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], *, unit: str) -> str:
    """Groups of bars, one bar for each of `names`; NaN is no bar."""
    known = [v for _, values in groups for v in values if not math.isnan(v)]
    top = nice(max(known, default=0.0))
    parts = [_frame(title, top, unit), _legend(names)]
    each = _inner_width() / max(1, len(groups))
    thick = each * 0.8 / max(1, len(names))
    for place, (label, values) in enumerate(groups):
        left = LEFT + place * each + each * 0.1
        parts.append(_text(left + each * 0.4, HEIGHT - BOTTOM + 16, label, "middle"))
        for number, value in enumerate(values):
            if not math.isnan(value):
                high = _inner_height() * min(1.0, value / top)
                parts.append(
                    f'<rect x="{left + number * thick:.1f}" y="{HEIGHT - BOTTOM - high:.1f}" width="{thick * 0.9:.1f}" '
                    f'height="{high:.1f}" fill="{COLOURS[number % len(COLOURS)]}"><title>{escape(label)} '
                    f"{escape(names[number])}: {value:.4g} {escape(unit)}</title></rect>"
                )
    return _svg(title, parts)


def nice(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 2.5, 5, 10) if power * step >= value * (1 - 1e-9))


def _points(line: Line, begin: float, span: float, top: float) -> list[str]:
    pieces: list[list[str]] = [[]]
    for number, value in enumerate(line.values):
        if math.isnan(value):
            pieces.append([])
            continue
        x = LEFT + (line.start + number * line.step - begin) / span * _inner_width()
        y = HEIGHT - BOTTOM - _inner_height() * min(1.0, value / top)
        pieces[-1].append(f"{x:.1f},{y:.1f}")
    return [" ".join(piece) for piece in pieces if piece]


def _frame(title: str, top: float, unit: str) -> str:
    parts = [f'<text x="{LEFT}" y="16" font-weight="bold">{escape(title)}</text>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = HEIGHT - BOTTOM - share * _inner_height()
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d0d7de"/>')
        parts.append(_text(LEFT - 6, y + 4, f"{share * top:.4g} {unit}".strip(), "end"))
    return "".join(parts)


def _legend(names: Sequence[str]) -> str:
    parts, x = [], float(WIDTH - RIGHT)
    for number in reversed(range(len(names))):
        x -= 7.0 * len(names[number]) + 24
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{x:.0f}" y="7" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(x + 14, 16, names[number], "start"))
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title, quote=True)}" font-family="sans-serif" font-size="11">{"".join(parts)}</svg>'
    )


def _inner_width() -> float:
    return WIDTH - LEFT - RIGHT


def _inner_height() -> float:
    return HEIGHT - TOP - BOTTOM
