"""How surprised the model is by texts it never saw, with the canaries marked below."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.patches import Patch
from numpy.typing import NDArray
from scipy import special

from lmexposure.reporting.charts.chart import Chart
from lmexposure.reporting.charts.finite import finite, finite_array
from lmexposure.reporting.charts.looks import key, quiet
from lmexposure.reporting.charts.palette import ACCENT, CANARY, CONTROL, FIT, REFERENCE
from lmexposure.reporting.charts.words import class_name, count, listed, number, short, slug
from lmexposure.reporting.data import CanaryRow, FormatData

__all__ = ["reference_distribution"]

Floats = NDArray[np.float64]

_LEVELS = np.array([0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1])  # of `quantiles`
_MOST_BINS, _FEWEST_BINS = 80, 5
_COLORS = {"control": CONTROL, "excluded": ACCENT, "canary": CANARY}
_ROLES = ("control", "excluded", "canary")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Histogram:
    """Density a bit, shape (k,), between k + 1 ascending edges in bits."""

    density: Floats
    edges: Floats
    scores: bool  # from all scores, not from quantiles


def reference_distribution(data: FormatData) -> Chart | None:
    """The references' log-perplexities as a histogram, their skew-normal curve, the canaries.

    Args:
        data: of one format; without scores the histogram is drawn from nine quantiles.

    Returns:
        The chart; None where there are neither scores nor quantiles.

    Source: figure 3 of Carlini et al. 2019, The Secret Sharer.
    """
    histogram = _histogram(data)
    if histogram is None:
        return None
    rows = _rows(data.canaries)
    return Chart(
        name=f"references-{slug(data.name)}",
        kind="references",
        subject=data.name,
        title=f"Log-perplexity of references and canaries, {short(data.name)}",
        description=_description(data, histogram, rows),
        draw=lambda figure: _draw(figure, data, histogram, rows),
        legend=lambda: _legend(data, histogram),
        height=3.0 + 0.26 * len(rows),
    )


def _histogram(data: FormatData) -> _Histogram | None:
    scores = np.asarray(data.reference_bits, dtype=np.float64)
    scores = scores[np.isfinite(scores)]
    if scores.size:
        bins = int(np.clip(2 * scores.size ** (1 / 3), _FEWEST_BINS, _MOST_BINS))
        density, edges = np.histogram(scores, bins=bins, density=True)
        return _Histogram(density=density, edges=edges, scores=True)
    return _from_quantiles(finite_array(data.quantiles))


def _from_quantiles(quantiles: Floats) -> _Histogram | None:
    """Between two quantiles lies a known share; equal ones are one edge."""
    if quantiles.shape != _LEVELS.shape or not np.isfinite(quantiles).all():
        return None
    edges, last = np.unique(quantiles[::-1], return_index=True)
    if edges.size < 2:
        return None
    levels = _LEVELS[::-1][last]
    levels[0] = 0  # whatever lies at the lowest edge belongs to the first bar
    shares = np.diff(levels)
    return _Histogram(density=shares / np.diff(edges), edges=edges, scores=False)


def _rows(canaries: Sequence[CanaryRow]) -> list[tuple[str, int, Floats]]:
    """Role, repetitions and ascending log-perplexities, one entry a class."""
    groups: dict[tuple[int, int], list[float]] = {}
    for one in canaries:
        bits = finite(one.log_perplexity_bits)
        if bits is not None:
            groups.setdefault((_ROLES.index(one.role), one.repetitions), []).append(bits)
    return [(_ROLES[role], n, np.sort(bits)) for (role, n), bits in sorted(groups.items())]


def _draw(
    figure: FigureBase,
    data: FormatData,
    histogram: _Histogram,
    rows: Sequence[tuple[str, int, Floats]],
) -> None:
    if rows:
        ratios = [2.4, 0.26 * len(rows) + 0.1]
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
        _rug(below, rows)
        axes.tick_params(axis="x", length=0, labelbottom=False)
    else:
        axes = below = figure.subplots()
    quiet(axes, ticks=4)
    axes.stairs(histogram.density, histogram.edges, fill=True, color=REFERENCE, alpha=0.55)
    curve = _curve(data.fit)
    if curve is not None:
        xs = _span(histogram, rows)
        ys = curve(xs)
        seen = ys > ys.max() / 1000
        axes.plot(xs[seen], ys[seen], color=FIT)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("Density (per bit)")
    below.set_xlabel("Log-perplexity (bits), lower = more memorised")


def _rug(axes: Axes, rows: Sequence[tuple[str, int, Floats]]) -> None:
    """One line of ticks a class, most often repeated below; one path a class."""
    for at, (role, _, bits) in enumerate(rows):
        xs = np.repeat(bits, 3)
        ys = np.tile([at - 0.34, at + 0.34, np.nan], bits.size)
        axes.plot(xs, ys, color=_COLORS[role], linewidth=1.2)
    axes.set_yticks(range(len(rows)))
    axes.set_yticklabels([_row_name(role, n) for role, n, _ in rows])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.spines["left"].set_visible(False)


def _row_name(role: str, repetitions: int) -> str:
    names = {"control": "controls", "excluded": f"{repetitions:,}×, left out"}
    return names.get(role, f"{repetitions:,}×")


def _curve(fit: dict[str, Any] | None) -> Any:
    """The skew-normal density 2 phi(z) Phi(shape z) / scale; None where there is no fit."""
    values = [finite((fit or {}).get(name)) for name in ("location", "scale", "shape")]
    location, scale, shape = values
    if location is None or scale is None or shape is None or not scale > 0:
        return None

    def density(bits: Floats) -> Floats:
        z = (bits - location) / scale
        found: Floats = 2 * np.exp(-(z**2) / 2) * special.ndtr(shape * z)
        return found / (math.sqrt(2 * math.pi) * scale)

    return density


def _span(histogram: _Histogram, rows: Sequence[tuple[str, int, Floats]]) -> Floats:
    ends = [histogram.edges[0], histogram.edges[-1]]
    ends += [float(end) for *_, bits in rows for end in (bits[0], bits[-1])]
    return np.linspace(min(ends), max(ends), 241)


def _legend(data: FormatData, histogram: _Histogram) -> list[Artist]:
    of = "" if histogram.scores else ", from quantiles"
    label = f"{data.references:,} references{of}"
    found: list[Artist] = [Patch(facecolor=REFERENCE, alpha=0.55, label=label)]
    if _curve(data.fit) is not None:
        found.append(key(f"skew-normal fit{_goodness(data.fit)}", color=FIT))
    return found


def _goodness(fit: dict[str, Any] | None) -> str:
    goodness = (fit or {}).get("goodness") or {}
    distance, p_value = finite(goodness.get("ks_statistic")), finite(goodness.get("ks_p_value"))
    parts = [] if distance is None else [f"KS {number(distance)}"]
    parts += [] if p_value is None else [f"p = {number(p_value)}"]
    return f" ({', '.join(parts)})" if parts else ""


def _description(
    data: FormatData, histogram: _Histogram, rows: Sequence[tuple[str, int, Floats]]
) -> str:
    low, high = histogram.edges[0], histogram.edges[-1]
    share = "" if histogram.scores else " (drawn from nine quantiles)"
    classes = [f"{class_name(role, n)} {number(float(np.median(bits)))}" for role, n, bits in rows]
    medians = f" Median of each class, in bits: {listed(classes)}." if classes else ""
    fit = f" A skew-normal curve is fitted{_goodness(data.fit)}." if _curve(data.fit) else ""
    return (
        f"{count(data.references, 'reference')} have log-perplexities from {number(low)} to "
        f"{number(high)} bits{share}, lower = more memorised.{medians}{fit}"
    )
