"""Lower bounds on epsilon: what was shown, what could have been, and what is claimed."""

import math
from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from lmexposure._style import bound_name, count, nats, short, validity
from lmexposure.core.charts import (
    INK,
    LINE,
    MUTED,
    Chart,
    Style,
    Styles,
    class_styles,
    clipped,
    joined,
    key,
    named_rows,
    plain_axes,
)
from lmexposure.studies.exposure.privacy import Bound, Privacy, PrivacyClass, Validity

_SHAPES: dict[Validity, str] = {
    "any-dp": "o",
    "iid-scores": "s",
    "gaussian": "^",
    "bayesian": "D",
    "asymptotic": "v",
}
_ROW = 0.5  # inches


def epsilon_chart(privacy: Privacy | None, styles: Styles | None = None) -> Chart | None:
    """Each bound of the class of canaries whose bound is quoted."""
    shown = None if privacy is None else _chosen(privacy)
    if privacy is None or shown is None or shown.bounds is None:
        return None
    bounds = [shown.bounds.primary, *shown.bounds.others]
    claimed = None if privacy.claim is None else privacy.claim.claimed_epsilon
    by_class = styles or class_styles([shown.repetitions])
    color = by_class[shown.repetitions]["color"]
    return Chart(
        name="epsilon",
        kind="epsilon",
        subject="",
        title=f"Lower bounds on epsilon, {_class(shown)}",
        caption=(
            "The longer a thick bar, the less private the training was; its thin line ends where a "
            "perfect attack on these canaries would have."
        ),
        description=_description(claimed, shown, bounds),
        draw=lambda figure: _draw(figure, bounds, claimed, color),
        legend=lambda: _legend(bounds, claimed),
        height=0.8 + _ROW * len(bounds),
    )


def _chosen(privacy: Privacy) -> PrivacyClass | None:
    """All bounds are of the class that the quoted one is of, so that they can be compared."""
    quoted = privacy.primary
    if quoted is None:
        return None
    key_of = tuple(quoted.formats), quoted.repetitions
    return next(part for part in privacy.classes if part.bounds is not None and part.key == key_of)


def _class(part: PrivacyClass) -> str:
    formats = ", ".join(clipped(name, 24) for name in part.formats if name)
    return f"{formats + ', ' if formats else ''}{count(part.repetitions, 'repetition')}"


def _draw(figure: FigureBase, bounds: Sequence[Bound], claimed: float | None, color: str) -> None:
    axes = figure.subplots()
    plain_axes(axes, grid="x")
    limit = _limit(bounds, claimed)
    for place, bound in enumerate(bounds):
        _most(axes, bound, place, limit)
        _row(axes, bound, place, _name(bound, place == 0, _common_delta(bounds)), color)
    if claimed is not None:
        _claim(axes, claimed, len(bounds))
    axes.set_xlim(0, 1.06 * limit)
    named_rows(axes, len(bounds))
    axes.set_xlabel(f"Epsilon (nats){_common_delta(bounds)}, higher = less private")


def _claim(axes: Axes, claimed: float, rows: int) -> None:
    """A line across all bars that leaves out the names between them."""
    xs = [claimed, claimed, math.nan] * rows
    ys = [y for place in range(rows) for y in (place - 0.16, place + 0.36, math.nan)]
    axes.plot(xs, ys, color=LINE, linewidth=2.0)


def _limit(bounds: Sequence[Bound], claimed: float | None) -> float:
    """Twice what is to be read at most: one far end must not press the rest together."""
    values = [bound.value for bound in bounds]
    most = sorted(bound.max_attainable for bound in bounds if bound.max_attainable is not None)
    typical = most[len(most) // 2] if most else 0.0
    read = max([*values, claimed or 0.0, typical, 0.05])
    return min(2 * read, max([read, *most])) if most else read


def _most(axes: Axes, bound: Bound, place: int, limit: float) -> None:
    """A thin way up to the most that could have been; beyond the axes it ends in an arrow."""
    most = bound.max_attainable
    if most is None:
        return
    end, marker = (most, "|") if most <= limit else (limit, ">")
    axes.plot([bound.value, end], [place, place], color=MUTED, linewidth=1.0)
    size = 11 if marker == "|" else 6
    axes.plot(end, place, marker=marker, markersize=size, color=MUTED, markeredgewidth=2)


def _row(axes: Axes, bound: Bound, place: int, name: str, color: str) -> None:
    """A thick way up to the value, the name above."""
    marker = _SHAPES[bound.validity]
    axes.plot([0, bound.value], [place, place], color=color, linewidth=4.0, solid_capstyle="butt")
    axes.plot(bound.value, place, marker=marker, markersize=8, color=color, clip_on=False, zorder=3)
    axes.text(
        0.0,
        place - 0.2,
        name,
        va="bottom",
        fontsize=11,
        fontweight="normal" if place else "bold",
    )


def _name(bound: Bound, primary: bool, common_delta: str) -> str:
    """What the bound is and says; its delta where not all of them have the same."""
    delta = "" if common_delta else f" at delta {short(bound.delta)}"
    first = "primary: " if primary else ""
    return f"{first}{clipped(bound_name(bound.name))} ≥ {nats(bound.value)}{delta}"


def _common_delta(bounds: Sequence[Bound]) -> str:
    """The delta of all bounds; "" where they differ."""
    deltas = {bound.delta for bound in bounds}
    return f" at delta {short(deltas.pop())}" if len(deltas) == 1 else ""


def _legend(bounds: Sequence[Bound], claimed: float | None) -> list[Artist]:
    dots: Style = {"linestyle": "none", "markersize": 8}
    kinds = {bound.validity for bound in bounds}
    found: list[Artist] = [
        key(f"{name}: {validity(name)}", **(dots | {"marker": marker, "color": INK}))
        for name, marker in _SHAPES.items()
        if name in kinds
    ]
    if any(bound.max_attainable is not None for bound in bounds):
        mark: Style = {"marker": "|", "color": MUTED, "markersize": 11, "markeredgewidth": 2}
        found.append(key("max attainable", **(mark | {"linestyle": "none"})))
    if claimed is not None:
        label = f"claimed: {short(claimed)}"
        found.append(key(label, color=LINE, linewidth=2.0))
    return found


def _description(claimed: float | None, part: PrivacyClass, bounds: Sequence[Bound]) -> str:
    parts = []
    for bound in bounds:
        most = bound.max_attainable
        end = "" if most is None else f" (max attainable {nats(most)})"
        parts.append(_name(bound, False, _common_delta(bounds)) + end)
    claim = "" if claimed is None else f" Claimed is {short(claimed)}."
    return (
        f"Lower bounds on epsilon in nats, higher = less private, from {_class(part)}, the primary "
        f"one first{_common_delta(bounds)}: {joined(parts)}.{claim}"
    )
