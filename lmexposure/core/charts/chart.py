"""One chart: what it says in words, and its picture for a page, for a file and as pixels.

matplotlib's SVG is made fit for a page: small, with ids of its own, in the page's colours and font.
Every property becomes a plain attribute: a page whose security policy forbids style attributes
still shows the chart. The text of data is never searched or replaced.
"""

import io
import re
import textwrap
import warnings
import xml.etree.ElementTree as ET
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypedDict

from matplotlib import style
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure, FigureBase

from lmexposure._style import html
from lmexposure.core.charts.style import (
    INK,
    LEGEND_LINE,
    PAPER,
    SETTINGS,
    VARIABLES,
    WIDTH,
    Draw,
    Legend,
    legend_lines,
    put_legend,
)
from lmexposure.errors import SettingsError

Theme = Literal["page", "plain"]

_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_FONTS = "DejaVu Sans, Verdana, Arial, sans-serif"
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_GEOMETRY = ("d", "x", "y", "transform", "width", "height")
_COLORED = ("fill", "stroke")
_DOTS_PER_INCH = 192  # twice a screen's
_TITLE_LINE, _TITLE_LETTERS = 0.27, 52  # inches, and letters in a line


class Words(TypedDict):
    """What is said of a chart, and its name: see `Chart`."""

    name: str
    title: str
    caption: str
    description: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Chart:
    """A chart that draws itself when it is asked for."""

    # lower-case letters, digits, _ and -, from `kind` and `subject`; a file name, and the beginning
    # of every id in the picture
    name: str
    # "exposure", "references", "extraction", "calibrated", "controls", "epsilon", "roc",
    # "training", "trajectory" or "compare"; of a sweep "beside", "canaries", "worst",
    # "counterfactual", "power", "sweep_roc" or "sweep_bounds"; "defences"
    kind: str
    subject: str = ""  # the format that it shows; "" for the whole run
    title: str  # one line
    caption: str  # what to see in it, in a sentence or two; its numbers are in a table
    description: str  # its message in one to three sentences, for readers who do not
    draw: Draw  # puts it on an empty figure
    legend: Legend  # what is above it, so that no key ever covers data
    height: float  # in inches, without the legend; the width is the same for all

    def _repr_svg_(self) -> str:
        return self.svg("plain")

    def image(self) -> str:
        """An element of HTML, apart from a page's other ids and colours."""
        data = b64encode(self.svg("plain").encode()).decode()
        said = html(self.description)
        return f'<p><img alt="{said}" src="data:image/svg+xml;base64,{data}"></p>'

    def svg(self, theme: Theme = "page") -> str:
        """The chart as SVG; the same data gives the same text."""
        if theme not in ("page", "plain"):
            raise SettingsError(f"theme={theme!r} must be 'page' or 'plain'")
        drawn = io.StringIO()
        with _matplotlib_settings():
            figure = self._figure(titled=theme == "plain")
            # Not savefig, which draws twice: the layout is made by the one draw that there is.
            FigureCanvasSVG(figure).print_svg(drawn)  # type: ignore[no-untyped-call]
        return clean_svg(
            drawn.getvalue(),
            name=self.name,
            title=self.title,
            description=self.description,
            inline=theme == "page",
        )

    def png(self) -> bytes:
        """The chart as pixels on white with its title, at twice a screen's density."""
        drawn = io.BytesIO()
        with _matplotlib_settings():
            self._figure(titled=True).savefig(
                drawn, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None}
            )
        return drawn.getvalue()

    def pdf(self) -> bytes:
        """The chart for print, with its title; the same data gives the same bytes."""
        drawn = io.BytesIO()
        with _matplotlib_settings():
            self._figure(titled=True).savefig(
                drawn, format="pdf", metadata={"CreationDate": None, "Producer": None}
            )
        return drawn.getvalue()

    def _figure(self, *, titled: bool) -> Figure:
        """A legend of many lines makes the chart higher, not its data smaller."""
        keys = self.legend()
        height = self.height + LEGEND_LINE * legend_lines(keys)
        lines = textwrap.wrap(self.title, _TITLE_LETTERS) if titled else []
        strip = _TITLE_LINE * len(lines) + 0.1 if lines else 0.0
        figure = Figure(figsize=(WIDTH, height + strip), layout="constrained")
        body: FigureBase = figure
        if lines:
            figure.set_facecolor(PAPER)
            # matplotlib would print a title of the figure over the legend.
            grid = figure.add_gridspec(2, 1, height_ratios=[strip, height])
            above, body = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
            text = "\n".join(lines)
            above.text(0.01, 0.5, text, va="center", fontsize=13, fontweight="bold")
        put_legend(body, keys)
        self.draw(body)
        return figure


