import html
import re
import time
from dataclasses import replace

import numpy as np
import pytest
from reporting.charts.made import canary, class_row, format_data, painted, report_data, roc_data

from lmexposure.reporting import charts_of


def test_all_charts_in_reading_order() -> None:
    found = [(one.kind, one.subject, one.name) for one in charts_of(report_data())]
    assert found == [
        ("exposure", "pin", "exposure-pin"),
        ("references", "pin", "references-pin"),
        ("extraction", "pin", "extraction-pin"),
        ("epsilon", "", "epsilon"),
        ("roc", "", "roc"),
        ("training", "", "training"),
        ("controls", "pin", "controls-pin"),
    ]


@pytest.mark.slow
def test_a_class_has_one_colour_in_all_charts() -> None:
    """pin has classes 1 and 8; a second format adds 4, so that no chart alone has all three."""
    other = format_data(
        name="badge",
        canaries=(canary(2.0, repetitions=4),),
        classes=(class_row(2.0, repetitions=4),),
    )
    charts = charts_of(report_data(formats=(format_data(), other)))
    colors = {
        (chart.kind, chart.subject): {
            n for n in range(1, 9) if painted(chart, f"--chart-class-{n}")
        }
        for chart in charts
    }
    for kind in ("exposure", "references", "extraction"):
        assert colors[kind, "pin"] == {3, 8}, kind  # 1 and 8 of 1, 4, 8
    for kind in ("exposure", "references"):
        assert colors[kind, "badge"] == {6}, kind
    assert colors["epsilon", ""] == colors["roc", ""] == {8}
    assert colors["controls", "pin"] == set()


def test_captions_say_what_to_see_and_repeat_no_number() -> None:
    for chart in charts_of(report_data()):
        assert not re.search(r"\d", chart.caption), chart.kind
        assert chart.caption not in chart.description
        assert chart.svg().count(html.escape(chart.title)) == 0  # it stands below, in words


def test_what_is_not_there_has_no_chart() -> None:
    empty = format_data(
        canaries=(), classes=(), reference_bits=np.array([]), quantiles=(), fit=None
    )
    nothing = report_data(formats=(empty,), privacy=None, roc=(), training=())
    assert charts_of(nothing) == []
    assert charts_of(replace(nothing, formats=())) == []


def test_formats_of_alike_names_stay_apart() -> None:
    formats = (format_data(name="a b"), format_data(name="a-b"))
    names = [one.name for one in charts_of(report_data(formats=formats))]
    assert len(names) == len(set(names))
    assert {"exposure-a-b", "exposure-a-b-2"} <= set(names)


def test_six_curves_a_chart() -> None:
    found = charts_of(report_data(roc=tuple(roc_data(name=str(i)) for i in range(8))))
    assert [one.name for one in found if one.kind == "roc"] == ["roc", "roc-2"]


@pytest.mark.slow
def test_a_thousand_canaries_and_many_references_are_quick_and_light() -> None:
    generator = np.random.default_rng(0)
    rows = [
        canary(float(e), role=role, repetitions=n)
        for role, n, k in (("control", 0, 200), ("canary", 1, 500), ("canary", 8, 500))
        for e in generator.exponential(2.0, k)
    ]
    big = format_data(
        canaries=tuple(rows),
        reference_bits=generator.normal(24, 3, 100_000),
        classes=(class_row(1.0, role="control", repetitions=0), class_row(1.0)),
    )
    rates = np.linspace(0, 1, 100_001)
    curve = roc_data(fpr=rates, tpr=rates, hull_fpr=rates, hull_tpr=rates, negatives=100_000)
    start = time.process_time()
    sizes = {
        one.name: len(one.svg()) for one in charts_of(report_data(formats=(big,), roc=(curve,)))
    }
    # 2.5 s on an idle core; this is a guard against a change of kind on a busy one.
    assert time.process_time() - start < 8
    assert sizes["exposure-pin"] < 150_000
    assert sum(sizes.values()) < 900_000
