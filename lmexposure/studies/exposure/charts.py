"""The charts of a run, which share the colours of its classes; here those of no single format.

Nothing of matplotlib is imported before core.charts, which quiets it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from lmexposure._style import (
    at_least,
    bound_name,
    class_name,
    count,
    nats,
    number,
    short,
    slug,
    times,
    validity,
)
from lmexposure.core.charts import (
    FIT,
    REFERENCE,
    Ceiling,
    Chart,
    Line,
    Mark,
    Panel,
    Points,
    RocLine,
    Style,
    Styles,
    ceilings_chart,
    class_styles,
    clipped,
    dots_chart,
    joined,
    panels_chart,
    roc_lines_chart,
    series_style,
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
from lmexposure.studies.exposure.charts_exposure import (
    calibrated_chart,
    controls_chart,
    exposure_chart,
    extraction_chart,
    reference_chart,
)
from lmexposure.studies.exposure.files import Evaluation, RunFiles
from lmexposure.studies.exposure.record import CheckpointClass
from lmexposure.studies.exposure.rows import CURVES, ClassRow, Floats, FormatData, reference_bits
from lmexposure.studies.exposure.scores import Scores


class RunCharts:
    """Each by its name; None where there is nothing to show."""

    def __init__(self, run: RunFiles, formats: Sequence[FormatData]) -> None:
        self._run, self._formats = run, formats
        self._styles: Styles = class_styles(self._repetitions())

    def _repetitions(self) -> Iterator[int]:
        """Of every class that a chart may show."""
        for form in self._formats:
            yield from (row.repetitions for row in form.classes)
            yield from (canary.repetitions for canary in form.canaries)
        privacy = self._run.result.privacy
        if privacy is not None:
            yield from (part.repetitions for part in privacy.classes)
        yield from (row.repetitions for row in self._run.result.trajectory)

    def exposure(self, form: FormatData) -> Chart | None:
        """Every canary, class by class."""
        return self._apart(exposure_chart(form, self._styles))

    def classes(self) -> Chart | None:
        """The medians of all classes, the most exposed first."""
        return classes_chart([row for form in self._formats for row in form.classes])

    def calibrated(self, form: FormatData) -> Chart | None:
        """The same beside the base."""
        return self._apart(calibrated_chart(form, self._styles))

    def references(self, form: FormatData) -> Chart | None:
        """What canaries were compared with."""
        bits = reference_bits(self._run.result, form.form.name)
        return self._apart(reference_chart(form, bits, self._styles))

    def extraction(self, form: FormatData) -> Chart | None:
        """What an attacker finds."""
        return self._apart(extraction_chart(form, self._styles))

    def controls(self, form: FormatData) -> Chart | None:
        """What was never inserted, against chance."""
        return self._apart(controls_chart(form))

    def epsilon(self) -> Chart | None:
        """Bounds on epsilon."""
        return epsilon_chart(self._run.result.privacy, self._styles)

    def inside(self) -> Chart | None:
        """Scores of canaries in the gradients."""
        return None if self._run.white_box is None else self._run.white_box.chart()

    def roc(self, place: int) -> Chart | None:
        """The curves of the classes, a few in a chart."""
        curves = self._curves[place * CURVES : (place + 1) * CURVES]
        return roc_chart(curves, number_of=place + 1)

    @cached_property
    def _curves(self) -> tuple[RocLine, ...]:
        result, privacy = self._run.result, self._run.result.privacy
        if result.scores is None:
            return ()
        pooled = privacy is not None and privacy.inclusion_probability is not None
        return roc_lines(result.scores, self._styles, pooled=pooled, level=result.settings.level)

    def training(self) -> Chart | None:
        """How the model learned."""
        return training_chart(self._run.curve, self._styles)

    def trajectory(self) -> Chart | None:
        """How exposure grew from checkpoint to checkpoint."""
        return trajectory_chart(self._run.result.trajectory, self._styles)

    def _apart(self, chart: Chart | None) -> Chart | None:
        """Two names of formats may differ in signs only, which no file name keeps."""
        if chart is None:
            return None
        names = [form.form.name for form in self._formats]
        before = Counter(map(slug, names[: names.index(chart.subject)]))[slug(chart.subject)]
        return replace(chart, name=f"{chart.name}-{before + 1}") if before else chart


_MOST_CLASSES = 8


def classes_chart(rows: Sequence[ClassRow]) -> Chart | None:
    """A row for each of the most exposed classes, on one axis of bits; None without canaries."""
    inserted = [row for row in rows if row.role == "canary"]
    shown = sorted(inserted, key=lambda row: -row.median.value)[:_MOST_CLASSES]
    if not shown:
        return None
    ends = [value for row in shown for value in (row.median.value, row.median.high or 0.0)]
    named = [
        f"{clipped(row.format, 16)}, inserted {times(row.repetitions)}: "
        f"{at_least(row.median.value, row.median_capped, 1)} of {number(row.form.bits, 1)} bits"
        for row in shown
    ]
    medians = (row.median for row in shown)
    marks = ([Mark(value=found.value, low=found.low, high=found.high)] for found in medians)
    left = len(inserted) - len(shown)
    return dots_chart(
        name="classes",
        title="How much of each kind of secret the model knows",
        caption="The farther right of the line, the better the model knows secrets of this kind; "
        "at all of their bits an attacker finds one at the first guess."
        f"{f' {left:,} less exposed classes are in the tables.' if left else ''}",
        description=f"Median exposure of classes, in bits: {joined(named)}.",
        rows=list(zip(named, marks, strict=True)),
        series=("median of a class",),
        axis="Exposure (bits), higher = more memorised",
        chance=1.0,
        most=max(ends),
    )


_Evaluations = Sequence[Evaluation]

_MOST_SERIES = 6
_TRAINING: Style = {"color": REFERENCE, "marker": "s", "linestyle": "--", "markersize": 4}
_VALIDATION: Style = {"color": FIT, "marker": "o", "linestyle": "-", "markersize": 4}


def training_chart(rows: _Evaluations, styles: Styles | None = None) -> Chart | None:
    """Training and validation loss, the best checkpoint, and median exposures, if any."""
    where, across = _where(rows)
    train = _known(where, [row.train_bits for row in rows])
    validation = _known(where, [row.validation_bits for row in rows])
    if not train and not validation:
        return None
    losses = [
        Line(name=name, points=points, style=style)
        for name, points, style in (
            ("training", train, _TRAINING),
            ("validation", validation, _VALIDATION),
        )
        if points
    ]
    best = min(validation, key=lambda point: point[1], default=None)
    star = None if best is None else ("lowest validation loss", *best)
    followed = _followed(rows, where, styles or {})
    panels = [Panel(lines=losses, up="Bits per token", best=star)]
    if followed:
        panels.append(Panel(lines=followed, up="Median exposure\n(bits)", chance=1.0))
    return panels_chart(
        name="training",
        kind="training",
        title="Loss while training" + (", and exposure" if followed else ""),
        caption=(
            "Falling curves are a model that learns; the star is the checkpoint that predicts held "
            "out text best."
        ),
        description=_training_description(rows, train, validation, followed, across=across.lower()),
        panels=panels,
        across=across,
    )


def _where(rows: _Evaluations) -> tuple[list[float], str]:
    """Epochs where every row has one and they move, else steps, else the row's number."""
    for name, values in (
        ("Epoch", [row.epoch for row in rows]),
        ("Step", [row.step for row in rows]),
    ):
        known = [float(value) for value in values if value is not None and math.isfinite(value)]
        if len(known) == len(rows) and len(set(known)) > 1:
            return known, name
    return [float(number) for number in range(len(rows))], "Evaluation"


