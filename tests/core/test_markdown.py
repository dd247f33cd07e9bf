"""Text from data that stays text in Markdown."""

import pytest
from made_results import HOSTILE

from lmexposure.core import code, fence, inline, table

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
