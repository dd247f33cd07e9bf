"""Charts of what an attacker has: bounds on epsilon, the ROC on logarithmic axes, secrets found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from lmexposure._style import (
    bound_name,
    class_name,
    count,
    found_of,
    nats,
    percent,
    probability,
    short,
    validity,
)
from lmexposure.core.charts import (
    INK,
    Ceiling,
    Chart,
    RocLine,
    Style,
    Styles,
    ceilings_chart,
    class_styles,
    clipped,
    joined,
    key,
    log_ticks,
    plain_axes,
    roc_lines_chart,
)
from lmexposure.statistics import (
    EpsilonBound,
    Privacy,
    PrivacyClass,
    ScoreClass,
    Validity,
    area_under_curve,
    concave_hull,
    roc_curve,
    score_classes,
)
from lmexposure.studies.exposure.charts_exposure import of_format
from lmexposure.studies.exposure.rows import ClassRow, Floats, FormatData, Found
from lmexposure.studies.exposure.scores import Scores

_SHAPES: dict[Validity, str] = {
    "any-dp": "o",
    "iid-scores": "s",
    "gaussian": "^",
    "bayesian": "D",
    "asymptotic": "v",
}


def epsilon_chart(privacy: Privacy | None, styles: Styles | None = None) -> Chart | None:
    """Each bound of the class of canaries whose bound is quoted."""
    shown = None if privacy is None else _chosen(privacy)
    if privacy is None or shown is None or shown.bounds is None:
        return None
    bounds = [shown.bounds.primary, *shown.bounds.others]
    by_class = styles or class_styles([shown.repetitions])
    common = _common_delta(bounds)
    kinds = {bound.validity for bound in bounds}
    claimed = None if privacy.claim is None else privacy.claim.claimed_epsilon
    return ceilings_chart(
        name="epsilon",
        kind="epsilon",
        title=f"Lower bounds on epsilon, {_class(shown)}",
        caption=(
            "The longer a thick bar, the less private the training was; its thin line ends where a "
            "perfect attack on these canaries would have."
        ),
        description=_description(claimed, shown, bounds),
        rows=[
            Ceiling(
                name=_name(bound, place == 0, common),
                value=bound.value,
                most=bound.max_attainable,
                marker=_SHAPES[bound.validity],
            )
            for place, bound in enumerate(bounds)
        ],
        axis=f"Epsilon (nats){common}, higher = less private",
        color=by_class[shown.repetitions]["color"],
        markers=[(f"{kind}: {validity(kind)}", m) for kind, m in _SHAPES.items() if kind in kinds],
        claimed=claimed,
    )


def _chosen(privacy: Privacy) -> PrivacyClass | None:
    """All bounds are of the class that the quoted one is of, so that they can be compared."""
    quoted = privacy.primary
    if quoted is None:
        return None
    key_of = tuple(quoted.formats), quoted.repetitions
    return next(part for part in privacy.classes if part.bounds is not None and part.key == key_of)


def _class(part: PrivacyClass) -> str:
    formats = ", ".join(clipped(name, 24) for name in part.formats if name)
    return f"{formats + ', ' if formats else ''}{count(part.repetitions, 'repetition')}"


def _name(bound: EpsilonBound, primary: bool, common_delta: str) -> str:
    """What the bound is and says; its delta where not all of them have the same."""
    delta = "" if common_delta else f" at delta {short(bound.delta)}"
    first = "primary: " if primary else ""
    return f"{first}{clipped(bound_name(bound.name))} ≥ {nats(bound.value)}{delta}"


def _common_delta(bounds: Sequence[EpsilonBound]) -> str:
    """The delta of all bounds; "" where they differ."""
    deltas = {bound.delta for bound in bounds}
    return f" at delta {short(deltas.pop())}" if len(deltas) == 1 else ""


def _description(claimed: float | None, part: PrivacyClass, bounds: Sequence[EpsilonBound]) -> str:
    parts = []
    for bound in bounds:
        most = bound.max_attainable
        end = "" if most is None else f" (max attainable {nats(most)})"
        parts.append(_name(bound, False, _common_delta(bounds)) + end)
    claim = "" if claimed is None else f" Claimed is {short(claimed)}."
    return (
        f"Lower bounds on epsilon in nats, higher = less private, from {_class(part)}, the primary "
        f"one first{_common_delta(bounds)}: {joined(parts)}.{claim}"
    )


_BUCKETS = 200  # each keeps two corners


@dataclass(frozen=True, kw_only=True, eq=False)
class RocData:
    """The ROC of one class of canaries against all that was never inserted."""

    name: str  # the class, as people read it
    repetitions: int  # of the class
    # fpr, tpr: corners of the ordinary curve, ascending, shape (k,)
    fpr: Floats
    tpr: Floats
    # hull_fpr, hull_tpr: of its concave hull
    hull_fpr: Floats
    hull_tpr: Floats
    # positives, negatives: how many texts are on either side; a rate below one over `negatives` is
    # not resolvable
    positives: int
    negatives: int
    area: float  # under the ordinary curve, with `area_low` and `area_high`
    area_low: float
    area_high: float


def roc_data(scores: Scores, *, pooled: bool, level: float) -> tuple[RocData, ...]:
    """One curve a class, as the result's membership metrics see it."""
    classes = score_classes(
        -scores.log_perplexity_bits, scores.roles, scores.repetitions, scores.formats, pooled=pooled
    )
    both_sides = (group for group in classes if group.included.any() and group.outside.size)
    return tuple(_curve(group, level) for group in both_sides)


