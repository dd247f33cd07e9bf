"""A manager opens a report on a laptop: the questions are answered before anybody scrolls."""

from dataclasses import replace

import pytest
from browser.checks import CUT, OUTSIDE
from browser.conftest import Open
from exposure.test_answers import leaking
from made_results import changed, clean, options

from lmexposure.core import Thresholds
from lmexposure.core.render import as_page
from lmexposure.studies import Result

QUESTIONS = [
    *("What was tested?", "What was not tested?", "What do the numbers mean?"),
    *("How sure?", "What now?", "What was measured?"),
]
# Of the verdict's parts those that end below the screen; folded parts come after the answers.
BELOW = """() => [...document.querySelectorAll('#verdict :is(h2, h3, p, dl, ul, ol)')]
  .filter(e => !e.closest('details') && e.getBoundingClientRect().bottom > innerHeight)
  .map(e => e.textContent)"""
WIDE = """() => [...document.querySelectorAll('#verdict *')]
  .filter(e => !e.closest('details, .sr')
    && e.getBoundingClientRect().right > document.querySelector('main').clientWidth
      + document.querySelector('main').getBoundingClientRect().left + 1)
  .map(e => e.outerHTML)"""


# As the demo leaks: a little where inserted once, all of it where inserted 16 times.
LEAK = leaking((1, 14.0, None), (4, 21.0, 300), (16, 29.0, 1))


def page_of(result: Result) -> str:
    """A report of a quick look that was accepted, without what takes time to draw."""
    told = changed(result, settings=options(effort="quick")).told(Thresholds(accept_quick=True))
    bare = [replace(section, chart=None, parts=()) for section in told.sections]
    return as_page(replace(told, sections=bare))


@pytest.mark.parametrize(
    ("result", "word", "asked", "answer"),
    [
        (LEAK, "leaks", "How badly?", "A secret inserted 16 times is found at guess 1,"),
        (clean(), "no leak found", "What was found?", "No single secret is exposed beyond chance"),
        (clean(n=3), "inconclusive", "Why?", "3 secrets inserted once are too few: 10 are"),
    ],
    ids=["leak", "pass", "inconclusive"],
)
def test_all_questions_are_answered_without_scrolling(
    open_page: Open, result: Result, word: str, asked: str, answer: str
) -> None:
    page = open_page(page_of(result)).page
    page.set_viewport_size({"width": 1280, "height": 800})
    verdict = page.locator("#verdict")
    questions = verdict.locator("h3.ask").all_inner_texts()
    assert sorted(questions) == sorted([asked, *QUESTIONS])
    assert "Does it leak?" in verdict.locator("h2").inner_text()
    assert word in verdict.locator("h2").inner_text().lower()
    assert verdict.locator(".sentence").inner_text().startswith(answer)
    assert "no date on record" in verdict.locator(".since").inner_text()
    assert verdict.locator(".marks li").count() >= 4
    assert 2 <= verdict.locator(".steps li").count() <= 4
    assert page.evaluate(BELOW) == []
    assert page.evaluate(WIDE) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(CUT) == []
    assert verdict.locator(".sentence").bounding_box()["y"] < 844  # type: ignore[index]


def test_a_mark_is_a_shape_and_a_word(open_page: Open) -> None:
    page = open_page(page_of(LEAK)).page
    said = page.locator(".marks li").first.text_content() or ""
    assert " ".join(said.split()) == "leaks: secrets found by guessing: 2 of 3 classes leak"
    shapes = {
        page.locator(f".marks .mark.{kind} path").first.get_attribute("d")
        for kind in ("leak", "pass", "not-tested")
    }
    assert len(shapes) == 3
