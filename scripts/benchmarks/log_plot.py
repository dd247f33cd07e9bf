"""A plot as a small SVG file: points on axes of which either may be logarithmic."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

__all__ = ["Points", "write_plot"]

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT, _MARGIN = 640, 400, 64
_COLOURS = ("#1f5fa8", "#c2571a", "#3a7d44", "#7a4a9e")
_MOST_TICKS = 8


def write_plot(
    path: Path,
    series: Mapping[str, Points],
    *,
    x: str,
    y: str,
    log_x: bool = False,
    log_y: bool = True,
) -> None:
    """Write the points of each series, with axes named `x` and `y`.

    Args:
        path: the SVG file.
        series: points by name; above 0 on a logarithmic axis.
        x, y: what the axes say.
        log_x, log_y: which axes are logarithmic.
    """
    xs, ys = zip(*(point for points in series.values() for point in points), strict=True)
    left, right = _MARGIN, _WIDTH - _MARGIN / 4
    top, bottom = _MARGIN / 4, _HEIGHT - _MARGIN
    across, x_ticks = _axis(xs, left, right, log_x)
    up, y_ticks = _axis(ys, bottom, top, log_y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for tick in x_ticks:
        at = across(tick)
        parts.append(_line(at, bottom, at, top))
        parts.append(_text(at, bottom + 18, _number(tick), "middle"))
    for tick in y_ticks:
        at = up(tick)
        parts.append(_line(left, at, right, at))
        parts.append(_text(left - 6, at + 4, _number(tick), "end"))
    parts.append(_text((left + right) / 2, _HEIGHT - 14, x, "middle"))
    parts.append(
        f'<g transform="translate(14 {(top + bottom) / 2:.1f}) rotate(-90)">'
        f"{_text(0, 0, y, 'middle')}</g>"
    )
    for number, (name, points) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        parts += [_dot(across(a), up(b), colour) for a, b in points]
        parts.append(_dot(right - 150, top + 12 + 18 * number, colour))
        parts.append(_text(right - 140, top + 16 + 18 * number, name, "start"))
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")


def _axis(
    values: Sequence[float], begin: float, end: float, log: bool
) -> tuple[Callable[[float], float], list[float]]:
    """Where a value stands between two ends of the paper, and which values get a line."""
    seen = [math.log10(v) for v in values] if log else list(values)
    ticks = _ticks(min(seen), max(seen), whole=log)
    low, high = min(ticks[0], *seen), max(ticks[-1], *seen)

    def place(value: float) -> float:
        at = math.log10(value) if log else value
        return begin + (end - begin) * (at - low) / (high - low)

    return place, [10**tick if log else tick for tick in ticks]


def _ticks(low: float, high: float, *, whole: bool) -> list[float]:
    """Round numbers that enclose what there is; at least two."""
    rough = max(high - low, 1e-9) / _MOST_TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= rough * 0.999)
    step = max(1.0, math.ceil(step)) if whole else step
    first = math.floor(low / step)
    last = max(math.ceil(high / step), first + 1)
    return [k * step for k in range(first, last + 1)]


def _number(value: float) -> str:
    if value >= 1e6 and math.log10(value).is_integer():
        return f"10^{math.log10(value):.0f}"
    return f"{value:,.0f}" if 1 <= abs(value) < 1e6 or value == 0 else f"{value:.3g}"


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="#ddd"/>'


def _dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}" fill-opacity="0.7"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
