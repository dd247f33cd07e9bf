"""Chart of memorised text: the share of windows that comes out, against the tries it takes."""

from collections.abc import Sequence

from matplotlib.figure import FigureBase

from lmexposure._style import count, percent, short, whole
from lmexposure._text import visible
from lmexposure.core.charts import SERIES, Chart, Style, clipped, key, log_ticks, plain_axes
from lmexposure.studies import VerbatimRecord, VerbatimWindows

_SHAPES: tuple[Style, ...] = (
    {"linestyle": "-", "marker": "o"},
    {"linestyle": "--", "marker": "D"},
    {"linestyle": ":", "marker": "s"},
)


def verbatim_chart(record: VerbatimRecord) -> Chart:
    """The corpus, and what controls say of as many tries."""
    groups = {
        "the corpus": record.corpus,
        "reference model": record.of_reference,
        "held-out documents": record.held_out,
    }
    there = {name: group for name, group in groups.items() if group is not None}
    styles = {name: _style(place) for place, name in enumerate(groups)}
    return Chart(
        name="verbatim",
        kind="verbatim",
        subject="",
        title="How easily the corpus comes out",
        caption=(
            "Share of the windows whose suffix at least one of the tries gives, with the "
            "chance of the rule. The higher, and the farther left, the more easily; controls show "
            "what is likely text."
        ),
        description="; ".join(_in_words(name, group) for name, group in there.items()) + ".",
        draw=lambda figure: _draw(figure, there, styles),
        legend=lambda: [key(name, **styles[name]) for name in there],
        height=3.0,
    )


def _style(place: int) -> Style:
    return {**_SHAPES[place], "color": SERIES[place], "markersize": 5}


def _in_words(name: str, group: VerbatimWindows) -> str:
    shares = (f"{percent(row.share)} in {short(row.tries)}" for row in group.curve)
    return f"{name}: {', '.join(shares)} tries"


def _draw(figure: FigureBase, groups: dict[str, VerbatimWindows], styles: dict[str, Style]) -> None:
    axes = figure.subplots()
    plain_axes(axes)
    for name, group in groups.items():
        tries = [row.tries for row in group.curve]
        axes.plot(tries, [row.share for row in group.curve], **styles[name])
        if any(row.low < row.high for row in group.curve):
            axes.fill_between(
                tries,
                [row.low for row in group.curve],
                [row.high for row in group.curve],
                color=SERIES[list(styles).index(name)],
                alpha=0.15,
                linewidth=0,
            )
    axes.set_xscale("log")
    every = [row.tries for group in groups.values() for row in group.curve]
    log_ticks(axes, "x", min(every), max(every))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("Tries")
    axes.set_ylabel("Share of windows")


def runs_by_size_chart(records: Sequence[VerbatimRecord]) -> Chart:
    """The longest run of each model against its parameters."""
    told = (
        f"{visible(r.model.name)}, {whole(r.model.parameters)} parameters: "
        f"{count(r.longest_run, 'character')}"
        for r in records
    )
    return Chart(
        name="verbatim-models",
        kind="verbatim",
        subject="",
        title="The longest run against the size of the model",
        caption=(
            "Characters that greedy decoding gives in a row, of the same documents. Larger models "
            "memorise more of what they read as often."
        ),
        description=f"{'; '.join(told)}.",
        draw=lambda figure: _draw_sizes(figure, records),
        legend=lambda: [key("a model", color=SERIES[0], marker="o", linestyle="none")],
        height=3.0,
    )


def _draw_sizes(figure: FigureBase, records: Sequence[VerbatimRecord]) -> None:
    axes = figure.subplots()
    plain_axes(axes)
    sizes = [record.model.parameters for record in records]
    axes.plot(
        sizes,
        [record.longest_run for record in records],
        color=SERIES[0],
        marker="o",
        linestyle="none",
    )
    for record in records:
        place = (record.model.parameters, record.longest_run)
        name = clipped(record.model.name.rsplit("/", 1)[-1], 20)
        axes.annotate(name, place, xytext=(4, 4), textcoords="offset points", fontsize=10)
    log_ticks(axes, "x", min(sizes) / 2, max(sizes) * 4)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("Parameters")
    axes.set_ylabel("Characters")
