"""How surprised the model is by texts it never saw, with the canaries marked below."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import FigureBase
from matplotlib.patches import Patch
from scipy import special

from lmexposure._style import class_name, count, number, probability, slug
from lmexposure.core.charts import (
    FIT,
    REFERENCE,
    Chart,
    Styles,
    class_styles,
    clipped,
    joined,
    key,
    plain_axes,
    rug,
)
from lmexposure.studies.exposure.parts import SkewNormalFit
from lmexposure.studies.exposure.rows import AnyRole, CanaryRow, Floats, FormatData

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
    rows = _rows(data.canaries)
    by_class = styles or class_styles(repetitions for _, repetitions, _ in rows)
    return Chart(
        name=f"references-{slug(data.name)}",
        kind="references",
        subject=data.name,
        title=f"Log-perplexity of references and canaries, {clipped(data.name)}",
        caption=(
            "Each tick below is a canary or control: the farther left of the references, the "
            "better the model knows it."
        ),
        description=_description(data, histogram, rows),
        draw=lambda figure: _draw(figure, data, histogram, rows, by_class),
        legend=lambda: _legend(data, histogram),
        height=3.0 + 0.26 * len(rows),
    )


def _histogram(data: FormatData, bits: Floats) -> _Histogram | None:
    scores = bits[np.isfinite(bits)]
    if scores.size:
        bins = int(np.clip(2 * scores.size ** (1 / 3), _FEWEST_BINS, _MOST_BINS))
        density, edges = np.histogram(scores, bins=bins, density=True)
        return _Histogram(density=density, edges=edges, scores=True)
    return _from_quantiles(np.array(data.quantiles, dtype=np.float64))


def _from_quantiles(quantiles: Floats) -> _Histogram | None:
    """Between two quantiles lies a known share; equal ones are one edge."""
    if not quantiles.size:
        return None
    edges, last = np.unique(quantiles[::-1], return_index=True)
    if edges.size < 2:
        return None
    levels = _LEVELS[::-1][last]
    levels[0] = 0  # whatever lies at the lowest edge belongs to the first bar
    shares = np.diff(levels)
    return _Histogram(density=shares / np.diff(edges), edges=edges, scores=False)


def _rows(canaries: Sequence[CanaryRow]) -> list[_Class]:
    """The classes, controls first: they have repetitions 0."""
    groups: dict[tuple[int, AnyRole], list[float]] = {}
    for canary in canaries:
        if canary.log_perplexity_bits is not None:
            key_of = canary.repetitions, canary.role
            groups.setdefault(key_of, []).append(canary.log_perplexity_bits)
    return [(role, n, np.sort(bits)) for (n, role), bits in sorted(groups.items())]


def _draw(
    figure: FigureBase,
    data: FormatData,
    histogram: _Histogram,
    rows: Sequence[_Class],
    styles: Styles,
) -> None:
    if rows:
        ratios = [2.4, 0.26 * len(rows) + 0.1]
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
        rug(
            below,
            [(class_name(role, n), bits, str(styles[n]["color"])) for role, n, bits in rows],
        )
        axes.tick_params(axis="x", length=0, labelbottom=False)
    else:
        axes = below = figure.subplots()
    plain_axes(axes, ticks=4)
    axes.stairs(histogram.density, histogram.edges, fill=True, color=REFERENCE, alpha=0.55)
    if data.fit is not None:
        xs = _span(histogram, rows)
        ys = _density(data.fit, xs)
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


def _span(histogram: _Histogram, rows: Sequence[_Class]) -> Floats:
    ends = [histogram.edges[0], histogram.edges[-1]]
    ends += [float(end) for *_, bits in rows for end in (bits[0], bits[-1])]
    return np.linspace(min(ends), max(ends), 241)


def _legend(data: FormatData, histogram: _Histogram) -> list[Artist]:
    of = "" if histogram.scores else ", from quantiles"
    label = f"{data.references:,} references{of}"
    found: list[Artist] = [Patch(facecolor=REFERENCE, alpha=0.55, label=label)]
    if data.fit is not None:
        found.append(key(f"skew-normal fit{_goodness(data.fit)}", color=FIT))
    return found


def _goodness(fit: SkewNormalFit) -> str:
    goodness = fit.goodness
    if goodness is None:
        return " (not tested)"
    return f" (KS {number(goodness.ks_statistic, 4)}, p = {probability(goodness.ks_p_value)})"


def _description(data: FormatData, histogram: _Histogram, rows: Sequence[_Class]) -> str:
    low, high = histogram.edges[0], histogram.edges[-1]
    share = "" if histogram.scores else " (drawn from nine quantiles)"
    classes = [f"{class_name(role, n)} {number(float(np.median(bits)))}" for role, n, bits in rows]
    medians = f" Median of each class, in bits: {joined(classes)}." if classes else ""
    fit = f" A skew-normal curve is fitted{_goodness(data.fit)}." if data.fit else ""
    return (
        f"{count(data.references, 'reference')} have log-perplexities from {number(low)} to "
        f"{number(high)} bits{share}, lower = more memorised.{medians}{fit}"
    )
