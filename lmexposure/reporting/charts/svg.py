"""matplotlib's SVG made fit for a page: small, with ids of its own, in the page's colours and font.

Every property becomes a plain attribute: a page whose security policy forbids style attributes
shows the chart all the same. The text of data is never searched or replaced.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping

from lmexposure.reporting.charts.palette import INK, VARIABLES

_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_FONTS = "DejaVu Sans, Verdana, Arial, sans-serif"
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_GEOMETRY = ("d", "x", "y", "transform", "width", "height")
_COLORED = ("fill", "stroke")


def dressed(svg: str, *, name: str, title: str, description: str, inline: bool) -> str:
    """Turn one figure that matplotlib wrote into a chart.

    Args:
        svg: as matplotlib writes it, text as text.
        name: the beginning of every id.
        title, description: become the accessible name and description.
        inline: for a page, which says the title below the chart; otherwise a whole file.

    Returns:
        For a page one element without prolog, else a file's text.
    """
    root = ET.fromstring(svg)
    _without_what_nobody_reads(root)
    for element in root.iter():
        _plainly(element)
        _colors(element, inline=inline)
    for element in root.iter("g"):
        _share(element)
    _ids(root, name)
    _prune(root)
    _frame(root, inline=inline)
    _say(root, name, ({} if inline else {"title": title}) | {"desc": description})
    text = ET.tostring(root, encoding="unicode")
    return text if inline else f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _without_what_nobody_reads(root: ET.Element) -> None:
    """No metadata, no style sheet (it would hold for the whole page), no invisible paths."""
    for parent in list(root.iter()):
        for child in list(parent):
            tag = child.tag.rpartition("}")[2]
            unseen = tag == "path" and child.get("style", "") == "fill: none"
            if tag in ("metadata", "style") or unseen:
                parent.remove(child)


def _plainly(element: ET.Element) -> None:
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
    """To a hundredth of a point, a marker's place to a tenth: nobody sees less."""
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
    if len(markers) < 2 or any(one.tag != "use" for one in markers):
        return
    for key in [key for key in markers[0].attrib if key not in ("href", "x", "y")]:
        value = markers[0].attrib[key]
        if key not in group.attrib and all(one.get(key) == value for one in markers):
            group.set(key, value)
            for one in markers:
                del one.attrib[key]


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
    """Matplotlib's rule for all joins and ends of lines stands here, and is inherited."""
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
