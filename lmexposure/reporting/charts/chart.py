"""One chart: what it says in words, and its picture for a page, for a file and as pixels."""

import io
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from matplotlib import style
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure, FigureBase

from lmexposure.errors import SettingsError
from lmexposure.reporting.charts.looks import (
    LEGEND_LINE,
    WIDTH,
    Draw,
    Legend,
    legend_lines,
    put_legend,
    settings,
)
from lmexposure.reporting.charts.palette import PAPER
from lmexposure.reporting.charts.svg import dressed

Theme = Literal["page", "plain"]

_DOTS_PER_INCH = 192  # twice a screen's
_TITLE_LINE, _TITLE_LETTERS = 0.27, 52  # inches, and letters in a line


@dataclass(frozen=True, kw_only=True, eq=False)
class Chart:
    """A chart that draws itself when it is asked for.

    Attributes:
        name: lower-case letters, digits, _ and -, from `kind` and `subject`; a file name, and
            the beginning of every id in the picture.
        kind: "exposure", "references", "extraction", "controls", "epsilon", "roc", "training" or
            "compare".
        subject: the format that it shows; "" for the whole run.
        title: one line.
        caption: what to see in it, in a sentence or two, for who does; its numbers are in a table.
        description: its message in one to three sentences, for who does not see it.
        draw: puts it on an empty figure.
        legend: what stands above it, so that no key ever covers data.
        height: in inches, without the legend; the width is the same for all.
    """

    name: str
    kind: str
    subject: str
    title: str
    caption: str
    description: str
    draw: Draw
    legend: Legend
    height: float

    def svg(self, theme: Theme = "page") -> str:
        """The chart as SVG; the same data gives the same text.

        Args:
            theme: "page": an element for an HTML page, as wide as its place, in the page's font
                and with CSS variables for colours (`palette.VARIABLES`), on no background.
                "plain": a file of its own with colours on white, and its title.

        Raises:
            SettingsError: no such theme.
        """
        if theme not in ("page", "plain"):
            raise SettingsError(f"theme={theme!r} must be 'page' or 'plain'")
        drawn = io.StringIO()
        with _our_looks():
            figure = self._figure(titled=theme == "plain")
            # Not savefig, which draws twice: the layout is made by the one draw that there is.
            FigureCanvasSVG(figure).print_svg(drawn)  # type: ignore[no-untyped-call]
        return dressed(
            drawn.getvalue(),
            name=self.name,
            title=self.title,
            description=self.description,
            inline=theme == "page",
        )

    def png(self) -> bytes:
        """The chart as pixels on white with its title, at twice a screen's density."""
        drawn = io.BytesIO()
        with _our_looks():
            self._figure(titled=True).savefig(
                drawn, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None}
            )
        return drawn.getvalue()

    def _figure(self, *, titled: bool) -> Figure:
        """A legend of many lines makes the chart higher, not its data smaller."""
        keys = self.legend()
        height = self.height + LEGEND_LINE * legend_lines(keys)
        lines = textwrap.wrap(self.title, _TITLE_LETTERS) if titled else []
        strip = _TITLE_LINE * len(lines) + 0.1 if lines else 0.0
        figure = Figure(figsize=(WIDTH, height + strip), layout="constrained")
        body: FigureBase = figure
        if lines:
            figure.set_facecolor(PAPER)
            # matplotlib would print a title of the figure over the legend.
            grid = figure.add_gridspec(2, 1, height_ratios=[strip, height])
            above, body = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
            text = "\n".join(lines)
            above.text(0.01, 0.5, text, va="center", fontsize=13, fontweight="bold")
        put_legend(body, keys)
        self.draw(body)
        return figure


@contextmanager
def _our_looks() -> Iterator[None]:
    """Matplotlib's defaults and ours, whatever the user's own settings file says."""
    with style.context(["default", settings()]), warnings.catch_warnings():
        # A letter that the font lacks is measured as a box; the page's own font shows it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield
