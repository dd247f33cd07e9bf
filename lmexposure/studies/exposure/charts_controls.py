"""Controls against expectation: exposures of what was never inserted follow the diagonal."""

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import FigureBase
from matplotlib.patches import Patch
from numpy.typing import NDArray
from scipy import special

from lmexposure._style import count, number, slug
from lmexposure.core.charts import (
    BAND,
    CONTROL,
    INK,
    MUTED,
    Chart,
    Style,
    clipped,
    key,
    plain_axes,
)
from lmexposure.studies.exposure.rows import Floats, FormatData

_FEWEST, _MOST_DOTS = 3, 400
_LEVEL = 0.95
_EXPECTED: Style = {"color": INK, "linewidth": 1.2, "linestyle": "--"}
_DOTS: Style = {
    "marker": "D",
    "markersize": 5,
    "linestyle": "none",
    "color": CONTROL,
    "markerfacecolor": "none",
}


def controls_chart(data: FormatData) -> Chart | None:
    """The controls' exposures, in order, against what as many guesses give.

    The i-th largest of n uniform numbers has a Beta(n + 1 - i, i) distribution; exposure under
    guessing is -log2 of such a number. The band is pointwise: of 20 points one may lie outside.

    Source: David and Nagaraja 2003, Order statistics, section 2.1; Jagielski 2023.
    """
    values = [canary.exposure for canary in data.canaries if canary.role == "control"]
    exposures = np.sort([value for value in values if value is not None])
    if exposures.size < _FEWEST:
        return None
    expected = _expected(exposures.size, data.bits)
    return Chart(
        name=f"controls-{slug(data.name)}",
        kind="controls",
        subject=data.name,
        title=f"Controls against expectation, {clipped(data.name)}",
        caption=(
            "Dots along the dashed line and in the band look like guessing, as they should; dots "
            "that leave it say that the measurement is at fault."
        ),
        description=_description(exposures, expected),
        draw=lambda figure: _draw(figure, exposures, expected),
        legend=lambda: _legend(exposures.size),
        height=3.7,
    )


def _expected(n: int, bits: float) -> Floats:
    """Low, median and high exposure of each of n guesses in ascending order, shape (3, n)."""
    place = np.arange(n, 0, -1)  # the smallest exposure belongs to the largest uniform number
    tails = np.array([(1 + _LEVEL) / 2, 0.5, (1 - _LEVEL) / 2])[:, None]
    uniform: Floats = special.betaincinv(place, n + 1 - place, tails)
    # No rank is below 1, so that no exposure is above log2|R|.
    return np.clip(-np.log2(uniform), 0.0, bits)


def _draw(figure: FigureBase, exposures: Floats, expected: Floats) -> None:
    axes = figure.subplots()
    plain_axes(axes, grid="both")
    shown = _shown(exposures.size)
    low, median, high = expected[:, shown]
    axes.fill_between(median, low, high, color=BAND, linewidth=0)
    for edge in (low, high):
        axes.plot(median, edge, color=MUTED, linewidth=0.8, linestyle=":")
    axes.plot(median[[0, -1]], median[[0, -1]], **_EXPECTED)
    axes.plot(median, exposures[shown], **_DOTS)
    axes.set_xlim(left=-0.02 * median[-1])
    axes.set_ylim(bottom=-0.02 * max(exposures[-1], high[-1]))
    axes.set_xlabel("Expected of guessing (bits)")
    axes.set_ylabel("Exposure of controls (bits)")


def _legend(n: int) -> list[Artist]:
    return [
        key(f"control (n = {n:,})", **_DOTS),
        key("as expected", **_EXPECTED),
        Patch(facecolor=BAND, edgecolor=MUTED, label="95 % of guessing, point by point"),
    ]


def _shown(n: int) -> NDArray[np.int64]:
    """All of them; of very many, those with the highest exposure and evenly spaced others."""
    if n <= _MOST_DOTS:
        return np.arange(n)
    half = _MOST_DOTS // 2
    return np.unique(np.r_[np.linspace(0, n - half - 1, half).astype(int), n - half : n])


def _description(exposures: Floats, expected: Floats) -> str:
    low, _, high = expected
    # A rank is whole: an exposure may differ from the band's edge by rounding only.
    inside = int(((exposures >= low - 1e-9) & (exposures <= high + 1e-9)).sum())
    drawn = _shown(exposures.size).size
    rest = "" if drawn == exposures.size else f" {drawn:,} dots are drawn."
    return (
        f"Exposures of {count(exposures.size, 'control')}, in order, against those of as many "
        f"guesses: {inside:,} lie in the band that holds 95 % of guessing at each place. Their "
        f"median is {number(float(np.median(exposures)))} bits, that of guessing 1.{rest}"
    )
