"""What all charts have in common: colours, few lines and ticks, large letters, a legend on top.

Each part has a colour of its own on paper, and a variable on a page. Series have the blue, orange
and green families of Okabe and Ito 2008. Classes of canaries have one scale that gets darker on
paper, and lighter on a dark page, the more often they were inserted, so that colour-blind readers
see its order. All are at least 3 to 1 in contrast with white; no two parts share a colour, so that
a page can put its own in the place of each.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypedDict, Unpack

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import ArrayLike

from lmexposure._style import short

PAPER = "#ffffff"  # under a stand-alone chart; a page has its own
INK = "#1c2126"
MUTED = "#66707a"
GRID = "#dfe3e7"
BAND = "#e6ebf1"
CONTROL = "#69717a"
REFERENCE = "#7d8993"
FIT = "#00795a"
LINE = "#a3004f"
ACCENT = "#6b3fa0"
CLASSES = (
    *("#a87000", "#b45e00", "#c0431a", "#b0193f"),
    *("#99145f", "#7d1a7a", "#62218c", "#471f8f"),
)  # by repetitions, ascending
SERIES = ("#0b6fb0", "#b35900", "#007f5f", "#a03a8e", "#4f5459", "#86690a")

VARIABLES = {
    INK: "--chart-ink",
    MUTED: "--chart-muted",
    GRID: "--chart-grid",
    BAND: "--chart-band",
    CONTROL: "--chart-control",
    REFERENCE: "--chart-reference",
    FIT: "--chart-fit",
    LINE: "--chart-line",
    ACCENT: "--chart-accent",
    **{color: f"--chart-class-{number}" for number, color in enumerate(CLASSES, 1)},
    **{color: f"--chart-{number}" for number, color in enumerate(SERIES, 1)},
}


Draw = Callable[[FigureBase], None]
Legend = Callable[[], Sequence[Artist]]
Dashes = Literal["-", "--", ":", "none"] | tuple[int, tuple[int, int]]

WIDTH = 5.8  # inches: letters of 12 points are 11 pixels high on a telephone of 390
LEGEND_LINE = 0.235
_LEGEND_WIDTH, _KEY_WIDTH = 72 * WIDTH - 4, 44  # points
_LONGEST = 48  # letters of a name
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES: tuple[Dashes, ...] = ("-", "--", ":")


class Style(TypedDict, total=False):
    """How a line and its markers look, by the names that matplotlib gives these properties."""

    color: str
    linestyle: Dashes
    linewidth: float
    marker: str | Literal[10]
    markersize: float
    markerfacecolor: str
    markeredgewidth: float


# Of classes by their repetitions; controls have 0.
Styles = Mapping[int, Style]


# Of matplotlib; no text is ever read as mathematics, wherever it comes from.
SETTINGS: dict[str, str | float | bool] = {
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "lmexposure",
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same layout on every machine
    "font.size": 12,
    "axes.labelsize": 12,
    "xtick.labelsize": 12,
    "ytick.labelsize": 12,
    "legend.fontsize": 12,
    "legend.frameon": False,
    "legend.columnspacing": 1.4,
    "legend.handlelength": 1.6,
    "legend.borderaxespad": 0.0,
    "legend.borderpad": 0.2,
    "legend.labelspacing": 0.35,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "auto",
    "text.color": INK,
    "axes.labelcolor": INK,
    "legend.labelcolor": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
}


def plain_axes(axes: Axes, *, grid: Literal["x", "y", "both"] = "y", ticks: int = 5) -> None:
    """A light grid and few ticks, so that labels stay apart on a phone."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=ticks, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(
            FuncFormatter(lambda value, _: short(round(value, 10)).replace("-", "−"))
        )
    axes.grid(axis=grid)


