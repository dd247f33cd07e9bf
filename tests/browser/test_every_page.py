"""The page of each kind of study: its first screen answers, and nothing is beyond an edge."""

import pytest
from browser.checks import CHARTS, CUT, OPEN_ALL, OUTSIDE, SCROLLING
from browser.conftest import Open
from made_studies import MADE
from playwright.sync_api import Page

from lmexposure._style import outcome_word
from lmexposure.core.render import as_page
from lmexposure.doors import compared

WIDTHS = (1280, 768, 390)
PAPER = 700  # an A4 page within its margins
QUESTIONS = ["What was tested?", "What was not tested?"]
MEANING = "What do the numbers mean?"  # where a document says it
# What decides in a table is in sight, whatever comes behind it.
UNSEEN = """() => [...document.querySelectorAll('tbody th, tbody td')].filter(cell => {
  const box = cell.getBoundingClientRect();
  return box.width && (box.left < -0.5 || box.right > innerWidth + 0.5);
}).map(cell => cell.textContent)"""
FIGURES = """() => [...document.querySelectorAll('main > section')]
  .map(section => section.querySelectorAll('figure').length)"""
# An outside kind has a chart where it brings one.
NO_CHART = {"loss_gap"}


@pytest.fixture(scope="module", params=[*sorted(MADE), "compare"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def html(kind: str) -> str:
    if kind == "compare":
        return as_page(compared([MADE["result"](3), MADE["result"](5)]))
    return as_page(MADE[kind](3).told())


@pytest.fixture
def page(html: str, open_page: Open) -> Page:
    return open_page(html).page


def test_the_first_screen_answers_the_same_questions_in_every_kind(kind: str, page: Page) -> None:
    box = page.locator("main > section").first
    assert box.get_attribute("id") == "verdict"
    asked = box.locator("h3.ask").all_inner_texts()
    meaning = [] if kind in ("compare", "loss_gap") else [MEANING]
    rest = ["How sure?", "What now?", "What was measured?"]
    assert asked[1:] == [*QUESTIONS, *meaning, *rest]
    assert box.locator(".sentence").inner_text()
    assert box.locator(".marks").count() == 2
    assert box.locator("h3:text('How sure?') + p.note").inner_text()
    assert box.locator(".steps li").count() >= 1
    facts = box.locator(".since dt").all_inner_texts()
    if kind == "compare":
        assert facts == ["study 1", "study 2"]
        return
    assert {"measured", "lmexposure"} <= set(facts)
    verdict = MADE[kind](3).told().verdict
    assert verdict is not None
    assert outcome_word(verdict.outcome).upper() in box.locator("h2").inner_text()
    assert box.get_attribute("class") == f"verdict {verdict.outcome}"
    made = [check for check in verdict.checks if not verdict.kinds[check.key].precondition]
    assert verdict.outcome != "pass" or any(check.outcome != "not tested" for check in made)


def test_one_chart_comes_before_the_first_section(kind: str, page: Page) -> None:
    assert page.evaluate(FIGURES)[0] == (kind not in NO_CHART)


def test_a_model_is_told_by_more_than_the_directory_that_all_models_have(
    kind: str, page: Page
) -> None:
    for fact in page.locator(".since dd").all_inner_texts():
        assert fact != "model"


def test_nothing_is_beyond_an_edge_at_any_width(page: Page) -> None:
    page.evaluate(OPEN_ALL)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        found = {what: page.evaluate(what) for what in (OUTSIDE, CUT, CHARTS)}
        assert not any(found.values()), (width, found)
        # At a desk an expert's table of many columns may scroll within its place.
        beyond = [] if width == 1280 else [*page.evaluate(SCROLLING), *page.evaluate(UNSEEN)]
        assert beyond == [], width


def test_on_paper_all_parts_are_open_and_none_is_beyond_the_edge(page: Page) -> None:
    page.emulate_media(media="print")
    page.set_viewport_size({"width": PAPER, "height": 900})
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert page.evaluate(OUTSIDE) == []
    hidden = "all => all.filter(e => !e.checkVisibility() || !e.offsetHeight).map(e => e.id)"
    assert page.locator("details :is(table, figure, p, h3)").evaluate_all(hidden) == []