def _known(where: Sequence[float], values: Sequence[float | None]) -> Points:
    """Those that there are, at their places."""
    return [
        (at, value)
        for at, value in zip(where, values, strict=True)
        if value is not None and math.isfinite(value)
    ]


def _followed(rows: _Evaluations, where: Sequence[float], styles: Styles) -> list[Line]:
    """Medians in bits by class; where classes are many, the highest at the end."""
    maps = [dict(row.exposures) for row in rows]
    names = dict.fromkeys(name for medians in maps for name in medians)
    series = {name: _known(where, [medians.get(name) for medians in maps]) for name in names}
    known = {name: points for name, points in series.items() if points}
    chosen = sorted(known, key=lambda name: -known[name][-1][1])[:_MOST_SERIES]
    return [
        Line(name=name, points=known[name], style=_style(name, place, styles))
        for place, name in enumerate(name for name in known if name in chosen)
    ]


def _style(name: str, place: int, styles: Styles) -> Style:
    """In the colour of its class, where the name is as "pin, 16 repetitions" or "pin, controls"."""
    number = name.rpartition(", ")[2].partition(" ")[0].replace("controls", "0")
    known = styles.get(int(number)) if number.isdecimal() else None
    return series_style(place) | ({"color": known["color"]} if known else {})


def _training_description(
    rows: _Evaluations, train: Points, validation: Points, followed: Sequence[Line], *, across: str
) -> str:
    parts = []
    if validation:
        at, lowest = min(validation, key=lambda point: point[1])
        parts.append(
            f"Validation loss goes from {number(validation[0][1], 3)} to its lowest, "
            f"{number(lowest, 3)} bits per token, at {across} {short(at)}"
        )
    if train:
        parts.append(f"training loss ends at {number(train[-1][1], 3)}")
    text = "; ".join(parts) + "."
    text = text[0].upper() + text[1:]
    ends = [f"{clipped(line.name)} {number(line.points[-1][1])}" for line in followed]
    names = {name for row in rows for name, bits in row.exposures if bits is not None}
    more = len(names) - len(followed)
    rest = f" (the highest; {more} more are not drawn)" if more > 0 else ""
    return text + (f" Median exposure at the end, in bits{rest}: {joined(ends)}." if ends else "")


