from pathlib import Path

import pytest
from browser.checks import EVERYWHERE, assert_fit
from browser.conftest import Open
from made_results import HOSTILE, hostile_run, small_run

from lmexposure.core.render import as_page
from lmexposure.doors import compared


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Undefended against defended, with a claim."""
    path = tmp_path_factory.mktemp("runs")
    one = small_run(path / "undefended")
    other = small_run(path / "defended", memorised=((4, 5.0),))
    return as_page(compared([one, other]))


@pytest.mark.parametrize(("size", "scheme"), EVERYWHERE)
def test_it_is_fit_to_read(comparison: str, open_page: Open, size: str, scheme: str) -> None:
    assert_fit(open_page(comparison, size, scheme))


def test_hostile_names_are_text(open_page: Open, tmp_path: Path) -> None:
    runs = [hostile_run(tmp_path / f"{n}<script>window.ran=1<script>") for n in range(2)]
    seen = open_page(as_page(compared(runs)))
    assert seen.page.evaluate("window.ran") is None
    assert seen.messages == []
    assert seen.page.locator("script").count() == 1
    assert "<script>" in seen.page.locator("#verdict").inner_text()
    assert HOSTILE.split("\n")[0] in seen.page.locator("#exposure").inner_text()
