"""Pages: well formed, closed to the network, and readable in every scheme."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import cli.conftest
import pytest
from cli.conftest import Call
from core.charts.test_style import contrast
from made_studies import MADE

from lmexposure.core import page
from lmexposure.core.charts import VARIABLES
from lmexposure.core.render import as_page

call = cli.conftest.call

VOID = {"meta", "link", "input", "br", "img", "hr"}


class Nesting(HTMLParser):
    """Fails where an element is closed that is not open, and keeps what loads anything."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.handlers: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster", "action"):
                self.loads.append(str(value))
            if name == "href":
                (self.links if tag == "a" else self.loads).append(str(value))
            if name.startswith("on") or name == "style":
                self.handlers.append(name)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module", params=sorted(MADE))
def html(request: pytest.FixtureRequest) -> str:
    return as_page(MADE[request.param](1).told())


def test_it_is_well_formed_and_loads_nothing(html: str) -> None:
    seen = Nesting(html)
    assert seen.open == []
    assert {one for one in seen.loads if not one.startswith(("#", "data:"))} == set()
    assert seen.handlers == []
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert {one[1:] for one in seen.links if one.startswith("#")} <= set(ids)


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


def test_an_error_in_rendering_is_an_error_of_ours(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a damaged result: what was read is known to be sound."""

    def fail(_: object) -> str:
        raise KeyError("a typo")

    run = MADE["result"](1).save(tmp_path / "run").parent
    monkeypatch.setitem(page._environment().filters, "outcome_word", fail)
    seen = call("report", run)
    assert seen.code == 3
    assert "this is a bug in lmexposure" in seen.err
    assert "KeyError" in seen.err
    assert "Traceback" not in seen.err
    assert not (run / "report.html").exists()
    again = call("report", run, "--debug")
    assert again.code == 3
    assert "Traceback" in again.err


def test_the_style_tells_light_from_dark_and_paper() -> None:
    style = page._asset("report.css")
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
    blocks = re.findall(r":root \{(.*?)\}", page._asset("report.css"), flags=re.DOTALL)
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
