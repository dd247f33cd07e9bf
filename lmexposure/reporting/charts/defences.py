"""Chart of a comparison of defences: the average document beside the canaries."""

from collections.abc import Sequence

from matplotlib.figure import FigureBase

from lmexposure._style import interval, number, percent
from lmexposure._text import visible
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
from lmexposure.records import DefenceRow, DefencesRecord
from lmexposure.reporting.defences import ranked

_ROW = 0.62  # inches
_APART = 0.17  # rows, between the two marks of a method


def defences_chart(record: DefencesRecord) -> Chart | None:
    """The TPR of ordinary documents and of canaries, method by method, those apart at the end."""
    rows = [*ranked(record), *(row for row in record.rows if not row.ranked)]
    if all(row.strongest is None for row in rows):
        return None
    fpr = percent(record.fpr)
    return Chart(
        name="defences",
        kind="defences",
        subject="",
        title=f"What each defence still shows: TPR at FPR {fpr}",
        caption=(
            "Hollow marks are ordinary documents, the average that most evaluations stop at; full "
            "marks are canaries under the strongest attack. The farther right, the more is seen; "
            "crosses are methods that are not at the target."
        ),
        description=_in_words(rows, fpr),
        draw=lambda figure: _draw(figure, record, rows),
        legend=lambda: [
            key("canaries, strongest attack", color=SERIES[0], marker="o", linestyle="none"),
            key(
                "ordinary documents",
                color=SERIES[1],
                markerfacecolor="none",
                marker="D",
                linestyle="none",
            ),
            key("interval", color=MUTED, linewidth=1.4),
            key("chance", color=LINE, linewidth=1),
        ],
        height=0.8 + _ROW * len(rows),
    )


def _in_words(rows: Sequence[DefenceRow], fpr: str) -> str:
    told = [
        f"{visible(row.name)} {number(row.strongest.tpr, 3)} "
        f"({interval(row.strongest.low, row.strongest.high, 3)}), documents "
        f"{number(row.population, 3)}"
        for row in rows
        if row.strongest is not None
    ]
    return f"TPR of canaries at FPR {fpr}: {'; '.join(told)}."


def _draw(figure: FigureBase, record: DefencesRecord, rows: Sequence[DefenceRow]) -> None:
    axes = figure.subplots()
    plain_axes(axes, grid="x")
    for place, row in enumerate(rows):
        ends: Style = {"color": MUTED, "marker": "|", "markersize": 9, "linewidth": 1.4}
        if row.population is not None:
            below = place + _APART
            if row.population_low is not None and row.population_high is not None:
                axes.plot([row.population_low, row.population_high], [below, below], **ends)
            mark: Style = {"color": SERIES[1], "markerfacecolor": "none", "markersize": 6}
            axes.plot(row.population, below, marker="D", linestyle="none", **mark)
        best = row.strongest
        if best is not None and best.tpr is not None:
            if best.low is not None and best.high is not None:
                axes.plot([best.low, best.high], [place, place], **ends)
            sign = "o" if row.ranked else "x"
            axes.plot(best.tpr, place, color=SERIES[0], marker=sign, markersize=7)
            name = f"{clipped(row.name, 40)}: {number(best.tpr, 3)}"
        else:
            name = clipped(row.name, 40)
        axes.text(record.fpr + 0.01, place - 0.2, name, va="bottom", fontsize=11)
    axes.axvline(record.fpr, color=LINE, linewidth=1)
    axes.set_xlim(-0.02, 1.02)
    named_rows(axes, len(rows))
    axes.set_xlabel("True-positive rate, higher = shows more")
