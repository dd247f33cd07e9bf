"""Lower bounds on epsilon: what was shown, what could have been, and what is claimed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from lmexposure.reporting.charts.chart import Chart
from lmexposure.reporting.charts.finite import finite
from lmexposure.reporting.charts.looks import key, quiet
from lmexposure.reporting.charts.palette import LINE, MUTED, SERIES
from lmexposure.reporting.charts.words import count, listed, number, short

__all__ = ["epsilon"]

Values = Mapping[str, Any]

_VALIDITY = {
    "any-dp": ("o", SERIES[0], "any training"),
    "iid-scores": ("s", SERIES[1], "independent scores"),
    "gaussian": ("^", SERIES[2], "Gaussian trade-off"),
    "bayesian": ("D", SERIES[3], "Bayesian"),
    "asymptotic": ("v", SERIES[5], "large counts only"),
    "point": ("P", SERIES[4], "point value, no bound"),
}
_UNKNOWN = ("X", SERIES[4], "other")
_ROW = 0.5  # inches


def epsilon(privacy: Values | None) -> Chart | None:
    """Each bound of one class of canaries: the class whose bound is quoted, else the largest.

    Args:
        privacy: the result's section, as `statistics.privacy.privacy_of` gives it; None: none.

    Returns:
        The chart; None where no class has a bound.
    """
    one = _chosen(privacy or {})
    if privacy is None or one is None:
        return None
    bounds = _bounds(one)
    return Chart(
        name="epsilon",
        kind="epsilon",
        subject="",
        title=f"Lower bounds on epsilon, {_class(one)}",
        description=_description(privacy, one, bounds),
        draw=lambda figure: _draw(figure, bounds, _claimed(privacy)),
        legend=lambda: _legend(bounds, _claimed(privacy)),
        height=0.8 + _ROW * len(bounds),
    )


def _chosen(privacy: Values) -> Values | None:
    """All bounds are of the class that the quoted one is of, so that they can be compared."""
    usable = [one for one in privacy.get("classes") or () if _bounds(one)]
    quoted = privacy.get("primary") or {}
    same = [one for one in usable if _identity(one) == _identity(quoted)]
    largest = sorted(usable, key=lambda one: -(one["canaries"] + one["excluded"]))
    return next(iter([*same, *largest]), None)


def _identity(one: Values) -> tuple[Any, ...]:
    return (tuple(one.get("formats") or ()), one.get("repetitions"))


def _bounds(one: Values) -> list[Values]:
    """The primary one first; what has no value is no bound."""
    bounds = one.get("bounds") or {}
    every = [bounds.get("primary"), *(bounds.get("others") or ())]
    return [bound for bound in every if bound and finite(bound.get("value")) is not None]


def _claimed(privacy: Values) -> float | None:
    return finite((privacy.get("claim") or {}).get("claimed_epsilon"))


def _class(one: Values) -> str:
    formats = ", ".join(short(name, 24) for name in one["formats"] if name)
    return f"{formats + ', ' if formats else ''}{count(one['repetitions'], 'repetition')}"


def _draw(figure: FigureBase, bounds: Sequence[Values], claimed: float | None) -> None:
    axes = figure.subplots()
    quiet(axes, grid="x")
    limit = _limit(bounds, claimed)
    for place, bound in enumerate(bounds):
        _ceiling(axes, bound, place, limit)
        _row(axes, bound, place, _name(bound, place == 0, _beside(bounds)))
    if claimed is not None:
        _claim(axes, claimed, len(bounds))
    axes.set_xlim(0, 1.06 * limit)
    axes.set_ylim(len(bounds) - 0.4, -0.75)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"Epsilon (nats){_beside(bounds)}, higher = less private")


def _claim(axes: Axes, claimed: float, rows: int) -> None:
    """A line across all bars that leaves out the names between them."""
    xs = [claimed, claimed, math.nan] * rows
    ys = [y for place in range(rows) for y in (place - 0.16, place + 0.36, math.nan)]
    axes.plot(xs, ys, color=LINE, linewidth=2.0)


def _limit(bounds: Sequence[Values], claimed: float | None) -> float:
    """Twice what is to be read at most: one far ceiling must not press the rest together."""
    values = [float(bound["value"]) for bound in bounds]
    found = [finite(bound.get("ceiling")) for bound in bounds]
    ceilings = sorted(one for one in found if one is not None)
    typical = ceilings[len(ceilings) // 2] if ceilings else 0.0
    read = max([*values, claimed or 0.0, typical, 0.05])
    return min(2 * read, max([read, *ceilings])) if ceilings else read


def _ceiling(axes: Axes, bound: Values, place: int, limit: float) -> None:
    """A thin way up to the most that could have been; beyond the axes it ends in an arrow."""
    ceiling = finite(bound.get("ceiling"))
    if ceiling is None:
        return
    end, marker = (ceiling, "|") if ceiling <= limit else (limit, ">")
    axes.plot([float(bound["value"]), end], [place, place], color=MUTED, linewidth=1.0)
    size = 11 if marker == "|" else 6
    axes.plot(end, place, marker=marker, markersize=size, color=MUTED, markeredgewidth=2)


def _row(axes: Axes, bound: Values, place: int, name: str) -> None:
    """A thick way up to the value, the name above."""
    marker, color, _ = _VALIDITY.get(bound["validity"], _UNKNOWN)
    value = float(bound["value"])
    axes.plot([0, value], [place, place], color=color, linewidth=4.0, solid_capstyle="butt")
    axes.plot(value, place, marker=marker, markersize=8, color=color, clip_on=False, zorder=3)
    axes.text(
        0.0,
        place - 0.2,
        name,
        va="bottom",
        fontsize=11,
        fontweight="normal" if place else "bold",
    )


def _name(bound: Values, primary: bool, beside: str) -> str:
    """What the bound is and says; its delta where not all of them have the same."""
    delta = "" if beside else f" at delta {number(float(bound['delta']))}"
    first = "primary: " if primary else ""
    return f"{first}{_method(bound)} ≥ {number(float(bound['value']))}{delta}"


def _method(bound: Values) -> str:
    """Two kinds of bounds from exposure have one name; coins tell them apart."""
    coined = bound["method"] == "epsilon_from_exposure" and bound["validity"] == "any-dp"
    return short(str(bound["method"])) + (" with coins" if coined else "")


def _beside(bounds: Sequence[Values]) -> str:
    """The delta of all bounds; "" where they differ."""
    deltas = {float(bound["delta"]) for bound in bounds}
    return f" at delta {number(deltas.pop())}" if len(deltas) == 1 else ""


def _legend(bounds: Sequence[Values], claimed: float | None) -> list[Artist]:
    dots = {"linestyle": "none", "markersize": 8}
    there = {bound["validity"] for bound in bounds}
    found: list[Artist] = [
        key(words if name == "point" else f"{name}: {words}", marker=marker, color=color, **dots)
        for name, (marker, color, words) in _VALIDITY.items()
        if name in there
    ]
    if there - set(_VALIDITY):
        found.append(key(_UNKNOWN[2], marker=_UNKNOWN[0], color=_UNKNOWN[1], **dots))
    if any(finite(bound.get("ceiling")) is not None for bound in bounds):
        mark = {"markersize": 11, "markeredgewidth": 2, "linestyle": "none"}
        found.append(key("at most, perfect attack", marker="|", color=MUTED, **mark))
    if claimed is not None:
        label = f"claimed: {number(claimed)}"
        found.append(key(label, color=LINE, linewidth=2.0))
    return found


def _description(privacy: Values, one: Values, bounds: Sequence[Values]) -> str:
    parts = []
    for bound in bounds:
        ceiling = finite(bound.get("ceiling"))
        most = "" if ceiling is None else f" ({number(ceiling)} at most)"
        parts.append(_name(bound, False, _beside(bounds)) + most)
    claimed = _claimed(privacy)
    claim = "" if claimed is None else f" Claimed is {number(claimed)}."
    return (
        f"Lower bounds on epsilon in nats, higher = less private, from {_class(one)}, the primary "
        f"one first{_beside(bounds)}: {listed(parts)}.{claim}"
    )