def trajectory_chart(rows: Sequence[CheckpointClass], styles: Styles | None = None) -> Chart | None:
    """Median exposure of each class, with its interval, at each checkpoint."""
    if not rows:
        return None
    names = list(dict.fromkeys(row.checkpoint for row in rows))
    steps = _steps(rows, names)
    lines = _trajectory_lines(rows, names, steps or range(len(names)), styles or {})
    return panels_chart(
        name="trajectory",
        kind="trajectory",
        title="Exposure from checkpoint to checkpoint",
        caption=(
            "Lines that leave the dotted one are classes that the model has begun to memorise; the "
            "shade is the interval of a median."
        ),
        description=_trajectory_description(rows, names, lines),
        panels=[Panel(lines=lines, up="Median exposure\n(bits)", chance=1.0)],
        across="Step" if steps else "Checkpoint",
        names=() if steps else names,
    )


def _steps(rows: Sequence[CheckpointClass], names: Sequence[str]) -> list[int]:
    """Of the checkpoints, where each has one of its own; else none."""
    by_name = {row.checkpoint: row.step for row in rows}
    known = [step for name in names if (step := by_name[name]) is not None]
    return known if len(set(known)) == len(names) else []


def _trajectory_lines(
    rows: Sequence[CheckpointClass], names: Sequence[str], steps: Sequence[int], styles: Styles
) -> list[Line]:
    """The classes that are highest at the end, in the rows' order."""
    kinds = dict.fromkeys((row.format, row.repetitions) for row in rows)
    several = len({form for form, _ in kinds}) > 1
    found = []
    for place, (form, repetitions) in enumerate(kinds):
        here = {r.checkpoint: r for r in rows if (r.format, r.repetitions) == (form, repetitions)}
        known, plain = styles.get(repetitions), series_style(place)
        told_apart = plain | ({"color": known["color"]} if known else {})
        name = class_name("canary" if repetitions else "control", repetitions)
        there = [(at, here[n]) for n, at in zip(names, steps, strict=True) if n in here]
        found.append(
            Line(
                name=f"{form}, {name}" if several else name,
                style=known if known and not several else told_apart,
                points=[(at, row.median) for at, row in there],
                ends=[(_end(row.low), _end(row.high)) for _, row in there],
            )
        )
    chosen = sorted(found, key=lambda line: -line.points[-1][1])[:_MOST_SERIES]
    return [line for line in found if line in chosen]