def _curve(group: ScoreClass, level: float) -> RocData:
    inside, outside = group.scores[group.included], group.outside
    curve = roc_curve(inside, outside)
    hull = concave_hull(curve)
    area = area_under_curve(inside, outside, level=level)
    fpr, tpr = _thinned(curve.fpr[::-1], curve.tpr[::-1], curve.negatives)
    return RocData(
        name=_class_title(group),
        repetitions=group.repetitions,
        fpr=fpr,
        tpr=tpr,
        hull_fpr=hull.false_positives / hull.negatives,
        hull_tpr=hull.true_positives / hull.positives,
        positives=curve.positives,
        negatives=curve.negatives,
        area=area.value,
        area_low=area.low,
        area_high=area.high,
    )


def _class_title(group: ScoreClass) -> str:
    few = len(group.formats) <= 2
    formats = ", ".join(group.formats) if few else f"{len(group.formats)} formats"
    return f"{formats}, repetitions {group.repetitions}"


def _thinned(fpr: Floats, tpr: Floats, negatives: int) -> tuple[Floats, Floats]:
    """The first and last corner of each narrow strip, narrow on linear and on logarithmic axes."""
    keep = _corners(fpr, tpr)
    fpr, tpr = fpr[keep], tpr[keep]
    floor = 0.5 / negatives
    decades = np.log(np.maximum(fpr, floor) / floor) / np.log(1 / floor)
    strip = np.floor((fpr + decades) / 2 * _BUCKETS)
    first = np.concatenate([[True], strip[1:] != strip[:-1]])
    last = np.concatenate([first[1:], [True]])
    return fpr[first | last], tpr[first | last]


def _corners(fpr: Floats, tpr: Floats) -> NDArray[np.bool_]:
    """Where the staircase turns."""
    flat, steep = np.diff(tpr) == 0, np.diff(fpr) == 0
    straight = (flat[1:] & flat[:-1]) | (steep[1:] & steep[:-1])
    return np.concatenate([[True], ~straight, [True]])


