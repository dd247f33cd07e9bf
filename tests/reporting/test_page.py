import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import cli.conftest
import numpy as np
import pytest
from cli.conftest import Call
from core.charts.test_style import contrast
from known import known
from made_results import small_run
from page_data import page_data
from reporting.charts.made import VERDICT

from lmexposure.core import Outcome
from lmexposure.core import page as core_page
from lmexposure.core.charts import VARIABLES
from lmexposure.reporting import ReportData, render_report
from lmexposure.reporting import page as page_module

call = cli.conftest.call

VOID = {"meta", "link", "input", "br", "img", "hr"}


class Nesting(HTMLParser):
    """Fails where an element is closed that is not open, and keeps what loads anything."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster", "action"):
                self.loads.append(str(value))
            if name == "href" and tag != "a":
                self.loads.append(str(value))
            if name.startswith("on") or name == "style":
                self.handlers.append(name)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def undrawn(data: ReportData) -> ReportData:
    """Without what takes time to draw."""
    formats = tuple(replace(one, classes=(), reference_bits=np.empty(0)) for one in data.formats)
    return replace(data, formats=formats, privacy=None, roc=(), training=())


def text_of(html: str) -> str:
    """What a reader sees, without tags, style and script."""
    body = re.sub(r"<(style|script)>.*?</\1>", "", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


@pytest.fixture(scope="module")
def html() -> str:
    return render_report(page_data())


def test_it_is_well_formed_and_loads_nothing(html: str) -> None:
    seen = Nesting(html)
    assert seen.open == []
    assert {one for one in seen.loads if not one.startswith(("#", "data:"))} == set()
    assert seen.handlers == []
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)


def test_the_policy_names_the_style_and_the_script_and_nothing_else(html: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
    assert policy is not None
    for tag in ("style", "script"):
        inline = re.findall(rf"<{tag}>(.*?)</{tag}>", html, flags=re.DOTALL)
        assert len(inline) == 1
        digest = base64.b64encode(hashlib.sha256(inline[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none'")
    assert "unsafe" not in policy[1]


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (Outcome.LEAK, "leaks"),
        (Outcome.PASS, "no leak found"),
        (Outcome.INCONCLUSIVE, "inconclusive"),
    ],
)
def test_the_verdict_is_a_word_a_shape_and_a_sentence(outcome: Outcome, word: str) -> None:
    html = render_report(undrawn(page_data(canaries=2, controls=2, outcome=outcome)))
    assert f"Verdict: {word}" in text_of(html).replace("Verdict:  ", "Verdict: ")
    assert '<svg class="sign"' in html
    assert "inserted 16 times stand out from guessing" in html
    assert ("No leak found is no proof" in html) == (outcome is Outcome.PASS)


def test_every_number_of_a_canary_is_there(html: str) -> None:
    data = page_data()
    rows = re.findall(r"<tr><th scope=\"row\">(random_number/[^<]+)</th>(.*?)</tr>", html)
    cells = {name: re.findall(r"<td[^>]*>([^<]*)</td>", rest) for name, rest in rows}
    assert len(cells) == 62
    for one in data.formats[0].canaries:
        exposure = "n/a" if one.exposure is None else f"{one.exposure:.2f}"
        shown = cells[one.id]
        assert shown[1].removeprefix("≥ ") == exposure
        assert shown[1].startswith("≥") == (one.capped and one.exposure is not None)
        assert shown[3] == (f"{one.guesses:,}" if one.guesses else "over 1,000")
        assert shown[7:] == [one.method, one.role]


def test_the_most_exposed_canary_stands_first_and_missing_ones_last(html: str) -> None:
    body = html[html.index('<table id="canary-table"') :]
    cells = re.findall(r"</th><td>\d+</td><td>(?:≥ )?([^<]+)</td>", body)
    numbers = [float(one) for one in cells if one != "n/a"]
    assert numbers == sorted(numbers, reverse=True)
    assert cells[len(numbers) :] == ["n/a"] * 4


def test_more_canaries_than_a_page_can_hold_are_counted_and_none_without_exposure_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_module, "_MOST_ROWS", 20)
    text = text_of(render_report(undrawn(page_data())))
    assert "42 more canaries are not in this table: it holds the 20" in text
    assert text.count("/0009 ") == 4


def test_a_curve_that_was_not_tested_says_how_to_test_it() -> None:
    data = undrawn(page_data(canaries=2, controls=2))
    fits = [known(form.fit).model_copy(update={"goodness": None}) for form in data.formats]
    formats = [replace(form, fit=fit) for form, fit in zip(data.formats, fits, strict=True)]
    html = render_report(replace(data, formats=tuple(formats)))
    assert "(measure --estimate skew_normal tests it)" in html


def test_secrets_are_shown_only_where_the_data_holds_them_and_then_under_a_warning() -> None:
    html = render_report(undrawn(page_data(canaries=2, controls=2, secrets=True)))
    assert html.count("123456789") == 8
    assert "This page shows secrets" in html
    closed = render_report(undrawn(page_data(canaries=2, controls=2)))
    assert "123456789" not in closed
    assert "This page shows secrets" not in closed


def test_what_comes_from_outside_is_escaped_everywhere() -> None:
    hostile = "<script>alert(1)</script>\"'&{{7*7}}"
    html = render_report(page_data(canaries=2, controls=2, references=30, hostile=hostile))
    assert Nesting(html).open == []
    assert html.count("<script>") == 1
    assert "&lt;script&gt;alert(1)" in html
    assert "{{7*7}}" in html


def test_half_a_character_and_a_zero_byte_can_be_written() -> None:
    html = render_report(
        undrawn(page_data(canaries=2, controls=2, hostile="\ud800\x00", bounded=False))
    )
    assert r"demo\ud800\x00" in html
    assert html.encode().decode() == html


def test_what_is_not_there_is_said_and_not_drawn() -> None:
    data = undrawn(page_data(canaries=2, controls=2, references=30))
    (form,) = page_data(canaries=2, controls=2, references=30).formats
    nothing: dict[str, Any] = {"guesses": (), "revealed": (), "low": None, "high": None}
    classes = tuple(replace(row, **nothing, p_value=None) for row in form.classes)
    bare = replace(data.formats[0], pattern=None, quantiles=(), fit=None, classes=classes)
    empty: dict[str, Any] = {"model": (), "settings": (), "warnings": (), "command": None}
    html = render_report(replace(data, verdict=VERDICT, formats=(bare,), **empty))
    text = text_of(html)
    assert Nesting(html).open == []
    for said in (
        "this result holds none",
        "Extraction was not tried",
        "The training is not on record",
        "are not available",
        "The measurement gave no warnings",
        "is not on record",
    ):
        assert said in text


def test_quantiles_of_references_have_their_names() -> None:
    """The result keeps the least and the largest too."""
    data = page_data(canaries=2, controls=2)
    form = replace(data.formats[0], quantiles=tuple(map(float, range(9))))
    said = text_of(render_report(undrawn(replace(data, formats=(form,)))))
    assert "the least of them 0.00 1 % of them lie below 1.00 5 % of them lie below 2.00" in said
    assert (
        "95 % of them lie below 6.00 99 % of them lie below 7.00 the largest of them 8.00" in said
    )


def test_an_error_in_rendering_is_an_error_of_ours(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a damaged result: what was read is known to be sound."""

    def fail(_: object) -> str:
        raise KeyError("a typo")

    run = small_run(tmp_path / "run")
    monkeypatch.setitem(page_module._environment().filters, "whole", fail)
    seen = call("report", run)
    assert seen.code == 3
    assert "this is a bug in lmexposure" in seen.err
    assert "KeyError" in seen.err
    assert "Traceback" not in seen.err
    assert not (run / "report.html").exists()
    again = call("report", run, "--debug")
    assert again.code == 3
    assert "Traceback" in again.err


