"""The ROC on logarithmic axes, where few false alarms count, with the part no data resolves."""

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from lmexposure._style import interval, number, short
from lmexposure.core.charts import (
    INK,
    Chart,
    Style,
    Styles,
    class_styles,
    clipped,
    joined,
    key,
    roc_axes,
    roc_floor,
    series_style,
)
from lmexposure.studies.exposure.roc import RocData
from lmexposure.studies.exposure.rows import Floats

_POINTS = 200


def roc_chart(
    curves: Sequence[RocData], *, number_of: int = 1, styles: Styles | None = None
) -> Chart | None:
    """True positives against false ones on log-log axes, one ordinary curve and hull a class.

    Source: Carlini et al. 2022, Membership inference attacks from first principles, section 3.
    """
    drawn = [
        curve for curve in curves if curve.positives > 0 and curve.negatives > 0 and curve.fpr.size
    ]
    if not drawn:
        return None
    classes = styles or class_styles(curve.repetitions for curve in drawn)
    line_styles = [
        series_style(place) | {"color": classes[curve.repetitions]["color"]}
        for place, curve in enumerate(drawn)
    ]
    return Chart(
        name="roc" if number_of == 1 else f"roc-{number_of}",
        kind="roc",
        subject="",
        title="Canaries distinguished from texts never inserted (ROC)",
        caption=(
            "The higher a curve at the left end, the more canaries are recognised while few other "
            "texts are taken for canaries; the dotted line is guessing."
        ),
        description=_description(drawn),
        draw=lambda figure: _draw(figure, drawn, line_styles),
        legend=lambda: _names(drawn, line_styles),
        height=4.4,
    )


def _draw(figure: FigureBase, curves: Sequence[RocData], line_styles: Sequence[Style]) -> None:
    edge = 1 / max(curve.negatives for curve in curves)
    floor = roc_floor(curve.positives for curve in curves)
    hull = key("concave hull", color=INK, linestyle=(0, (4, 2)), linewidth=1.0)
    axes = roc_axes(figure, edge, floor, keys=[hull])
    for curve, style in zip(curves, line_styles, strict=True):
        _curve(axes, curve, floor, style)


def _curve(axes: Axes, curve: RocData, floor: float, style: Style) -> None:
    color = style["color"]
    hull: Style = {"linestyle": (0, (4, 2)), "linewidth": 1.0}
    marks = {"marker": style["marker"], "markevery": 0.22}
    for fpr, tpr, line in ((curve.hull_fpr, curve.hull_tpr, hull), (curve.fpr, curve.tpr, marks)):
        if fpr.size:
            x, y = _on_log_axes(fpr, tpr, 1 / curve.negatives, floor)
            axes.plot(x, y, color=color, markerfacecolor="none", **line)


def _on_log_axes(fpr: Floats, tpr: Floats, edge: float, floor: float) -> tuple[Floats, Floats]:
    """From the resolvable edge on; what is straight between corners is bent on these axes."""
    between = np.geomspace(edge, 1.0, _POINTS)
    x = np.concatenate([fpr[fpr > edge], between])
    y = np.concatenate([tpr[fpr > edge], np.interp(between, fpr, tpr)])
    order = np.lexsort((y, x))
    return x[order], np.maximum(y[order], floor)


def _names(curves: Sequence[RocData], line_styles: Sequence[Style]) -> list[Artist]:
    return [
        key(f"{clipped(curve.name, 34)}: AUC {_area(curve)}", **(style | {"linestyle": "-"}))
        for curve, style in zip(curves, line_styles, strict=True)
    ]


def _area(curve: RocData) -> str:
    return f"{number(curve.area, 3)} ({interval(curve.area_low, curve.area_high, 3)})"


def _description(curves: Sequence[RocData]) -> str:
    edge = 1 / max(curve.negatives for curve in curves)
    areas = [f"{clipped(curve.name)} {_area(curve)}" for curve in curves]
    return (
        "True-positive against false-positive rate on logarithmic axes, the ordinary curve and its "
        f"concave hull. Area under the curve, 0.5 = guessing: {joined(areas)}. False-positive "
        f"rates below {short(edge)} cannot be resolved."
    )
