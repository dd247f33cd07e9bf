"""What an attacker finds: by guesses tried, and by characters of the secret known."""

from collections.abc import Callable, Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from lmexposure._style import class_name, count, found_of, percent, probability, slug
from lmexposure.core.charts import (
    INK,
    Chart,
    Style,
    Styles,
    class_styles,
    clipped,
    joined,
    key,
    log_ticks,
    plain_axes,
)
from lmexposure.studies.exposure.rows import ClassRow, FormatData, Found

Rows = Callable[[ClassRow], tuple[Found, ...]]
Panel = tuple[Rows, str]

_CHANCE: Style = {"color": INK, "linestyle": (0, (2, 2)), "linewidth": 1.2}


def extraction_chart(data: FormatData, styles: Styles | None = None) -> Chart | None:
    """The share of a class's secrets that was found, against guesses tried and characters known.

    Source: section 7 of Carlini et al. 2019, The Secret Sharer.
    """
    panels = _panels(data.classes)
    if not panels:
        return None
    by_class = styles or class_styles(row.repetitions for row in data.classes)
    return Chart(
        name=f"extraction-{slug(data.name)}",
        kind="extraction",
        subject=data.name,
        title=f"Secrets found by an attacker, {clipped(data.name)}",
        caption=(
            "Lines that rise from the dotted one are secrets that the model gives away: the "
            "sooner, the cheaper for an attacker."
        ),
        description=_description(data),
        draw=lambda figure: _draw(figure, data.classes, panels, by_class),
        legend=lambda: _legend(data.classes, by_class),
        height=3.1,
    )


def _panels(classes: Sequence[ClassRow]) -> list[Panel]:
    choices: tuple[Panel, ...] = (
        (lambda row: _tried(row.guesses), "Guesses tried"),
        (lambda row: _tried(row.revealed), "Characters known"),
    )
    return [panel for panel in choices if any(panel[0](row) for row in classes)]


def _tried(rows: Sequence[Found]) -> tuple[Found, ...]:
    return tuple(sorted((row for row in rows if row.of > 0), key=lambda row: row.given))


def _draw(
    figure: FigureBase, classes: Sequence[ClassRow], panels: Sequence[Panel], styles: Styles
) -> None:
    every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (rows, label) in zip(every, panels, strict=True):
        plain_axes(axes, ticks=4)
        if label == "Guesses tried":
            given = [result.given for row in classes for result in rows(row)]
            smallest, largest = max(1, min(given)), max(given)
            log_ticks(axes, "x", smallest / 1.4, max(largest, 10 * smallest) * 2.5)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
        _lines(axes, classes, rows, styles)
        axes.set_xlabel(label)
        axes.set_ylim(-0.04, 1.04)
    every[0].set_ylabel("Secrets found")
    every[0].yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    every[0].yaxis.set_major_formatter(FuncFormatter(lambda share, _: percent(share)))


def _lines(axes: Axes, classes: Sequence[ClassRow], rows: Rows, styles: Styles) -> None:
    """Between two numbers of guesses the share is known to lie between theirs: steps."""
    for row in classes:
        found, style = rows(row), styles[row.repetitions]
        shares = [result.found / result.of for result in found]
        given = [result.given for result in found]
        if found:  # a line without points would still be laid out, at the corner of the figure
            axes.plot(given, shares, drawstyle="steps-post", clip_on=False, **style)
    longest = max((rows(row) for row in classes), key=len)
    chance = [min(1.0, result.by_chance / result.of) for result in longest]
    axes.plot([result.given for result in longest], chance, **_CHANCE)


def _legend(classes: Sequence[ClassRow], styles: Styles) -> list[Artist]:
    tried = [(row, styles[row.repetitions]) for row in classes if row.guesses or row.revealed]
    keys: list[Artist] = [key(class_name(row.role, row.repetitions), **s) for row, s in tried]
    return [*keys, key("by chance", **_CHANCE)]


def _description(data: FormatData) -> str:
    by_guessing = [(row, _tried(row.guesses)) for row in data.classes]
    by_revealing = [(row, _tried(row.revealed)) for row in data.classes]
    parts = [
        _most(by_guessing, "guess", "guesses"),
        _most(by_revealing, "character known", "characters known"),
    ]
    return f"Secrets found by search. {' '.join(filter(None, parts))}"


def _most(found: Sequence[tuple[ClassRow, tuple[Found, ...]]], singular: str, plural: str) -> str:
    """How many were found with the most that was given."""
    ends = [(row, rows[-1]) for row, rows in found if rows]
    if not ends:
        return ""
    given = max(end.given for _, end in ends)
    shares = [
        f"{class_name(row.role, row.repetitions)} {found_of(end.found, end.of, end.by_chance)}"
        for row, end in ends
        if end.given == given
    ]
    chance = max(min(1.0, end.by_chance / end.of) for _, end in ends if end.given == given)
    return (
        f"With {count(given, singular, plural)}: {joined(shares)}; guessing finds each with "
        f"probability {probability(chance)}."
    )
