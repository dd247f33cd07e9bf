import re
from dataclasses import replace
from typing import Any

import pytest
from browser.checks import COUNTED, EVERYWHERE, OPEN_ALL, OUTSIDE, assert_fit, assert_links
from browser.conftest import Open
from made_results import hostile_run, small_result, small_run, with_files, with_result
from playwright.sync_api import Page, expect

from lmexposure.core.render import as_page
from lmexposure.studies import Result

HOSTILE = "<script>window.ran=1</script><img src=x onerror='window.ran=1'>\"'>{{7*7}}"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A whole run that was searched but for some of its canaries."""
    made: dict[str, Any] = {"canaries": 10, "controls": 32, "references": 1000}
    home = tmp_path_factory.mktemp("page") / "run"
    run = Result.read(
        small_run(home, **made, repetitions=(1, 4, 16), memorised=((4, 12.0), (16, 40.0)))
    )
    gone: dict[str, Any] = {**dict.fromkeys(("value", "low", "high")), "warnings": ("missing",)}
    canaries = [
        canary.model_copy(update={"exposure": replace(canary.exposure, **gone)})
        if canary.id.endswith("0009")
        else canary
        for canary in run.canaries
    ]
    return as_page(with_result(run, canaries=tuple(canaries)).told())


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = tmp_path_factory.mktemp("hostile") / "run"
    run = Result.read(hostile_run(home, HOSTILE, formats=("pin", "tiny"), canaries=3, controls=3))
    warned = with_result(run, warnings=(f"look {HOSTILE}",))
    return as_page(with_files(warned, name=HOSTILE).told())


@pytest.fixture
def page(report: str, open_page: Open) -> Page:
    """With all canaries in sight, which are folded."""
    shown = open_page(report).page
    shown.locator("#canaries > details").evaluate("e => { e.open = true }")
    return shown


def column(page: Page, number: int) -> list[str]:
    """The shown cells of one column of the canaries' table."""
    rows = page.locator(f"#canaries-table tbody tr:visible > :nth-child({number})")
    return [text.strip() for text in rows.all_text_contents()]


@pytest.mark.parametrize(("size", "scheme"), EVERYWHERE)
def test_it_is_fit_to_read(report: str, open_page: Open, size: str, scheme: str) -> None:
    assert_fit(open_page(report, size, scheme))


def test_sorting_by_mouse_takes_numbers_as_numbers_and_puts_missing_ones_last(page: Page) -> None:
    head = page.locator("#canaries-table thead th").nth(4)
    shown = column(page, 5)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    up = column(page, 5)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    down = column(page, 5)
    assert shown == down  # as the page comes
    for cells, direction in ((up, 1), (down, -1)):
        numbers = [float(one.lstrip("≥ ")) for one in cells if one != "n/a"]
        assert cells[len(numbers) :] == ["n/a"] * 4
        assert numbers == sorted(numbers, reverse=direction < 0)
    assert any(one.startswith("≥") for one in up)


def test_sorting_by_keyboard(page: Page) -> None:
    head = page.locator("#canaries-table thead th").nth(6)
    head.locator("button").focus()
    page.keyboard.press("Enter")
    places = [int(one.replace(",", "")) for one in column(page, 7) if one[0].isdecimal()]
    assert places == sorted(places)
    assert column(page, 7)[0] == f"{places[0]:,}"
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "descending"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "revealed"


def test_filtering_and_what_is_said_of_it(page: Page) -> None:
    count = page.locator("[data-count]")
    assert count.inner_text() == "62 rows"
    role, repetitions = (page.locator(f".filter [data-column='{n}']") for n in (1, 2))
    role.select_option("canary")
    assert count.inner_text() == "Showing 30 of 62 rows"
    repetitions.select_option("16")
    assert set(column(page, 3)) == {"16"}
    page.locator(".filter [name=text]").fill("/0003")
    assert count.inner_text() == "Showing 1 of 62 rows"
    page.locator(".filter [name=text]").fill("no such canary")
    assert count.inner_text() == "Showing 0 of 62 rows"
    page.get_by_role("button", name="Show all").click()
    expect(count).to_have_text("62 rows")
    assert len(column(page, 1)) == 62


def test_a_thousand_rows_are_sorted_and_filtered_by_one_look_at_each(open_page: Open) -> None:
    told = small_result(canaries=320, controls=40, references=400, repetitions=(1, 4, 16)).told()
    # Charts of so many are another test's business.
    bare = [replace(one, chart=None, parts=()) for one in told.sections]
    page = open_page(as_page(replace(told, sections=bare))).page
    page.evaluate(OPEN_ALL)
    for act in (
        "document.querySelectorAll('#canaries-table thead button')[4].click()",
        "document.querySelectorAll('#canaries-table thead button')[0].click()",
        "const t = document.querySelector('.filter [name=text]'); t.value = '0123';"
        "t.dispatchEvent(new Event('input', {bubbles: true}))",
    ):
        reads, changes = page.evaluate(COUNTED.replace("ACT", act))
        assert reads <= 1000, act
        assert changes <= 1010, act  # all rows at once or each by itself; and the head
    assert len(column(page, 1)) == 3


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_what_comes_from_outside_is_text_and_runs_nothing(
    hostile: str, open_page: Open, size: str
) -> None:
    seen = open_page(hostile, size)
    page = seen.page
    page.evaluate(OPEN_ALL)
    assert_links(page)
    assert page.evaluate("window.ran") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    assert seen.messages == []
    assert seen.requests == [page.url]
    for place in ("h1", "#canaries-table th", ".warnings li"):
        assert HOSTILE in page.locator(place).filter(has_text="window.ran").first.inner_text()
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert page.evaluate(OUTSIDE) == []


def test_it_reads_whole_without_javascript(report: str, open_page: Open) -> None:
    page = open_page(report, javascript=False).page
    assert page.locator("#canaries-table tbody tr").count() == 62
    assert page.locator("form.filter").is_hidden()
    assert page.locator("thead button").count() == 0
    assert page.get_by_role("heading", level=1).count() == 1


def test_paper_shows_everything_and_no_controls(page: Page) -> None:
    page.emulate_media(media="print")
    for hidden in (".filter", ".contents", ".copy"):
        assert page.locator(hidden).first.is_hidden()
    inside = page.locator("details table")
    assert inside.count() > 3
    for number in range(inside.count()):
        assert inside.nth(number).evaluate("e => e.checkVisibility() && e.offsetHeight > 0")
    region = page.locator(".tall")
    assert region.evaluate("e => e.scrollHeight <= e.clientHeight + 1")
    # An A4 page at its margins; what is wider is lost on paper.
    page.set_viewport_size({"width": 700, "height": 900})
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    too_wide = "all => all.filter(e => e.getBoundingClientRect().right > 700.5).map(e => e.id)"
    assert page.locator("table").evaluate_all(too_wide) == []
    assert len(re.findall(rb"/Type\s*/Page[^s]", page.pdf(format="A4"))) >= 4


def test_a_link_into_a_closed_part_opens_it_and_the_command_is_copied(page: Page) -> None:
    page.locator("#all-settings-table").evaluate("e => { location.hash = e.id }")
    expect(page.locator("#all-settings-table")).to_be_visible()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the command").click()
    page.get_by_text("copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "lmexposure run CORPUS" in copied
