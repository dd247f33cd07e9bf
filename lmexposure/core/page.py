"""A report as one HTML page that needs nothing else: no network, no other file, no library.

Its policy lets only its own style and script run, known by their hashes; every value is escaped.
"""

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lmexposure import _style
from lmexposure._style import printable

_FLAG = re.compile(r"--[a-z][a-z-]*")
_SOURCE = re.compile(r"\[(\d)\]")
_WORDS = (_style.outcome_word, _style.whole)


def filled_page(template: str, **values: object) -> str:
    """A template with the style and the script that every page carries, and their policy."""
    style, script = _asset("report.css"), _asset("report.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page: str = (
        _environment()
        .get_template(template)
        .render(style=Markup(style), script=Markup(script), policy=Markup(policy), **values)
    )
    return printable(page)


@cache
def _environment() -> Environment:
    """Where templates come from, and what they write values with."""
    made = Environment(
        loader=PackageLoader("lmexposure.core"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update({written.__name__: written for written in _WORDS})
    made.filters["flags_whole"] = _flags_whole
    made.filters["cited"] = _cited
    # What a chart draws holds its data escaped.
    made.filters["drawn"] = lambda chart: Markup(chart.svg())
    made.globals["CHANCE"] = _style.CHANCE
    return made


def _flags_whole(text: str) -> Markup:
    """A sentence whose flags, such as --effort, are code that no line breaks."""
    return Markup(_FLAG.sub(r'<code class="flag">\g<0></code>', str(escape(text))))


def _cited(text: str) -> Markup:
    """A sentence whose numbers of sources, such as [1], lead to them."""
    return Markup(_SOURCE.sub(r'<a href="#source-\1">[\1]</a>', str(escape(text))))


def _asset(name: str) -> str:
    """A file of ours that the page holds as it is."""
    return files("lmexposure.core").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """As a content security policy names an inline element."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
