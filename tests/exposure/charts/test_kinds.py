"""Each kind of chart, of little and of much data; of usual data it is in the golden run."""

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from exposure.charts.made import (
    FIT,
    REFERENCES,
    bound,
    canary,
    class_row,
    evaluation,
    format_data,
    found,
    painted,
    privacy,
    roc_line,
    texts,
    training_rows,
)
from known import known
from made_results import bounded_class
from scipy import stats

from lmexposure.core.charts import Ceiling, Chart, class_styles
from lmexposure.core.charts.drawings import farthest
from lmexposure.core.charts.roc import on_log_axes
from lmexposure.studies import CheckpointClass
from lmexposure.studies.exposure.charts import (
    epsilon_chart,
    roc_chart,
    training_chart,
    trajectory_chart,
)
from lmexposure.studies.exposure.charts_exposure import (
    GUESSING_HIGH,
    GUESSING_LOW,
    _density,
    _expected,
    _histogram,
    comparison_chart,
    controls_chart,
    exposure_chart,
    extraction_chart,
    reference_chart,
)

Make = Callable[[], Chart | None]
NO_BITS = np.array([])
NINE = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
CLASSES = (
    class_row(0.9, role="control", repetitions=0),
    class_row(2.5, low=None),
    class_row(11.0, repetitions=8, capped=True, high=None),
)
UNBOUNDED: dict[str, Any] = {
    "primary": None,
    "max_attainable": None,
    "claim": None,
    "classes": (bounded_class("pin", repetitions=8, canaries=9),),
}


def canaries_of(*exposures: float | None, **other: Any) -> Any:
    return format_data(canaries=tuple(canary(one, **other) for one in exposures))


def controls_of(*exposures: float | None) -> Any:
    return canaries_of(*exposures, role="control", repetitions=0)


def references(bits: Any = REFERENCES, **parts: Any) -> Chart | None:
    return reference_chart(format_data(**parts), bits)


def searches(**parts: Any) -> Chart | None:
    return extraction_chart(format_data(classes=(class_row(1.0, **parts),)))


def checkpoint(step: int | None, repetitions: int, median: float, **other: Any) -> CheckpointClass:
    values = {
        "checkpoint": f"checkpoint-{step}",
        "step": step,
        "format": "pin",
        "repetitions": repetitions,
        "n": 10,
        "median": median,
        "low": median - 0.5,
        "high": median + 0.5,
        "exact": 10,
        **other,
    }
    return CheckpointClass.model_validate(values)


def checkpoints() -> list[CheckpointClass]:
    medians = {0: 1.0, 1: 1.5, 16: 9.0}
    return [
        checkpoint(step, r, bits * (1 + n))
        for n, step in enumerate((10, 20))
        for r, bits in medians.items()
    ]


class Said(NamedTuple):
    """A chart, its description ("..." for what is left out), texts that are drawn, and are not."""

    make: Make
    description: str = "..."
    drawn: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


