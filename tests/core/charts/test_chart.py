import io
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from exposure.charts.made import (
    HOSTILE,
    assert_fit_for_a_page,
    format_data,
    privacy,
    roc_line,
    texts,
    texts_of,
    training_rows,
)
from made_results import changed, small_result, with_files
from matplotlib.image import imread

from lmexposure.core.charts import Chart
from lmexposure.errors import SettingsError
from lmexposure.studies.exposure.charts import RunCharts, roc_chart
from lmexposure.studies.exposure.charts_exposure import comparison_chart


def every(name: str = "pin") -> list[Chart]:
    """A chart of each kind; the name is wherever data has one."""
    form = format_data(name=name)
    result = changed(small_result(), privacy=privacy(name=name, method=name))
    run = with_files(result, curve=training_rows(**{name: 1.0})).files
    charts = RunCharts(run, [form])
    runs = [("base", form.classes), (name, form.classes[1:])]
    of_form = (charts.exposure, charts.references, charts.extraction, charts.controls)
    drawn = [
        *(draw(form) for draw in of_form),
        charts.epsilon(),
        roc_chart([roc_line(name=name)]),
        charts.training(),
        comparison_chart(name, form.form.bits, runs),
    ]
    assert None not in drawn
    return [chart for chart in drawn if chart is not None]


@pytest.fixture(scope="module")
def charts() -> list[Chart]:
    return every()


@pytest.fixture(scope="module")
def pages(charts: list[Chart]) -> list[str]:
    return [one.svg() for one in charts]


def test_every_chart_is_fit_for_a_page(charts: list[Chart], pages: list[str]) -> None:
    for chart, svg in zip(charts, pages, strict=True):
        assert_fit_for_a_page(chart, svg)


def test_charts_of_one_page_share_no_id(pages: list[str]) -> None:
    ids = [one for svg in pages for one in re.findall(r'\bid="([^"]+)"', svg)]
    assert len(ids) == len(set(ids)) > len(pages)


def test_the_same_data_gives_the_same_text(charts: list[Chart], pages: list[str]) -> None:
    again = every()
    assert [one.svg() for one in again] == pages
    assert again[0].svg("plain") == charts[0].svg("plain")
    assert again[0].png() == charts[0].png()


def test_names_of_data_are_text_and_nothing_else() -> None:
    written = []
    for chart in every(HOSTILE):
        page, plain = chart.svg(), chart.svg("plain")
        assert_fit_for_a_page(chart, page)
        assert "<script" not in page + plain
        assert "\x07" not in page + plain
        written += texts_of(page) + texts_of(plain)
    assert any(text.startswith("<script>alert(1)</script> &") for text in written)
    assert any("$x^2$" in text for text in written)  # as it was typed: never a formula


@pytest.mark.filterwarnings("error")
def test_letters_that_the_font_lacks_are_no_warning() -> None:
    one = format_data()
    chart = comparison_chart("鳥", one.form.bits, [("基準", one.classes)])
    assert chart is not None
    assert "基準" in texts(chart)
    assert chart.png()


def test_a_file_of_its_own_has_colours_a_title_and_a_background(charts: list[Chart]) -> None:
    for chart in charts:
        svg = chart.svg("plain")
        assert svg.startswith('<?xml version="1.0" encoding="utf-8"?>\n<svg ')
        assert "var(" not in svg
        assert "currentColor" not in svg
        assert "DOCTYPE" not in svg
        root = ET.fromstring(svg)
        assert str(root.get("width")).endswith("pt")
        assert "#ffffff" in {one.get("fill") for one in root.iter()}
        written = " ".join(str(one.text) for one in root.iter() if one.tag.endswith("}text"))
        assert chart.title[:20] in written


def test_pixels_are_twice_as_dense_as_a_screen(charts: list[Chart]) -> None:
    pixels = imread(io.BytesIO(charts[0].png()), format="png")
    assert pixels.shape[1] == int(5.8 * 192)
    assert pixels[0, 0].tolist()[:3] == [1.0, 1.0, 1.0]


def test_an_unknown_theme_is_refused(charts: list[Chart]) -> None:
    theme: Any = "dark"
    with pytest.raises(SettingsError, match="theme='dark' must be 'page' or 'plain'"):
        charts[0].svg(theme)


def test_a_users_own_settings_change_nothing(charts: list[Chart], pages: list[str]) -> None:
    with mpl.rc_context({"text.color": "red", "font.size": 40, "svg.fonttype": "path"}):
        assert charts[0].svg() == pages[0]
        assert mpl.rcParams["font.size"] == 40


def test_a_legend_of_many_lines_makes_a_chart_higher() -> None:
    one = format_data()
    few, many = (
        comparison_chart("pin", 20.0, [(f"a run of a long name {i}", one.classes)] * n)
        for i, n in enumerate((1, 9))
    )
    assert few is not None
    assert many is not None
    heights = [float(re.findall(r'viewBox="0 0 \S+ (\S+)"', c.svg())[0]) for c in (few, many)]
    assert heights[1] > heights[0] + 50


@pytest.mark.slow
def test_nothing_is_said_of_a_home_that_cannot_be_written_to(tmp_path: Path) -> None:
    none = str(tmp_path / "file" / "none")
    (tmp_path / "file").write_text("")
    homes = {"HOME": none, "XDG_CACHE_HOME": none, "XDG_CONFIG_HOME": none}
    kept = {name: value for name, value in os.environ.items() if name != "MPLCONFIGDIR"}
    done = subprocess.run(
        [sys.executable, "-c", "import lmexposure.studies.exposure.charts"],
        env=kept | homes | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"", b"")
