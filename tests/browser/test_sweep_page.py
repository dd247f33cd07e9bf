from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.checks import AXE, CHARTS, CUT, FEW_ROWS, OPEN_ALL, OUTSIDE, WIDTHS
from browser.conftest import Open
from made_sweeps import made_sweep

from lmexposure.reporting import render_sweep, sweep_report_data


@pytest.fixture(scope="module")
def page() -> str:
    """A worst canary that the average hides, and what single texts change."""
    parts = {"leaking": 1, "canaries": 60, "population": 100, "formats": ("pin", "api_key")}
    return render_sweep(sweep_report_data(made_sweep(**parts, changes=True)))


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_it_is_quiet_cuts_nothing_and_puts_no_obstacle_in_the_way(
    page: str, open_page: Open, size: str, scheme: str
) -> None:
    seen = open_page(page, size, scheme)
    shown = seen.page
    shown.evaluate(OPEN_ALL)
    shown.evaluate(FEW_ROWS)
    for width in (shown.evaluate("innerWidth"), *WIDTHS):
        shown.set_viewport_size({"width": width, "height": 800})
        assert shown.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        assert shown.evaluate(OUTSIDE) == []
        assert shown.evaluate(CUT) == []
        assert shown.evaluate(CHARTS) == []
    assert seen.messages == []
    assert seen.requests == [shown.url]
    found = Axe().run(shown, options=AXE)
    assert found.violations_count == 0, found.generate_report()


def test_links_lead_somewhere(page: str, open_page: Open) -> None:
    shown = open_page(page).page
    missing = shown.evaluate(
        "() => [...document.querySelectorAll('a[href^=\"#\"]')]"
        ".map(a => a.getAttribute('href')).filter(h => !document.querySelector(h))"
    )
    assert missing == []


def test_canaries_are_sorted_by_a_click(page: str, open_page: Open, tmp_path: Path) -> None:
    shown = open_page(page).page
    shown.evaluate(OPEN_ALL)
    first = "#texts-table tbody tr:first-child th"
    assert shown.locator(first).inner_text() == "pin/x1/0000"
    shown.locator("#texts-table thead th", has_text="canary").locator("button").click()
    assert shown.locator(first).inner_text() == "api_key/x1/0001"
