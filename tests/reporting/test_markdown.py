"""Reports and comparisons as Markdown, and text from data that stays text."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_results import HOSTILE, hostile_run, small_run

from lmexposure.core import code, fence, inline, table
from lmexposure.reporting import ReportData, compare_data, report_data
from lmexposure.reporting.markdown import compare_markdown, report_markdown
from lmexposure.studies import open_run


def test_one_screen_says_it_all(data: ReportData) -> None:
    text = report_markdown(data)
    assert text.startswith("# mine: leaks\n\n**Leaks: a secret inserted 4 times is found at ")
    assert "\n\nFalse alarms: at most 1 % of models that memorised nothing are called" in text
    assert "What now:\n\n1. Do not release this model: whoever can query it can guess" in text
    assert "Tested:\n\n- leaks: secrets found by guessing: 1 of 2 classes leaks\n- " in text
    assert "Not tested:\n\n- " in text
    assert "| `random_number` | controls | 16 | 0.95 | 0.53 .. 2.24 | 0.4180 | 0/16 | n/a |" in text
    assert "| `random_number` | 4× | 10 | 20.82 |" in text
    assert "29.9 bits are the whole secret" in text
    assert "**epsilon ≥ 0.860 nats at delta 0, a lower bound" in text
    assert "\n- assumes: " in text
    assert text.rstrip().endswith("--settings mine-again.toml\n```")
    assert len(text.splitlines()) < 60


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    text = report_markdown(report_data(open_run(hostile_run(tmp_path / HOSTILE.replace("/", "")))))
    html = markdown_it.MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(text)
    assert "<script" not in html
    assert "<a " not in html
    assert html.count("<h1>") == 1
    assert html.count("&lt;script&gt;") > 5
    cells = [row.count("<td") for row in html.split("<tr>")[2:]]
    assert cells == [8, 8, 8]


def test_many_classes_fold(data: ReportData) -> None:
    form = data.formats[0]
    many = [replace(form, name=f"format_{i}") for i in range(5)]
    text = report_markdown(replace(data, formats=tuple(many)))
    assert "<details><summary>All 15 classes</summary>" in text
    above = text.split("<details>")[0]
    assert above.count("| `format_") == 5
    assert above.count(" | 4× | 10 | 20.82 |") == 5


def test_without_canaries_it_says_so(data: ReportData) -> None:
    empty = replace(data, formats=(), command=None, privacy=None)
    text = report_markdown(empty)
    assert "No canaries were measured." in text
    assert "No bound on epsilon: the result holds none." in text
    assert "Reproduce" not in text


def test_what_the_command_leaves_out_is_said(tmp_path: Path) -> None:
    run = open_run(small_run(tmp_path / "run", seed=918_273_645))
    report = report_data(run)
    assert (report.command is not None, "--seed SEED" in (report.command or "")) == (True, True)
    assert "Fill in the words in capitals, if there are any" in report_markdown(report)
    assert "SEED is plan.seed in manifest.json" in report_markdown(report)
    written = json.loads((tmp_path / "run" / "manifest.json").read_bytes())
    assert written["plan"]["seed"] == "918273645"


def test_markdown_shows_runs_classes_and_differences(tmp_path: Path) -> None:
    runs = [
        open_run(small_run(tmp_path / "base", memorised=())),
        open_run(small_run(tmp_path / "tuned")),
    ]
    text = compare_markdown(compare_data(runs))
    assert text.startswith("# Compared: base and tuned")
    assert "| repetitions | `base` | `tuned` |" in text
    assert "| `random_number, 4×` | `tuned` | +" in text
    assert "\n- **tuned leaks more than base: secrets inserted 4 times are " in text
    assert text.count("lmexposure run") == 2


def test_markdown_of_hostile_names(tmp_path: Path) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    data = compare_data([open_run(hostile_run(tmp_path / n)) for n in ("<b>", "|x|`")])
    parser = markdown_it.MarkdownIt("gfm-like", {"linkify": False, "html": True})
    html = parser.render(compare_markdown(data))
    assert "<script" not in html
    assert "<b>" not in html
    assert "<a " not in html


markdown_it = pytest.importorskip("markdown_it")  # comes with rich
NASTY = [
    HOSTILE,
    "# heading",
    "- item",
    "1. item",
    "+ plus",
    "===",
    "---",
    ": x",
    "> quote",
    "a|b\n| c |\n|---|",
    "<img src=x onerror=alert(1)>",
    "&lt;b&gt;",
    "**bold** __bold__ ~~gone~~ `code`",
    "[link](http://example.com) ![image](x) <http://example.com>",
    "http://example.com www.example.com a@example.com",
    "``` fence ```",
    "``two``",
    "\\*escaped\\*",
    "    indented code",
    "ends with \\",
]


def rendered(text: str) -> str:
    parser = markdown_it.MarkdownIt("gfm-like", {"linkify": False, "html": True})
    return str(parser.render(text))


def read_back(html: str) -> str:
    """The text that a reader sees of one paragraph or list item."""
    import html as entities
    import re

    return entities.unescape(re.sub(r"</?(p|li|ul|code|td|tr|tbody)>|\n", "", html))


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("text", NASTY)
def test_inline_text_is_read_back_as_it_was(text: str) -> None:
    html = rendered(f"- {inline(text)}")
    assert read_back(html) == flat(text).replace("\n", "")
    assert html.startswith("<ul>\n<li>")
    assert html.count("<") == 4


@pytest.mark.parametrize("text", NASTY)
def test_code_is_read_back_as_it_was(text: str) -> None:
    row = f"| {code(text)} |"
    html = rendered(f"| a |\n| --- |\n{row}")
    assert html.count("<td>") == html.count("<code>") == 1
    cell = html.split("<td>")[1].split("</td>")[0]
    assert read_back(cell) == flat(text)


def test_an_address_is_no_link() -> None:
    said = inline("see http://example.com and www.example.com")
    assert said == r"see http\://example.com and www\.example.com"


def test_names_with_underscores_stay_readable() -> None:
    assert inline("random_number") == "random_number"
    assert inline("_em_") == r"\_em\_"


@pytest.mark.parametrize("text", ["a\n```\nb", "````", "plain"])
def test_a_fence_holds_what_it_is_given(text: str) -> None:
    html = rendered(fence(text))
    assert html.count("<pre>") == html.count("</pre>") == 1
    assert html.startswith('<pre><code class="language-sh">')
    assert html.rstrip().endswith("</code></pre>")


def test_a_table_has_a_rule_and_its_rows() -> None:
    assert table(("a", "b"), [("x", "1")]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
