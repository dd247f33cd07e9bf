from pathlib import Path

import pytest
from browser.checks import EVERYWHERE, OPEN_ALL, assert_fit
from browser.conftest import Open
from made_sweeps import made_sweep

from lmexposure.core.render import as_page


@pytest.fixture(scope="module")
def page() -> str:
    """A worst canary that the average hides, and what single texts change."""
    parts = {"leaking": 1, "canaries": 60, "population": 100, "formats": ("pin", "api_key")}
    return as_page(made_sweep(**parts, changes=True).told())


@pytest.mark.parametrize(("size", "scheme"), [EVERYWHERE[0], EVERYWHERE[-1]])
def test_it_is_fit_to_read(page: str, open_page: Open, size: str, scheme: str) -> None:
    assert_fit(open_page(page, size, scheme), tables=False)


def test_canaries_are_sorted_by_a_click(page: str, open_page: Open, tmp_path: Path) -> None:
    shown = open_page(page).page
    shown.evaluate(OPEN_ALL)
    first = "#texts-table tbody tr:first-child th"
    assert shown.locator(first).inner_text() == "pin/x1/0000"
    shown.locator("#texts-table thead th", has_text="canary").locator("button").click()
    assert shown.locator(first).inner_text() == "api_key/x1/0001"