def _end(end: float | None) -> float:
    return math.nan if end is None else end


def _trajectory_description(
    rows: Sequence[CheckpointClass], names: Sequence[str], lines: Sequence[Line]
) -> str:
    more = len({(row.format, row.repetitions) for row in rows}) - len(lines)
    rest = f" (the highest; {more} more are not drawn)" if more > 0 else ""
    ends = [
        f"{clipped(line.name)} from {number(line.points[0][1])} to {number(line.points[-1][1])}"
        for line in lines
    ]
    over = f"Median exposure over {len(names)} checkpoints, in bits{rest}: "
    return f"{over}{joined(ends)}."


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
        markers=[
            (f"holds for {validity(kind)}", m) for kind, m in _SHAPES.items() if kind in kinds
        ],
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


def roc_lines(scores: Scores, styles: Styles, *, pooled: bool, level: float) -> tuple[RocLine, ...]:
    """The ROC of each class against all that was never inserted, as the membership metrics see it.

    With its concave hull, and in the colour of the class.
    """
    classes = score_classes(
        -scores.log_perplexity_bits, scores.roles, scores.repetitions, scores.formats, pooled=pooled
    )
    both_sides = (group for group in classes if group.included.any() and group.outside.size)
    return tuple(_curve(group, styles[group.repetitions]["color"], level) for group in both_sides)


def _curve(group: ScoreClass, color: str, level: float) -> RocLine:
    inside, outside = group.scores[group.included], group.outside
    few = len(group.formats) <= 2
    formats = ", ".join(group.formats) if few else f"{len(group.formats)} formats"
    curve = roc_curve(inside, outside)
    hull = concave_hull(curve)
    area = area_under_curve(inside, outside, level=level)
    fpr, tpr = _thinned(curve.fpr[::-1], curve.tpr[::-1], curve.negatives)
    return RocLine(
        name=f"{formats}, repetitions {group.repetitions}",
        fpr=fpr,
        tpr=tpr,
        edge=1 / curve.negatives,
        positives=curve.positives,
        area=(area.value, area.low, area.high),
        color=color,
        hull=(hull.false_positives / hull.negatives, hull.true_positives / hull.positives),
    )


def _thinned(fpr: Floats, tpr: Floats, negatives: int) -> tuple[Floats, Floats]:
    """The first and last corner of each narrow strip, narrow on linear and on logarithmic axes."""
    # Where the staircase turns.
    flat, steep = np.diff(tpr) == 0, np.diff(fpr) == 0
    straight = (flat[1:] & flat[:-1]) | (steep[1:] & steep[:-1])
    keep = np.concatenate([[True], ~straight, [True]])
    fpr, tpr = fpr[keep], tpr[keep]
    floor = 0.5 / negatives
    decades = np.log(np.maximum(fpr, floor) / floor) / np.log(1 / floor)
    strip = np.floor((fpr + decades) / 2 * _BUCKETS)
    first = np.concatenate([[True], strip[1:] != strip[:-1]])
    last = np.concatenate([first[1:], [True]])
    return fpr[first | last], tpr[first | last]


def roc_chart(lines: Sequence[RocLine], *, number_of: int = 1) -> Chart | None:
    """An ordinary curve and its hull a class."""
    if not lines:
        return None
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
