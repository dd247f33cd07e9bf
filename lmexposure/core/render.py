"""A document as Markdown, CSV, JSON, a data frame, a notebook's cell or a page; escaped here."""

import csv
import io
import json
from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING

from lmexposure._record import JsonTable, plain
from lmexposure._style import sentence
from lmexposure._text import printable, visible
from lmexposure.core.document import Document, Section, Table
from lmexposure.core.markdown import bullets, code, inline, table

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

REPORT_SCHEMA = "lmexposure.document/1"


def as_markdown(document: Document) -> str:
    """For a pull request or a model card."""
    parts = [f"# {inline(document.title)}", f"**{inline(sentence(document.finding))}**"]
    parts += [bullets(document.facts)] if document.facts else []
    for section in document.on("md"):
        parts += _section(section)
    if document.warnings:
        parts += ["## Warnings", bullets(document.warnings)]
    parts.append(inline(document.origin))
    return printable("\n\n".join(parts) + "\n")


def _section(section: Section) -> list[str]:
    parts = [f"## {inline(section.title)}"]
    if section.table is not None:
        words, rows = section.table.words, section.table.cells
        cells = [[*map(code, row[:words]), *row[words:]] for row in rows]
        parts.append(table(section.table.heads, cells, left=words))
    return [*parts, *([bullets(section.notes)] if section.notes else [])]


def as_csv(document: Document) -> str:
    """The main table (RFC 4180); numbers in full, missing ones empty."""
    stream = io.StringIO()
    names = [column.key for column in document.main.columns]
    rows = csv.DictWriter(stream, names, lineterminator="\r\n")
    rows.writeheader()
    rows.writerows(document.main.values)
    return stream.getvalue()


def as_json(document: Document) -> str:
    """What was found, and every table: its columns with units, its rows by name."""
    values: JsonTable = {
        "schema": REPORT_SCHEMA,
        "title": document.title,
        "kind": document.kind,
        "finding": sentence(document.finding),
        "facts": list(document.facts),
        "main": _values(document.main),
        "sections": {
            section.id: {
                "title": section.title,
                "notes": list(section.notes),
                **({} if section.table is None else _values(section.table)),
            }
            for section in document.sections
        },
        "warnings": list(document.warnings),
        "origin": document.origin,
    }
    return json.dumps(values, indent=1, allow_nan=False) + "\n"


def _values(shown: Table) -> JsonTable:
    columns = [
        {"name": column.key, "head": column.head, "unit": column.unit, "worse": column.worse}
        for column in shown.columns
    ]
    return {"columns": plain(columns), "rows": plain(shown.values)}


def as_frame(document: Document) -> "pd.DataFrame":
    """The main table as a pandas frame."""
    import pandas as pd

    names = [column.key for column in document.main.columns]
    return pd.DataFrame(document.main.values, columns=names)


def as_cell(document: Document) -> str:
    """For a notebook: the finding and the tables, without style of their own."""
    parts = [
        f"<h3>{_html(document.title)}</h3>",
        f"<p><b>{_html(sentence(document.finding))}</b></p>",
    ]
    for section in document.on("html"):
        if section.table is None:
            continue
        heads = "".join(f"<th>{_html(head)}</th>" for head in section.table.heads)
        rows = "".join(
            f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in row)}</tr>"
            for row in section.table.cells
        )
        parts.append(f"<h4>{_html(section.title)}</h4><table><tr>{heads}</tr>{rows}</table>")
    return "\n".join([*parts, f"<p>{_html(document.origin)}</p>"])


def _html(text: str) -> str:
    return escape(visible(text))


def as_page(document: Document) -> str:
    """One HTML page."""
    from lmexposure.core.page import filled_page  # brings jinja2

    sections = [
        (section, None if section.chart is None else section.chart())
        for section in document.on("html")
    ]
    return filled_page("study.html.jinja", document=document, sections=sections)


RENDERERS: Mapping[str, Callable[[Document], str]] = {
    "html": as_page,
    "md": as_markdown,
    "csv": as_csv,
    "json": as_json,
}