def test_no_formats_at_all_is_a_page_too() -> None:
    data = page_data(canaries=2, controls=2, references=30)
    html = render_report(replace(data, formats=(), roc=(), privacy=None))
    assert Nesting(html).open == []
    assert "There are no canaries" in html


def test_several_formats_stand_in_one_table_first() -> None:
    data = page_data(names=("pin", "badge"), canaries=3, controls=3, references=30)
    html = render_report(replace(data, privacy=None, roc=(), training=()))
    table = html[html.index('id="glance"') : html.index('id="classes-1"')]
    assert table.count("<tr><th") == 2
    for one in data.formats:
        best = max(one.classes, key=lambda row: row.median)
        assert re.search(rf"{one.name}</a></th>.*\n?.*>{best.repetitions}×<", table)
        assert f">{'≥ ' if best.capped else ''}{best.median:.2f}</td>" in table
    assert "glance" not in render_report(undrawn(page_data(canaries=2, controls=2)))


def test_the_style_tells_light_from_dark_and_paper() -> None:
    style = core_page._asset("report.css")
    for word in (
        "@media screen and (prefers-color-scheme: dark)",
        "@media print",
        "prefers-reduced-motion",
    ):
        assert word in style
    defined = set(re.findall(r"(--chart-[a-z0-9-]+):", style))
    assert set(VARIABLES.values()) <= defined


@pytest.mark.parametrize("scheme", [0, 1, 2], ids=["light", "dark", "print"])
def test_what_a_chart_draws_stands_out_from_the_page(scheme: int) -> None:
    blocks = re.findall(r":root \{(.*?)\}", core_page._asset("report.css"), flags=re.DOTALL)
    inherited = f"{blocks[0]} {blocks[scheme]}"
    colors = dict(re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6})", inherited))
    for name, color in colors.items():
        if re.fullmatch(r"--chart-(control|reference|fit|line|accent|(class-)?\d)", name):
            assert contrast(color, colors["--paper"]) >= 3, name
            assert name == "--chart-reference" or contrast(color, colors["--chart-band"]) >= 3
    classes = [contrast(colors[f"--chart-class-{n}"], colors["--paper"]) for n in range(1, 9)]
    assert classes == sorted(classes)  # the more repetitions, the farther from the page
    for name in ("--ink", "--muted", "--link", "--leak", "--pass", "--inconclusive"):
        assert contrast(colors[name], colors["--paper"]) >= 4.5, name