@contextmanager
def _matplotlib_settings() -> Iterator[None]:
    """Matplotlib's defaults and ours, whatever the user's own settings file says."""
    with style.context(["default", SETTINGS]), warnings.catch_warnings():
        # A letter that the font lacks is measured as a box; the page's own font shows it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def clean_svg(svg: str, *, name: str, title: str, description: str, inline: bool) -> str:
    """Turn one figure that matplotlib wrote into a chart."""
    root = ET.fromstring(svg)
    _drop_unread(root)
    for element in root.iter():
        _plain_attributes(element)
        _colors(element, inline=inline)
    for element in root.iter("g"):
        _share(element)
    _ids(root, name)
    _prune(root)
    _frame(root, inline=inline)
    _say(root, name, ({} if inline else {"title": title}) | {"desc": description})
    text = ET.tostring(root, encoding="unicode")
    return text if inline else f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _drop_unread(root: ET.Element) -> None:
    """No metadata, no style sheet (it would hold for the whole page), no invisible paths."""
    for parent in list(root.iter()):
        for child in list(parent):
            tag = child.tag.rpartition("}")[2]
            unseen = tag == "path" and child.get("style", "") == "fill: none"
            if tag in ("metadata", "style") or unseen:
                parent.remove(child)


def _plain_attributes(element: ET.Element) -> None:
    """Short names and numbers; a property of the style becomes an attribute."""
    element.tag = element.tag.rpartition("}")[2]
    if element.tag != "text":
        element.text = None
    element.tail = None
    for key, value in _properties(element.attrib.pop("style", "")):
        if key != "font-family":
            element.set(key, value)
    for key in list(element.attrib):
        if key.startswith("{"):
            element.set(key.rpartition("}")[2], element.attrib.pop(key))
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    for key in _GEOMETRY:
        if key in element.attrib:
            element.set(key, _rounded(element.attrib[key], 1 if element.tag == "use" else 2))


def _properties(style: str) -> Iterator[tuple[str, str]]:
    for part in filter(str.strip, style.split(";")):
        key, _, value = part.partition(":")
        yield key.strip(), value.strip()


def _rounded(value: str, digits: int) -> str:
    """To a hundredth of a point, a marker's place to a tenth: less is not visible."""
    short = _NUMBER.sub(lambda found: f"{round(float(found[0]), digits):g}", value)
    return " ".join(short.split())


def _colors(element: ET.Element, *, inline: bool) -> None:
    if not inline:
        return
    for key in _COLORED:
        color = element.get(key)
        if color == INK and element.tag == "text":
            element.set(key, "currentColor")
        elif color in VARIABLES:
            element.set(key, f"var({VARIABLES[color]})")


def _share(group: ET.Element) -> None:
    """What all markers of a group have in common is said once, on the group."""
    markers = list(group)
    if len(markers) < 2 or any(marker.tag != "use" for marker in markers):
        return
    for key in [key for key in markers[0].attrib if key not in ("href", "x", "y")]:
        value = markers[0].attrib[key]
        if key not in group.attrib and all(marker.get(key) == value for marker in markers):
            group.set(key, value)
            for marker in markers:
                del marker.attrib[key]


def _prune(parent: ET.Element) -> None:
    """Groups that hold nothing."""
    for child in list(parent):
        _prune(child)
        if child.tag in ("g", "defs") and not len(child):
            parent.remove(child)


def _ids(root: ET.Element, name: str) -> None:
    """Keep the ids that something points to, under names that no other chart has."""
    used: dict[str, str] = {}
    for element in root.iter():
        for key, value in element.attrib.items():
            found = re.fullmatch(r"url\(#(.+)\)", value) if key != "href" else None
            target = found[1] if found else value[1:] if key == "href" else None
            if target:
                used.setdefault(target, f"{name}--{len(used) + 1}")
                element.set(key, f"url(#{used[target]})" if found else f"#{used[target]}")
    for element in root.iter():
        if (old := element.attrib.pop("id", None)) in used:
            element.set("id", used[str(old)])


def _frame(root: ET.Element, *, inline: bool) -> None:
    """Matplotlib's rule for all joins and ends of lines is set here, and inherited."""
    root.set("xmlns", _SVG)
    root.set("stroke-linejoin", "round")
    if inline:
        for key in ("width", "height", "version"):
            root.attrib.pop(key, None)
        return
    root.set("font-family", _FONTS)
    root.set("xmlns:xlink", _XLINK)  # older viewers of files know this form only
    for element in root.iter("use"):
        element.set("xlink:href", element.attrib.pop("href"))


def _say(root: ET.Element, name: str, texts: Mapping[str, str]) -> None:
    """The text alternative, first of all children."""
    root.set("role", "img")
    root.set("aria-labelledby", " ".join(f"{name}--{tag}" for tag in texts))
    for place, (tag, text) in enumerate(texts.items()):
        element = ET.Element(tag, {"id": f"{name}--{tag}"})
        element.text = text
        root.insert(place, element)