def roc_chart(
    curves: Sequence[RocData], *, number_of: int = 1, styles: Styles | None = None
) -> Chart | None:
    """An ordinary curve and its hull a class."""
    drawn = [
        curve for curve in curves if curve.positives > 0 and curve.negatives > 0 and curve.fpr.size
    ]
    if not drawn:
        return None
    classes = styles or class_styles(curve.repetitions for curve in drawn)
    lines = [
        RocLine(
            name=curve.name,
            fpr=curve.fpr,
            tpr=curve.tpr,
            edge=1 / curve.negatives,
            positives=curve.positives,
            area=(curve.area, curve.area_low, curve.area_high),
            color=classes[curve.repetitions]["color"],
            hull=(curve.hull_fpr, curve.hull_tpr),
        )
        for curve in drawn
    ]
    edge = short(min(line.edge for line in lines))
    return roc_lines_chart(
        lines,
        name="roc" if number_of == 1 else f"roc-{number_of}",
        kind="roc",
        title="Canaries distinguished from texts never inserted (ROC)",
        caption=(
            "The higher a curve at the left end, the more canaries are recognised while few other "
            "texts are taken for canaries; the dotted line is guessing."
        ),
        description=(
            "True-positive against false-positive rate on logarithmic axes, the ordinary curve and "
            "its concave hull. Area under the curve, 0.5 = guessing: {}. False-positive rates "
            f"below {edge} cannot be resolved."
        ),
    )


_FoundOf = Callable[[ClassRow], Sequence[Found]]
_FoundPanel = tuple[_FoundOf, str]

_CHANCE: Style = {"color": INK, "linestyle": (0, (2, 2)), "linewidth": 1.2}


def extraction_chart(data: FormatData, styles: Styles | None = None) -> Chart | None:
    """The share of a class's secrets that was found, against guesses tried and characters known.

    Source: section 7 of Carlini et al. 2019, The Secret Sharer.
    """
    panels = _panels(data.classes)
    if not panels:
        return None
    by_class = styles or class_styles(row.repetitions for row in data.classes)
    tried = [row for row in data.classes if row.guesses or row.revealed]
    return of_format(
        "extraction",
        data.form.name,
        "Secrets found by an attacker",
        caption="Lines that rise from the dotted one are secrets that the model gives away: the "
        "sooner, the cheaper for an attacker.",
        description=_extraction_description(data),
        draw=lambda figure: _draw_extraction(figure, data.classes, panels, by_class),
        legend=lambda: [
            *(key(class_name(r.role, r.repetitions), **by_class[r.repetitions]) for r in tried),
            key("by chance", **_CHANCE),
        ],
        height=3.1,
    )


def _panels(classes: Sequence[ClassRow]) -> list[_FoundPanel]:
    choices: tuple[_FoundPanel, ...] = (
        (lambda row: _tried(row.tries), "Guesses tried"),
        (lambda row: _tried(row.revealed), "Characters known"),
    )
    return [panel for panel in choices if any(panel[0](row) for row in classes)]


def _tried(rows: Sequence[Found]) -> Sequence[Found]:
    return sorted((row for row in rows if row.of > 0), key=attrgetter("given"))


def _draw_extraction(
    figure: FigureBase, classes: Sequence[ClassRow], panels: Sequence[_FoundPanel], styles: Styles
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
        _draw_found(axes, classes, rows, styles)
        axes.set_xlabel(label)
        axes.set_ylim(-0.04, 1.04)
    every[0].set_ylabel("Secrets found")
    every[0].yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    every[0].yaxis.set_major_formatter(FuncFormatter(lambda share, _: percent(share)))


def _draw_found(axes: Axes, classes: Sequence[ClassRow], rows: _FoundOf, styles: Styles) -> None:
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


def _extraction_description(data: FormatData) -> str:
    by_guessing = [(row, _tried(row.tries)) for row in data.classes]
    by_revealing = [(row, _tried(row.revealed)) for row in data.classes]
    parts = [
        _most(by_guessing, "guess", "guesses"),
        _most(by_revealing, "character known", "characters known"),
    ]
    return f"Secrets found by search. {' '.join(filter(None, parts))}"


def _most(found: Sequence[tuple[ClassRow, Sequence[Found]]], singular: str, plural: str) -> str:
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
