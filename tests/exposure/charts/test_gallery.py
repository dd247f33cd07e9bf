"""All charts of a run: each once, by one name, in the colours of its classes."""

import html
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exposure.charts.made import canary, class_row, format_data, painted, privacy
from made_results import changed, small_result, small_run

from lmexposure.core.charts import Chart
from lmexposure.studies import Result
from lmexposure.studies.exposure.charts import RunCharts
from lmexposure.studies.exposure.rows import FormatData


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> list[Chart]:
    """Of a whole run."""
    return Result.read(small_run(tmp_path_factory.mktemp("run") / "r")).document().drawings()


def test_all_charts_in_reading_order(charts: list[Chart]) -> None:
    found = [(one.kind, one.subject, one.name) for one in charts]
    name = "random_number"
    assert found == [
        ("exposure", name, f"exposure-{name}"),
        ("references", name, f"references-{name}"),
        ("extraction", name, f"extraction-{name}"),
        ("epsilon", "", "epsilon"),
        ("roc", "", "roc"),
        ("training", "", "training"),
        ("controls", name, f"controls-{name}"),
    ]


def drawn(*formats: FormatData) -> RunCharts:
    bare = changed(small_result(), privacy=privacy())
    return RunCharts(bare.files, formats)


@pytest.mark.slow
def test_a_class_has_one_colour_in_all_charts() -> None:
    """pin has classes 1 and 8; a second format adds 4, so that no chart alone has all three."""
    pin = format_data()
    badge = format_data(
        name="badge",
        canaries=(canary(2.0, repetitions=4),),
        classes=(class_row(2.0, repetitions=4),),
    )
    made = drawn(pin, badge)

    def colors(chart: Chart | None) -> set[int]:
        assert chart is not None
        return {n for n in range(1, 9) if painted(chart, f"--chart-class-{n}")}

    for draw in (made.exposure, made.extraction):
        assert colors(draw(pin)) == {3, 8}  # 1 and 8 of 1, 4, 8
    assert colors(made.exposure(badge)) == {6}
    assert colors(made.epsilon()) == {8}
    assert colors(made.controls(pin)) == set()


def test_captions_say_what_to_see_and_repeat_no_number(charts: list[Chart]) -> None:
    for chart in charts:
        assert not re.search(r"\d", chart.caption), chart.kind
        assert chart.caption not in chart.description
        assert chart.svg().count(html.escape(chart.title)) == 0  # it stands below, in words


def test_what_is_not_there_has_no_chart() -> None:
    empty: dict[str, Any] = {"canaries": (), "summary": (), "privacy": None, "formats": ()}
    assert changed(small_result(), **empty).document().drawings() == []


def test_formats_of_alike_names_stay_apart() -> None:
    made = drawn(one := format_data(name="a b"), two := format_data(name="a-b"))
    names = [chart.name for chart in (made.exposure(one), made.exposure(two)) if chart is not None]
    assert names == ["exposure-a-b", "exposure-a-b-2"]


def test_six_curves_a_chart(tmp_path: Path) -> None:
    run = Result.read(small_run(tmp_path / "r", repetitions=tuple(range(1, 9)), canaries=4))
    names = [one.name for one in run.document().drawings() if one.kind == "roc"]
    assert names == ["roc", "roc-2"]


@pytest.mark.slow
def test_a_thousand_canaries_and_many_references_are_quick_and_light() -> None:
    generator = np.random.default_rng(0)
    rows = [
        canary(float(e), role=role, repetitions=n)
        for role, n, k in (("control", 0, 200), ("canary", 1, 500), ("canary", 8, 500))
        for e in generator.exponential(2.0, k)
    ]
    big = format_data(canaries=tuple(rows), classes=(class_row(1.0, repetitions=0), class_row(1.0)))
    start, made = time.process_time(), drawn(big)
    every = (made.exposure(big), made.references(big), made.controls(big), made.extraction(big))
    sizes = {one.name: len(one.svg()) for one in every if one is not None}
    # 2.5 s on an idle core; this is a guard against a change of kind on a busy one.
    assert time.process_time() - start < 8
    assert sizes["exposure-pin"] < 150_000
    assert sum(sizes.values()) < 900_000