CAPPED = (canary(20.0, capped=True, high=None),) * 3
TWENTY = tuple(canary(1.0, repetitions=2**n) for n in range(20))
MANY_RUNS = [
    (f"run {i}", tuple(class_row(float(n), repetitions=2**n) for n in range(12))) for i in range(14)
]
SAID = [
    Said(
        lambda: exposure_chart(canaries_of(1.0, None, None, None)),
        "...3 without an exposure are not drawn.",
        ("n = 1",),
    ),
    Said(
        lambda: exposure_chart(format_data(canaries=CAPPED, classes=())),
        drawn=("lower bound",),
        absent=("Medians",),
    ),
    Said(
        lambda: exposure_chart(format_data(bits=2.0, canaries=(canary(1.0),))),
        "...above 2.00 bits...",
    ),
    Said(lambda: exposure_chart(format_data(canaries=TWENTY)), drawn=("8",), absent=("16",)),
    Said(
        lambda: references(NO_BITS, reference_bits_quantiles=NINE),
        "...drawn from nine quantiles...",
        ("400 references, from quantiles",),
    ),
    Said(lambda: references(skew_normal=None), absent=("skew-normal",)),
    Said(
        lambda: references(skew_normal=FIT.model_copy(update={"goodness": None})),
        "... A skew-normal curve is fitted (not tested).",
    ),
    Said(lambda: references(np.full(5, 3.0), canaries=()), absent=("Median of each class",)),
    Said(
        lambda: reference_chart(canaries_of(1.0, log_perplexity_bits=None), REFERENCES),
        absent=("1×",),
    ),
    Said(
        lambda: searches(guesses=(found(1, 0),)),
        "...With 1 guess:...",
        ("Guesses tried",),
        ("Characters known",),
    ),
    Said(
        lambda: searches(revealed=(found(0, 1), found(1, 1))),
        drawn=("Characters known",),
        absent=("Guesses tried",),
    ),
    Said(
        lambda: searches(revealed=(found(1, 4, 4, 4.0), found(100, 4, 4, 400))),
        "...with probability 1.0000.",
    ),
    Said(lambda: controls_chart(controls_of(8.0, 9.0, 10.0, 11.0)), "...0 lie in the band..."),
    Said(
        lambda: controls_chart(controls_of(*np.linspace(0, 8, 1000).tolist())),
        "...400 dots are drawn.",
    ),
    Said(
        lambda: trajectory_chart(checkpoints(), class_styles([0, 1, 16])),
        "Median exposure over 2 checkpoints, in bits: controls from 1.00 to 2.00; 1× from 1.50 to "
        "3.00; 16× from 9.00 to 18.00.",
        ("Step", "controls", "16×", "median of guessing"),
    ),
    Said(
        lambda: trajectory_chart(
            [
                checkpoint(None, 1, 1.0, checkpoint="first"),
                checkpoint(None, 1, 2.0, checkpoint="last", low=None, high=None),
            ]
        ),
        drawn=("Checkpoint", "first", "last"),
    ),
    Said(
        lambda: trajectory_chart(
            [checkpoint(s, r, float(r), format=f) for s in (1, 2) for f in "ab" for r in range(4)]
        ),
        "...in bits (the highest; 2 more are not drawn): a, 1× from 1.00...",
    ),
    Said(lambda: epsilon_chart(privacy(claimed=None)), absent=("Claimed", "claimed")),
    Said(
        lambda: epsilon_chart(privacy(bound(0.3, delta=0.0, max_attainable=None))),
        drawn=("primary: one-run audit ≥ 0.900 at delta 1e-05", "one-run audit ≥ 0.300 at delta 0"),
    ),
    Said(
        lambda: epsilon_chart(privacy(bound(1.0, max_attainable=90.0, validity="gaussian"))),
        "...(max attainable 90.000)...",
        ("holds for Gaussian noise",),
    ),
    Said(
        lambda: training_chart([replace(row, epoch=None) for row in training_rows()]),
        drawn=("Step",),
    ),
    Said(
        lambda: training_chart([replace(evaluation(0, 1.0, None), epoch=None, step=None)]),
        "Training loss ends at 1.000.",
        ("Evaluation",),
        ("validation",),
    ),
    Said(
        lambda: training_chart(training_rows(**{f"c{i}": float(i) for i in range(9)})),
        "...(the highest; 3 more are not drawn): c3 3.00; ...",
    ),
    Said(
        lambda: comparison_chart("pin", 20.0, [("base", CLASSES), ("broken", ())]),
        "...broken: no medians...",
        ("broken",),
    ),
    Said(lambda: comparison_chart("pin", 20.0, MANY_RUNS), "...and 8 more...", ("run 13",)),
]


@pytest.mark.parametrize("said", SAID)
def test_what_is_drawn_is_said_in_words(said: Said) -> None:
    chart = known(said.make())
    first, *rest = said.description.split("...")
    assert chart.description.startswith(first)
    place = 0
    for part in rest:
        place = chart.description.index(part, place)
    assert chart.description.endswith(rest[-1] if rest else first)
    drawn = texts(chart)
    assert set(said.drawn) <= set(drawn)
    assert [word for word in said.absent if word in chart.description or word in drawn] == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: exposure_chart(canaries_of(None)),
        lambda: exposure_chart(format_data(canaries=())),
        lambda: references(np.array([np.nan]), reference_bits_quantiles=()),
        lambda: references(NO_BITS, reference_bits_quantiles=(1.0,) * 9),
        searches,
        lambda: searches(guesses=(found(1, 0, 0),)),
        lambda: controls_chart(controls_of(1.0, 2.0, None)),
        lambda: trajectory_chart(()),
        lambda: epsilon_chart(None),
        lambda: epsilon_chart(replace(privacy(), **UNBOUNDED | {"classes": ()})),
        lambda: epsilon_chart(replace(privacy(), **UNBOUNDED)),
        lambda: training_chart(()),
        lambda: training_chart((evaluation(1, None, None),)),
        lambda: roc_chart([]),
        lambda: comparison_chart("pin", 20.0, []),
        lambda: comparison_chart("pin", 20.0, [("a", ()), ("b", ())]),
    ],
)
def test_nothing_to_draw_is_no_chart(make: Make) -> None:
    assert make() is None


def shapes_of(chart: Chart) -> list[list[str]]:
    """The shapes of each group of dots in the colours of classes 1 and 8."""
    return [
        [str(use.get("href")) for use in group.iter() if use.tag.endswith("}use")]
        for variable in ("--chart-class-4", "--chart-class-8")
        for group in painted(chart, variable)
    ]


