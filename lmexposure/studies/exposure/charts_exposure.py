"""Charts of one format: its canaries, beside a base or another run, controls, references, finds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal, TypeVar

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from numpy.typing import NDArray
from scipy import special

from lmexposure._style import (
    at_least,
    class_name,
    count,
    found_of,
    number,
    percent,
    probability,
    slug,
)
from lmexposure.core.charts import (
    BAND,
    CONTROL,
    FIT,
    INK,
    LINE,
    MUTED,
    REFERENCE,
    Chart,
    Draw,
    Legend,
    Style,
    Styles,
    category_ticks,
    class_styles,
    clipped,
    joined,
    key,
    log_ticks,
    plain_axes,
    rug,
    series_style,
)
from lmexposure.studies.exposure.parts import FormatResult, Role, SkewNormalFit
from lmexposure.studies.exposure.rows import AnyRole, CanaryRow, ClassRow, Floats, FormatData, Found

# Exposure under guessing is -log2 of a uniform number: its 5th and 95th percentile, in bits.
GUESSING_LOW, GUESSING_HIGH = 0.0740, 4.3219
_MARKERS: dict[AnyRole, str] = {"canary": "o", "control": "D"}
_MOST_DOTS, _MOST_INTERVALS, _FEW = 2000, 400, 60
_GOLDEN = 0.6180339887498949
_MIDDLE = "middle 90 % of guessing"
_HALF = 0.32  # of a column: as far as dots and the bar of the median reach


_Row = TypeVar("_Row")


@dataclass(frozen=True, kw_only=True)
class _Column:
    """One class: its canaries with an exposure, ascending, and its place on the x-axis."""

    role: AnyRole
    repetitions: int
    rows: tuple[CanaryRow, ...]
    at: int

    @property
    def places(self) -> Floats:
        """Spread by rank, so that neighbours are apart and the same data looks the same, (n,)."""
        spread: Floats = (np.arange(len(self.rows)) * np.float64(_GOLDEN) + 0.5) % 1.0
        return self.at + (2 * spread - 1) * _HALF * min(1.0, len(self.rows) / 8)


def _of_format(  # noqa: PLR0913 - what is drawn, and what is said of it
    kind: str,
    name: str,
    title: str,
    *,
    caption: str,
    description: str,
    draw: Draw,
    legend: Legend,
    height: float = 3.7,
) -> Chart:
    """A chart of one format."""
    return Chart(
        name=f"{kind}-{slug(name)}",
        kind=kind,
        subject=name,
        title=f"{title}, {clipped(name)}",
        caption=caption,
        description=description,
        draw=draw,
        legend=legend,
        height=height,
    )


def exposure_chart(data: FormatData, styles: Styles | None = None) -> Chart | None:
    """Each canary's exposure with its interval, class by class, controls apart on the left.

    Source: figure 1 and section 4 of Carlini et al. 2019, The Secret Sharer; guessing, Jagielski
    2023, A note on interpreting canary exposure.
    """
    columns = _columns(data.canaries)
    if not columns:
        return None
    by_class = styles or class_styles(column.repetitions for column in columns)
    return _of_format(
        "exposure",
        data.form.name,
        "Exposure by repetitions",
        caption="Dots above the shaded band are exposed beyond guessing; those at the dashed line "
        f"an attacker finds first.{_left_out(data, columns)}",
        description=_description(data, columns),
        draw=lambda figure: _draw(figure, data, columns, by_class),
        legend=lambda: _legend(data, columns),
    )


def _columns(canaries: Sequence[CanaryRow]) -> list[_Column]:
    groups: dict[tuple[int, AnyRole], list[CanaryRow]] = {}  # controls have repetitions 0
    for canary in canaries:
        if canary.exposure is not None:
            groups.setdefault((canary.repetitions, canary.role), []).append(canary)
    return [
        _Column(
            role=role,
            repetitions=repetitions,
            rows=tuple(sorted(rows, key=lambda row: (row.exposure or 0.0, row.id))),
            at=at,
        )
        for at, ((repetitions, role), rows) in enumerate(sorted(groups.items()))
    ]


def _draw(figure: FigureBase, data: FormatData, columns: Sequence[_Column], styles: Styles) -> None:
    axes, bits = figure.subplots(), data.form.bits
    plain_axes(axes)
    axes.axhline(min(GUESSING_HIGH, bits), color=MUTED, linewidth=0.8, linestyle=":")
    _frame(axes, bits)
    # Of very many evenly by rank, so that a page stays light.
    every = sum(len(column.rows) for column in columns)
    shown = [
        replace(column, rows=_evenly(column.rows, max(2, len(column.rows) * _MOST_DOTS // every)))
        if every > _MOST_DOTS
        else column
        for column in columns
    ]
    if sum(len(column.rows) for column in shown) <= _MOST_INTERVALS:
        for column in shown:
            _intervals(axes, column, bits, styles[column.repetitions]["color"])
    for column in shown:
        color, size = styles[column.repetitions]["color"], 5.5 if len(column.rows) <= _FEW else 3.5
        capped = np.array([row.capped for row in column.rows])
        values = np.array([row.exposure for row in column.rows], dtype=np.float64)
        for chosen, shape in ((~capped, _MARKERS[column.role]), (capped, "^")):
            if chosen.any():
                dot = _dot(color, shape, size, hollow=column.role != "canary")
                places = column.places[chosen]
                axes.plot(places, values[chosen], zorder=3, clip_on=False, **dot)
    found = {(column.role, column.repetitions): column for column in columns}
    for row in data.classes:
        if (row.role, row.repetitions) in found:
            column, median = found[row.role, row.repetitions], row.median.value
            # Behind few dots, which it would hide; before many, which would hide it.
            order = 2.5 if len(column.rows) <= _FEW else 4
            ends = [column.at - 0.4, column.at + 0.4]
            axes.plot(ends, [median, median], color=INK, linewidth=2.2, zorder=order)
    category_ticks(axes, [_label(column, len(columns)) for column in columns], 9)
    axes.set_ylabel("Exposure (bits),\nhigher = more memorised")


def _frame(axes: Axes, bits: float) -> None:
    """What exposures lie between: the band of guessing and the line of extraction."""
    _guessing(axes, bits)
    axes.set_xlabel("Repetitions in the training data")
    axes.set_ylim(-0.03 * bits, 1.06 * bits)


def _guessing(axes: Axes, most: float) -> None:
    top = min(GUESSING_HIGH, most)
    axes.axhspan(min(GUESSING_LOW, top), top, color=BAND, zorder=0.5)
    axes.axhline(most, color=LINE, linewidth=1.6, linestyle="--")


def _frame_keys(bits: float) -> list[Artist]:
    extraction = f"extraction, log₂|R| = {number(bits, 1)}"
    return [
        Patch(facecolor=BAND, edgecolor=MUTED, label=_MIDDLE),
        key(extraction, color=LINE, linestyle="--", linewidth=1.6),
    ]


def _evenly(rows: Sequence[_Row], keep: int) -> tuple[_Row, ...]:
    """Lowest and highest kept."""
    if len(rows) <= keep:
        return tuple(rows)
    return tuple(rows[i] for i in np.linspace(0, len(rows) - 1, keep).round().astype(int))


def _intervals(axes: Axes, column: _Column, bits: float, color: str) -> None:
    """One path for all: low to high, and up to the top where a lower bound has no upper end."""
    xs, ys = [], []
    for x, row in zip(column.places, column.rows, strict=True):
        value = float(row.exposure or 0.0)
        xs += [x, x, np.nan]
        high = value if row.high is None else row.high
        ys += [value if row.low is None else row.low, min(high, bits), np.nan]
    axes.plot(xs, ys, color=color, linewidth=0.9, alpha=0.6, zorder=2)


def _label(column: _Column, columns: int) -> str:
    control = column.role == "control"
    if columns > 6:
        return "0" if control else f"{column.repetitions:,}"
    name = "controls" if control else f"{column.repetitions:,}"
    return f"{name}\nn = {len(column.rows):,}"


def _legend(data: FormatData, columns: Sequence[_Column]) -> list[Artist]:
    roles = {column.role for column in columns}
    words = {"canary": "canary", "control": "control, never inserted"}
    found: list[Artist] = [
        key(words[role], **_dot(INK, marker, 6, hollow=role != "canary"))
        for role, marker in _MARKERS.items()
        if role in roles
    ]
    if any(row.capped for column in columns for row in column.rows):
        found.append(key("lower bound", **_dot(INK, "^", 6, hollow=True)))
    return [*found, key("class median", color=INK, linewidth=2.2), *_frame_keys(data.form.bits)]


def _dot(color: str, marker: str, size: float, *, hollow: bool) -> Style:
    return {
        "linestyle": "none",
        "markersize": size,
        "marker": marker,
        "color": color,
        "markerfacecolor": "none" if hollow else color,
    }


def _description(data: FormatData, columns: Sequence[_Column]) -> str:
    inserted = [row for column in columns if column.role == "canary" for row in column.rows]
    never = sum(len(column.rows) for column in columns if column.role != "canary")
    high = min(GUESSING_HIGH, data.form.bits)
    above = sum(float(row.exposure or 0) > high for row in inserted)
    medians = joined([_median(row) for row in data.classes])
    return (
        f"Exposure of {count(len(inserted), 'canary', 'canaries')}"
        f"{f' and {never:,} never inserted' if never else ''}, in bits, higher = more memorised: "
        f"{above:,} of {len(inserted):,} canaries lie above {number(high)} bits, where the middle "
        f"90 % of guessing ends, and extraction is at {number(data.form.bits, 1)} bits."
        f"{f' Medians: {medians}.' if medians else ''}{_left_out(data, columns)}"
    )


def _median(row: ClassRow) -> str:
    median = at_least(row.median.value, row.median_capped)
    return f"{class_name(row.role, row.repetitions)} {median}"


def _left_out(data: FormatData, columns: Sequence[_Column]) -> str:
    """What the picture does not show, in words."""
    drawn = sum(len(column.rows) for column in columns)
    missing = len(data.canaries) - drawn
    parts = []
    if missing:
        parts.append(f"{missing:,} without an exposure are not drawn")
    if drawn > _MOST_DOTS:
        parts.append(f"of {drawn:,} dots about {_MOST_DOTS:,} are drawn, evenly by rank")
    if drawn > _MOST_INTERVALS:
        parts.append("the intervals of single canaries are left out")
    return f" {'; '.join(parts).capitalize()}." if parts else ""


def calibrated_chart(data: FormatData, styles: Styles | None = None) -> Chart | None:
    """Each canary's calibrated exposure, by its exposure before the training.

    Source: Jagielski 2023, A note on interpreting canary exposure.
    """
    dots = [
        row for row in data.canaries if None not in (row.base_exposure, row.calibrated_exposure)
    ]
    if not dots:
        return None
    shown = _evenly(sorted(dots, key=_calibrated), _MOST_DOTS)
    by_class = styles or class_styles(row.repetitions for row in shown)
    # The most that ranks among the references show; all of R where they are all others.
    most = data.form.bits if data.form.exhaustive else math.log2(data.form.references)
    return _of_format(
        "calibrated",
        data.form.name,
        "Calibrated exposure beside the base",
        caption="Dots above the shaded band were memorised; dots far to the right were likely "
        "before the training, whatever their exposure is now.",
        description=_calibrated_description(data, shown),
        draw=lambda figure: _draw_calibrated(figure, most, shown, by_class),
        legend=lambda: _calibrated_legend(most, shown, by_class),
    )


def _calibrated(row: CanaryRow) -> float:
    return row.calibrated_exposure or 0.0


def _draw_calibrated(
    figure: FigureBase, most: float, shown: Sequence[CanaryRow], styles: Styles
) -> None:
    axes = figure.subplots()
    plain_axes(axes, grid="both")
    _guessing(axes, most)
    for n in sorted({row.repetitions for row in shown}):
        for capped in (False, True):
            own = [row for row in shown if (row.repetitions, row.calibrated_capped) == (n, capped)]
            shape = "^" if capped else "o" if n else "D"
            dot = _dot(styles[n]["color"], shape, 5.5, hollow=not n)
            bases, values = [row.base_exposure or 0.0 for row in own], list(map(_calibrated, own))
            axes.plot(bases, values, zorder=3, clip_on=False, **dot)
    axes.set_xlim(-0.03 * most, 1.06 * most)
    axes.set_ylim(-0.03 * most, 1.06 * most)
    axes.set_xlabel("Exposure under the base (bits)")
    axes.set_ylabel("Calibrated exposure (bits),\nhigher = more memorised")


def _calibrated_legend(most: float, shown: Sequence[CanaryRow], styles: Styles) -> list[Artist]:
    found: list[Artist] = [
        key(class_name(role, n), **_dot(styles[n]["color"], "o" if n else "D", 6, hollow=not n))
        for n, role in sorted({(row.repetitions, row.role) for row in shown})
    ]
    if any(row.calibrated_capped for row in shown):
        found.append(key("lower bound", linestyle="none", marker="^", color=INK, markersize=6))
    return [
        *found,
        Patch(facecolor=BAND, edgecolor=MUTED, label=_MIDDLE),
        key(f"most among references, {number(most, 1)}", color=LINE, linestyle="--"),
    ]


def _calibrated_description(data: FormatData, shown: Sequence[CanaryRow]) -> str:
    inserted = [row for row in shown if row.role == "canary"]
    above = sum(_calibrated(row) > GUESSING_HIGH for row in inserted)
    before = sum((row.base_exposure or 0.0) > GUESSING_HIGH for row in inserted)
    medians = [
        f"{class_name(row.role, row.repetitions)} "
        f"{at_least(row.calibrated.value, row.calibrated_capped)}"
        for row in data.beside_base
    ]
    return (
        f"Of {count(len(inserted), 'canary', 'canaries')}, {above:,} have a calibrated exposure "
        f"above {number(GUESSING_HIGH)} bits, where the middle 90 % of guessing ends, and "
        f"{before:,} lay above that before the training. Medians: {joined(medians)}."
    )


_CARET: Literal[10] = 10  # matplotlib.markers.CARETUPBASE

Run = tuple[str, Sequence[ClassRow]]


def comparison_chart(format_name: str, bits: float, runs: Sequence[Run]) -> Chart | None:
    """Median exposures with their intervals, class by class, one series a run."""
    classes = sorted({(row.repetitions, row.role) for _, rows in runs for row in rows})
    if not classes:
        return None
    medians = [
        f"{clipped(name)}: {', '.join(_median(row) for row in rows[-4:]) or 'no medians'}"
        for name, rows in runs
    ]
    return _of_format(
        "compare",
        format_name,
        f"Median exposure of {len(runs)} runs",
        caption="The higher a run's mark in a column, the more of that class it memorised; where "
        "bars overlap, chance may explain it.",
        description="Median exposure in bits, higher = more memorised, of the classes repeated "
        f"most. {joined(medians, 6)}. Extraction is at {number(bits, 1)} bits, the median of "
        "guessing at 1.",
        draw=lambda figure: _draw_comparison(figure, bits, runs, classes),
        legend=lambda: _comparison_legend(bits, runs),
    )


def _draw_comparison(
    figure: FigureBase, bits: float, runs: Sequence[Run], classes: Sequence[tuple[int, Role]]
) -> None:
    axes = figure.subplots()
    plain_axes(axes)
    _frame(axes, bits)
    offsets = (np.arange(len(runs)) - (len(runs) - 1) / 2) * min(0.2, 0.7 / len(runs))
    for position, ((_, rows), offset) in enumerate(zip(runs, offsets, strict=True)):
        style = series_style(position) | {"linestyle": "none"}
        for row in rows:
            x, median = classes.index((row.repetitions, row.role)) + float(offset), row.median
            ends = [median.value if end is None else end for end in (median.low, median.high)]
            axes.plot([x, x], ends, color=style["color"], linewidth=1.2)
            axes.plot(x, median.value, **style)
            if row.median_capped:
                axes.plot(x, max(ends), marker=_CARET, color=INK, markersize=6)
    zero = "controls" if len(classes) <= 6 else "0"
    category_ticks(axes, [zero if role == "control" else f"{n:,}" for n, role in classes], 7)
    axes.set_ylabel("Median exposure (bits),\nhigher = more memorised")


def _comparison_legend(bits: float, runs: Sequence[Run]) -> list[Artist]:
    found: list[Artist] = [
        key(clipped(name, 30), **(series_style(position) | {"linestyle": "none"}))
        for position, (name, _) in enumerate(runs)
    ]
    if any(row.median_capped for _, rows in runs for row in rows):
        found.append(key("lower bound", marker=_CARET, color=INK, linestyle="none"))
    return found + _frame_keys(bits)


_FEWEST_CONTROLS, _MOST_CONTROLS = 3, 400
_LEVEL = 0.95
_EXPECTED: Style = {"color": INK, "linewidth": 1.2, "linestyle": "--"}
_DOTS = _dot(CONTROL, "D", 5, hollow=True)


def controls_chart(data: FormatData) -> Chart | None:
    """The controls' exposures, in order, against what as many guesses give.

    The i-th largest of n uniform numbers has a Beta(n + 1 - i, i) distribution; exposure under
    guessing is -log2 of such a number. The band is pointwise: of 20 points one may lie outside.

    Source: David and Nagaraja 2003, Order statistics, section 2.1; Jagielski 2023.
    """
    values = [canary.exposure for canary in data.canaries if canary.role == "control"]
    exposures = np.sort([value for value in values if value is not None])
    if exposures.size < _FEWEST_CONTROLS:
        return None
    expected = _expected(exposures.size, data.form.bits)
    return _of_format(
        "controls",
        data.form.name,
        "Controls against expectation",
        caption="Dots along the dashed line and in the band look like guessing, as they should; "
        "dots that leave it say that the measurement is at fault.",
        description=_controls_description(exposures, expected),
        draw=lambda figure: _draw_controls(figure, exposures, expected),
        legend=lambda: [
            key(f"control (n = {exposures.size:,})", **_DOTS),
            key("as expected", **_EXPECTED),
            Patch(facecolor=BAND, edgecolor=MUTED, label="95 % of guessing, point by point"),
        ],
    )


def _expected(n: int, bits: float) -> Floats:
    """Low, median and high exposure of each of n guesses in ascending order, shape (3, n)."""
    place = np.arange(n, 0, -1)  # the smallest exposure belongs to the largest uniform number
    tails = np.array([(1 + _LEVEL) / 2, 0.5, (1 - _LEVEL) / 2])[:, None]
    uniform: Floats = special.betaincinv(place, n + 1 - place, tails)
    # No rank is below 1, so that no exposure is above log2|R|.
    return np.clip(-np.log2(uniform), 0.0, bits)


def _draw_controls(figure: FigureBase, exposures: Floats, expected: Floats) -> None:
    axes = figure.subplots()
    plain_axes(axes, grid="both")
    shown = _shown_controls(exposures.size)
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


def _shown_controls(n: int) -> NDArray[np.int64]:
    """All of them; of very many, those with the highest exposure and evenly spaced others."""
    if n <= _MOST_CONTROLS:
        return np.arange(n)
    half = _MOST_CONTROLS // 2
    return np.unique(np.r_[np.linspace(0, n - half - 1, half).astype(int), n - half : n])


def _controls_description(exposures: Floats, expected: Floats) -> str:
    low, _, high = expected
    # A rank is whole: an exposure may differ from the band's edge by rounding only.
    inside = int(((exposures >= low - 1e-9) & (exposures <= high + 1e-9)).sum())
    drawn = _shown_controls(exposures.size).size
    rest = "" if drawn == exposures.size else f" {drawn:,} dots are drawn."
    return (
        f"Exposures of {count(exposures.size, 'control')}, in order, against those of as many "
        f"guesses: {inside:,} lie in the band that holds 95 % of guessing at each place. Their "
        f"median is {number(float(np.median(exposures)))} bits, that of guessing 1.{rest}"
    )


_LEVELS = np.array([0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1])  # of `quantiles`
_MOST_BINS, _FEWEST_BINS = 80, 5
_Class = tuple[AnyRole, int, Floats]  # role, repetitions, ascending log-perplexities


@dataclass(frozen=True, kw_only=True, eq=False)
class _Histogram:
    """Density a bit, shape (k,), between k + 1 ascending edges in bits."""

    density: Floats
    edges: Floats
    scores: bool  # from all scores, not from quantiles


def reference_chart(data: FormatData, bits: Floats, styles: Styles | None = None) -> Chart | None:
    """The references' log-perplexities as a histogram, their skew-normal curve, the canaries.

    `bits`: log-perplexities of the references, shape (n,); empty without scores. Source: figure 3
    of Carlini et al. 2019, The Secret Sharer.
    """
    histogram = _histogram(data, bits)
    if histogram is None:
        return None
    rows, fit = _reference_rows(data.canaries), data.form.skew_normal
    by_class = styles or class_styles(repetitions for _, repetitions, _ in rows)
    return _of_format(
        "references",
        data.form.name,
        "Log-perplexity of references and canaries",
        caption="Each tick below is a canary or control: the farther left of the references, the "
        "better the model knows it.",
        description=_reference_description(data.form, histogram, rows),
        draw=lambda figure: _draw_references(figure, fit, histogram, rows, by_class),
        legend=lambda: _reference_legend(data.form, histogram),
        height=3.0 + 0.26 * len(rows),
    )


def _histogram(data: FormatData, bits: Floats) -> _Histogram | None:
    scores = bits[np.isfinite(bits)]
    if scores.size:
        bins = int(np.clip(2 * scores.size ** (1 / 3), _FEWEST_BINS, _MOST_BINS))
        density, edges = np.histogram(scores, bins=bins, density=True)
        return _Histogram(density=density, edges=edges, scores=True)
    # Between two quantiles lies a known share; equal ones are one edge.
    quantiles = np.array(data.form.reference_bits_quantiles, dtype=np.float64)
    if not quantiles.size:
        return None
    edges, last = np.unique(quantiles[::-1], return_index=True)
    if edges.size < 2:
        return None
    levels = _LEVELS[::-1][last]
    levels[0] = 0  # whatever lies at the lowest edge belongs to the first bar
    shares = np.diff(levels)
    return _Histogram(density=shares / np.diff(edges), edges=edges, scores=False)


def _reference_rows(canaries: Sequence[CanaryRow]) -> list[_Class]:
    """The classes, controls first: they have repetitions 0."""
    groups: dict[tuple[int, AnyRole], list[float]] = {}
    for canary in canaries:
        if canary.log_perplexity_bits is not None:
            key_of = canary.repetitions, canary.role
            groups.setdefault(key_of, []).append(canary.log_perplexity_bits)
    return [(role, n, np.sort(bits)) for (n, role), bits in sorted(groups.items())]


def _draw_references(
    figure: FigureBase,
    fit: SkewNormalFit | None,
    histogram: _Histogram,
    rows: Sequence[_Class],
    styles: Styles,
) -> None:
    if rows:
        ratios = [2.4, 0.26 * len(rows) + 0.1]
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
        rug(below, [(class_name(role, n), bits, str(styles[n]["color"])) for role, n, bits in rows])
        axes.tick_params(axis="x", length=0, labelbottom=False)
    else:
        axes = below = figure.subplots()
    plain_axes(axes, ticks=4)
    axes.stairs(histogram.density, histogram.edges, fill=True, color=REFERENCE, alpha=0.55)
    if fit is not None:
        ends = [histogram.edges[0], histogram.edges[-1]]
        ends += [float(end) for *_, bits in rows for end in (bits[0], bits[-1])]
        xs = np.linspace(min(ends), max(ends), 241)
        ys = _density(fit, xs)
        seen = ys > ys.max() / 1000
        axes.plot(xs[seen], ys[seen], color=FIT)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("Density (per bit)")
    below.set_xlabel("Log-perplexity (bits), lower = more memorised")


def _density(fit: SkewNormalFit, bits: Floats) -> Floats:
    """The skew-normal density 2 phi(z) Phi(shape z) / scale a bit, at these bits, shape (n,)."""
    z = (bits - fit.location) / fit.scale
    found: Floats = 2 * np.exp(-(z**2) / 2) * special.ndtr(fit.shape * z)
    return found / (math.sqrt(2 * math.pi) * fit.scale)


def _reference_legend(form: FormatResult, histogram: _Histogram) -> list[Artist]:
    of = "" if histogram.scores else ", from quantiles"
    label = f"{form.references:,} references{of}"
    found: list[Artist] = [Patch(facecolor=REFERENCE, alpha=0.55, label=label)]
    if form.skew_normal is not None:
        found.append(key(f"skew-normal fit{_goodness(form.skew_normal)}", color=FIT))
    return found


def _goodness(fit: SkewNormalFit) -> str:
    goodness = fit.goodness
    if goodness is None:
        return " (not tested)"
    return f" (KS {number(goodness.ks_statistic, 4)}, p = {probability(goodness.ks_p_value)})"


def _reference_description(
    form: FormatResult, histogram: _Histogram, rows: Sequence[_Class]
) -> str:
    low, high = histogram.edges[0], histogram.edges[-1]
    share = "" if histogram.scores else " (drawn from nine quantiles)"
    classes = [f"{class_name(role, n)} {number(float(np.median(bits)))}" for role, n, bits in rows]
    medians = f" Median of each class, in bits: {joined(classes)}." if classes else ""
    curve = form.skew_normal
    fit = "" if curve is None else f" A skew-normal curve is fitted{_goodness(curve)}."
    return (
        f"{count(form.references, 'reference')} have log-perplexities from {number(low)} to "
        f"{number(high)} bits{share}, lower = more memorised.{medians}{fit}"
    )


_CHANCE: Style = {"color": INK, "linestyle": (0, (2, 2)), "linewidth": 1.2}
_GUESSES, _KNOWN = "Guesses tried", "Characters known"
_GIVEN = {_GUESSES: ("guess", "guesses"), _KNOWN: ("character known", "characters known")}
_FoundOf = list[tuple[ClassRow, list[Found]]]  # of each class, by how much was given


def extraction_chart(data: FormatData, styles: Styles | None = None) -> Chart | None:
    """The share of a class's secrets that was found, against guesses tried and characters known.

    Source: section 7 of Carlini et al. 2019, The Secret Sharer.
    """
    made = {
        _GUESSES: [(row, _tried(row.tries)) for row in data.classes],
        _KNOWN: [(row, _tried(row.revealed)) for row in data.classes],
    }
    panels = {label: rows for label, rows in made.items() if any(found for _, found in rows)}
    if not panels:
        return None
    by_class = styles or class_styles(row.repetitions for row in data.classes)
    tried = [row for row in data.classes if row.guesses or row.revealed]
    most = " ".join(_most(rows, *_GIVEN[label]) for label, rows in panels.items())
    return _of_format(
        "extraction",
        data.form.name,
        "Secrets found by an attacker",
        caption="Lines that rise from the dotted one are secrets that the model gives away: the "
        "sooner, the cheaper for an attacker.",
        description=f"Secrets found by search. {most}",
        draw=lambda figure: _draw_extraction(figure, panels, by_class),
        legend=lambda: [
            *(key(class_name(r.role, r.repetitions), **by_class[r.repetitions]) for r in tried),
            key("by chance", **_CHANCE),
        ],
        height=3.1,
    )


def _tried(rows: Sequence[Found]) -> list[Found]:
    return sorted((row for row in rows if row.of > 0), key=attrgetter("given"))


def _draw_extraction(figure: FigureBase, panels: Mapping[str, _FoundOf], styles: Styles) -> None:
    every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (label, rows) in zip(every, panels.items(), strict=True):
        plain_axes(axes, ticks=4)
        if label == _GUESSES:
            given = [result.given for _, found in rows for result in found]
            smallest, largest = max(1, min(given)), max(given)
            log_ticks(axes, "x", smallest / 1.4, max(largest, 10 * smallest) * 2.5)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
        _draw_found(axes, rows, styles)
        axes.set_xlabel(label)
        axes.set_ylim(-0.04, 1.04)
    every[0].set_ylabel("Secrets found")
    every[0].yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    every[0].yaxis.set_major_formatter(FuncFormatter(lambda share, _: percent(share)))


def _draw_found(axes: Axes, rows: _FoundOf, styles: Styles) -> None:
    """Between two numbers of guesses the share is known to lie between theirs: steps."""
    for row, found in rows:
        shares = [result.found / result.of for result in found]
        given = [result.given for result in found]
        if found:  # a line without points would still be laid out, at the corner of the figure
            axes.plot(
                given, shares, drawstyle="steps-post", clip_on=False, **styles[row.repetitions]
            )
    longest = max((found for _, found in rows), key=len)
    chance = [min(1.0, result.by_chance / result.of) for result in longest]
    axes.plot([result.given for result in longest], chance, **_CHANCE)


def _most(rows: _FoundOf, singular: str, plural: str) -> str:
    """How many were found with the most that was given."""
    given = max(found[-1].given for _, found in rows if found)
    ends = [(row, found[-1]) for row, found in rows if found and found[-1].given == given]
    shares = [
        f"{class_name(row.role, row.repetitions)} {found_of(end.found, end.of, end.by_chance)}"
        for row, end in ends
    ]
    chance = max(min(1.0, end.by_chance / end.of) for _, end in ends)
    return (
        f"With {count(given, singular, plural)}: {joined(shares)}; guessing finds each with "
        f"probability {probability(chance)}."
    )
