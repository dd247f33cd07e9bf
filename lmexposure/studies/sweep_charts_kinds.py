"""Chart of a sweep's kinds of canaries: how much each shows at equal cost."""

from collections.abc import Sequence

from matplotlib.figure import FigureBase

from lmexposure._style import number, percent, short
from lmexposure.core.charts import (
    LINE,
    MUTED,
    SERIES,
    Chart,
    Style,
    clipped,
    key,
    named_rows,
    plain_axes,
)
from lmexposure.studies.sweep_kinds import by_strength, power_rows_in_words, shares_of
from lmexposure.studies.sweep_power import KindPower, SweepPower
from lmexposure.studies.sweep_result import SweepNumbers

_ROW = 0.5  # inches
_BELOW = 0.12  # rows, so that no mark hides another
_FEWER = ("D", "s", "^", "v")  # marks of shares below 1


def power_chart(result: SweepNumbers) -> Chart | None:
    """The TPR of each class with its interval, the strongest first, and that of fewer canaries."""
    power = result.power
    rows = [] if power is None else [r for r in by_strength(power) if r.rate.value is not None]
    if power is None or not rows:
        return None
    fewer = shares_of(power)[1 : 1 + len(_FEWER)]
    marks = dict(zip(fewer, _FEWER, strict=False))
    return Chart(
        name="sweep-power",
        kind="power",
        subject="",
        title=f"What each kind of canary shows: TPR at FPR {short(power.fpr)}",
        caption=(
            "Each class had as many canaries, in the same models. The farther right, the more of "
            "what the training gives away is seen; hollow marks are models with fewer canaries."
        ),
        description=power_rows_in_words(rows, power.fpr),
        draw=lambda figure: _draw(figure, power, rows, marks),
        legend=lambda: [
            key("all canaries", color=SERIES[0], marker="o", linestyle="none"),
            key("interval", color=MUTED, linewidth=1.4),
            key("chance", color=LINE, linewidth=1),
            *(key(f"{percent(share)} of them", **_hollow(mark)) for share, mark in marks.items()),
        ],
        height=0.8 + _ROW * len(rows),
    )


def _hollow(mark: str) -> Style:
    hollow: Style = {"color": SERIES[1], "markerfacecolor": "none", "markersize": 6}
    return {**hollow, "marker": mark, "linestyle": "none"}


def _draw(
    figure: FigureBase, power: SweepPower, rows: Sequence[KindPower], marks: dict[float, str]
) -> None:
    axes = figure.subplots()
    plain_axes(axes, grid="x")
    found = {(row.group, row.share): row.rate.value for row in power.rows}
    for place, row in enumerate(rows):
        if row.rate.low is not None and row.rate.high is not None:
            ends: Style = {"color": MUTED, "marker": "|", "markersize": 9, "linewidth": 1.4}
            axes.plot([row.rate.low, row.rate.high], [place, place], **ends)
        for n, (share, mark) in enumerate(marks.items(), start=1):
            value = found.get((row.group, share))
            if value is not None:
                axes.plot(value, place + _BELOW * n, **_hollow(mark))
        dot: Style = {"color": SERIES[0], "marker": "o", "markersize": 7, "linestyle": "none"}
        axes.plot(found[row.group, 1.0] or 0.0, place, **dot)
        name = f"{clipped(row.group, 40)}: {number(row.rate.value, 3)}"
        axes.text(power.fpr + 0.01, place - 0.2, name, va="bottom", fontsize=11)
    axes.axvline(power.fpr, color=LINE, linewidth=1)
    axes.set_xlim(-0.02, 1.02)
    named_rows(axes, len(rows))
    axes.set_xlabel("True-positive rate, higher = shows more")
