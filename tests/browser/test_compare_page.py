from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.checks import AXE, CHARTS, CUT, EVERYWHERE, OPEN_ALL, OUTSIDE, SCROLLING, WIDTHS
from browser.conftest import Open
from made_results import HOSTILE, hostile_run, small_run

from lmexposure.records import open_run
from lmexposure.reporting import compare_data, render_compare


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Undefended against defended, with a claim."""
    path = tmp_path_factory.mktemp("runs")
    one = small_run(path / "undefended")
    other = small_run(path / "defended", memorised=((4, 5.0),))
    return render_compare(compare_data([open_run(one), open_run(other)]))


@pytest.mark.parametrize(("size", "scheme"), EVERYWHERE)
def test_it_is_quiet_cuts_nothing_and_puts_no_obstacle_in_the_way(
    comparison: str, open_page: Open, size: str, scheme: str
) -> None:
    seen = open_page(comparison, size, scheme)
    page = seen.page
    page.evaluate(OPEN_ALL)
    for width in (page.evaluate("innerWidth"), *WIDTHS):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        assert page.evaluate(OUTSIDE) == []
        assert page.evaluate(CUT) == []
        assert page.evaluate(CHARTS) == []
        assert width < 700 or page.evaluate(SCROLLING) == []
    assert seen.messages == []
    assert seen.requests == [page.url]
    found = Axe().run(page, options=AXE)
    assert found.violations_count == 0, found.generate_report()


def test_each_run_has_its_verdict_and_each_class_its_row(comparison: str, open_page: Open) -> None:
    page = open_page(comparison).page
    assert (
        page.locator("#finding .sentence")
        .inner_text()
        .startswith("undefended leaks more than defended: secrets inserted 4 times are ")
    )
    words = [one.strip() for one in page.locator(".runs .word").all_text_contents()]
    assert words == ["leaks", "no leak found"]
    assert page.locator("#classes-1 tbody tr").count() == 2 * 3  # two runs, controls and 1, 4
    assert page.locator("#differences-table tbody tr").count() == 3


def test_hostile_names_are_text(open_page: Open, tmp_path: Path) -> None:
    runs = [hostile_run(tmp_path / f"{n}<script>window.ran=1<script>") for n in range(2)]
    seen = open_page(render_compare(compare_data([open_run(one) for one in runs])))
    assert seen.page.evaluate("window.ran") is None
    assert seen.messages == []
    assert seen.page.locator("script").count() == 1
    assert "<script>" in seen.page.locator("h1").inner_text()
    assert HOSTILE.split("\n")[0] in seen.page.locator("#exposure").inner_text()