def log_ticks(axes: Axes, side: str, low: float, high: float) -> None:
    """A log scale from `low` to `high`: ticks at powers of ten, at most five; else at 2, 5 too."""
    axis = axes.xaxis if side == "x" else axes.yaxis
    (axes.set_xscale if side == "x" else axes.set_yscale)("log")
    (axes.set_xlim if side == "x" else axes.set_ylim)(low, high)
    every = [times * 10.0**p for p in range(-300, 300) for times in (1, 2, 5)]
    within = [tick for tick in every if low <= tick * (1 + 1e-9) and tick <= high]
    powers = [tick for tick in within if tick in every[::3]]
    ticks = within if len(powers) < 2 else powers
    axis.set_major_locator(FixedLocator(ticks[:: max(-(-len(ticks) // 5), 1)]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def put_legend(
    figure: FigureBase,
    keys: Sequence[Artist],
    *,
    place: Literal["outside upper left", "outside lower left"] = "outside upper left",
) -> None:
    """One legend above the whole chart, or below it, in as many columns as fit."""
    if keys:
        figure.legend(handles=keys, loc=place, ncols=_columns(keys))


def legend_lines(keys: Sequence[Artist]) -> int:
    """How high the legend is, in lines of `LEGEND_LINE` inches."""
    return -(-len(keys) // _columns(keys)) if keys else 0


def named_rows(axes: Axes, count: int) -> None:
    """Rows at 0, 1, ... from the top, whose names are drawn above them: no scale on the left."""
    axes.set_ylim(count - 0.4, -0.75)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def category_ticks(axes: Axes, labels: Sequence[str], most: int) -> None:
    """Names of categories at 0, 1, ...; every second one or fewer where they are many."""
    step = -(-len(labels) // most)
    axes.set_xticks(range(0, len(labels), step))
    axes.set_xticklabels(labels[::step])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(labels) - 0.4)


def series_style(position: int) -> Style:
    """Colour, hollow marker and dashes of one of several series: never colour alone."""
    color, turn = SERIES[position % len(SERIES)], position // len(SERIES)
    return {
        "color": color,
        "marker": _MARKERS[(position + turn) % len(_MARKERS)],
        "linestyle": _DASHES[turn % len(_DASHES)],
        "markerfacecolor": "none",
        "markeredgewidth": 1.6,
    }


def class_styles(repetitions: Iterable[int]) -> Styles:
    """One colour, hollow marker and dashes for each class of a page, whatever chart it is in."""
    classes = sorted(set(repetitions) - {0})
    styles: dict[int, Style] = {0: series_style(0) | {"color": CONTROL, "marker": "x"}}
    for place, number in enumerate(classes):
        step = -(-(place + 1) * len(CLASSES) // len(classes)) - 1
        styles[number] = series_style(place + 1) | {"color": CLASSES[step]}
    return styles


def key(label: str, **style: Unpack[Style]) -> Line2D:
    """One entry of a legend."""
    return Line2D([], [], label=label, **style)


def _columns(keys: Sequence[Artist]) -> int:
    widths = [_label_width(str(artist.get_label())) + _KEY_WIDTH for artist in keys]
    fitting = (n for n in range(len(keys), 1, -1) if _table_width(widths, n) <= _LEGEND_WIDTH)
    return next(fitting, 1)


def _table_width(widths: Sequence[float], columns: int) -> float:
    """Matplotlib fills a legend column by column, the first ones longer by one."""
    parts = np.array_split(np.asarray(widths), columns)
    return sum(float(part.max()) for part in parts)


def _label_width(label: str) -> float:
    """In points, in the font that the layout is made with; a page's own is seldom wider."""
    font = FontProperties(family="DejaVu Sans", size=12)
    width: float = text_to_path.get_text_width_height_descent(label, font, False)[0]
    return width


def joined(parts: Sequence[str], most: int = 8) -> str:
    """Joined by semicolons; what is beyond `most` is counted."""
    more = [f"and {len(parts) - most} more"] if len(parts) > most else []
    return "; ".join([*parts[:most], *more])


def clipped(text: str, most: int = _LONGEST) -> str:
    r"""Text from data as one line that XML can hold, cut with a sign where it is long.

    >>> clipped("a\x00b\nc")
    'a\ufffdb c'
    """
    line = " ".join(text.split())
    clean = "".join(sign if sign.isprintable() else "\ufffd" for sign in line)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def rug(axes: Axes, rows: Sequence[tuple[str, ArrayLike, str]]) -> None:
    """A line of ticks a row, by name, values and colour; one path each, the rows apart."""
    for at, (_, values, color) in enumerate(rows):
        places = np.asarray(values, dtype=float)
        xs, ys = np.repeat(places, 3), np.tile([at - 0.34, at + 0.34, np.nan], places.size)
        axes.plot(xs, ys, color=color, linewidth=1.2)
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels([name for name, *_ in rows])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.spines["left"].set_visible(False)