def test_every_canary_is_a_dot_and_capped_ones_have_another_shape() -> None:
    chart = known(exposure_chart(format_data()))
    dots = [group for group in shapes_of(chart) if len(group) > 1]
    assert sorted(map(len, dots)) == [3, 4]  # one capped canary is alone
    drawn = {f"#{path.get('id')}": path.get("d") for path in ET.fromstring(chart.svg()).iter()}
    assert len({drawn[shape] for group in dots for shape in group}) == 1


def test_very_many_canaries_are_thinned_and_said_to_be() -> None:
    chart = known(exposure_chart(canaries_of(*np.linspace(0, 10, 5000).tolist())))
    assert 1990 < chart.svg().count("<use ") < 2030
    assert len(chart.svg()) < 150_000
    assert "Of 5,000 dots about 2,000 are drawn, evenly by rank" in chart.description
    assert "intervals of single canaries are left out" in chart.description


def test_what_guessing_gives() -> None:
    """Exposure is minus log2 of a uniform number; its order statistics are of scipy's beta."""
    assert pytest.approx(-math.log2(0.95), abs=1e-4) == GUESSING_LOW
    assert pytest.approx(-math.log2(0.05), abs=1e-4) == GUESSING_HIGH
    low, median, high = _expected(5, 40.0)
    for i in range(5):  # ascending exposure, descending uniform
        uniform = stats.beta(5 - i, i + 1)
        assert median[i] == pytest.approx(-np.log2(uniform.median()))
        assert low[i] == pytest.approx(-np.log2(uniform.ppf(0.975)))
        assert high[i] == pytest.approx(-np.log2(uniform.ppf(0.025)))
    assert _expected(1000, 3.0).max() == 3.0


def test_the_curve_is_the_skew_normal_density() -> None:
    x = np.linspace(10, 40, 50)
    expected = stats.skewnorm.pdf(x, FIT.shape, loc=FIT.location, scale=FIT.scale)
    assert _density(FIT, x) == pytest.approx(expected, rel=1e-12)
    bare = known(references(skew_normal=None))
    assert painted(bare, "--chart-fit") == []


@pytest.mark.parametrize(
    ("quantiles", "edges", "shares"),
    [
        (NINE, list(NINE), [0.01, 0.04, 0.2, 0.25, 0.25, 0.2, 0.04, 0.01]),
        ((0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0), [0, 1, 2], None),  # equal ones are one edge
    ],
)
def test_without_scores_the_quantiles_give_the_histogram(
    quantiles: tuple[float, ...], edges: list[float], shares: list[float] | None
) -> None:
    histogram = known(_histogram(format_data(reference_bits_quantiles=quantiles), NO_BITS))
    assert histogram.edges.tolist() == edges
    assert float(histogram.density @ np.diff(histogram.edges)) == pytest.approx(1)
    assert shares is None or histogram.density.tolist() == pytest.approx(shares)


def test_classes_differ_in_shape_and_a_first_look_ticks_its_only_number() -> None:
    chart = known(extraction_chart(format_data()))
    shapes = {
        str(path.get("d"))
        for variable in ("--chart-class-4", "--chart-class-8", "--chart-control")
        for path in painted(chart, variable)
        if path.get("id")
    }
    assert len(shapes) == 3
    look = known(searches(revealed=(found(0, 1),)))
    ticks = [text for text in texts(look) if text.lstrip("−").replace(".", "").isdigit()]
    assert ticks == ["0"]


def test_a_far_end_does_not_press_the_rest_together() -> None:
    near = [Ceiling(name="", value=1.0, most=most) for most in (2.0, 3.0, None)]
    assert farthest(near, None) == 3.0
    assert farthest([*near, Ceiling(name="", value=1.0, most=90.0)], None) == 6.0
    assert farthest(near, 5.0) == 5.0
    assert farthest([Ceiling(name="", value=0.0)], None) == 0.05


def test_a_curve_begins_at_what_is_resolvable_and_zero_lies_at_the_bottom() -> None:
    fpr, tpr = np.array([0.0, 0.1, 0.1, 1.0]), np.array([0.0, 0.0, 0.5, 1.0])
    x, y = on_log_axes(fpr, tpr, 0.01, 0.001)
    assert x[0] == pytest.approx(0.01)
    assert (np.diff(x) >= 0).all()
    assert (np.diff(y) >= 0).all()
    assert y[x < 0.1] == pytest.approx(0.001)
    assert y[x > 0.1].min() >= 0.5
    ends = np.array([0.0, 1.0])  # straight lines between corners are bent
    x, y = on_log_axes(ends, ends, 0.001, 1e-9)
    assert y == pytest.approx(x)
    assert x.size > 100


@pytest.mark.parametrize("negatives", [1, 10**6])
def test_few_and_many_negatives_are_drawn(negatives: int) -> None:
    chart = known(roc_chart([roc_line(edge=1 / negatives, positives=1)]))
    assert chart.svg()
