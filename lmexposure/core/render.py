"""A document as Markdown, CSV, JSON, a data frame, a notebook's cell or a page; escaped here.

In Markdown every character of values from anywhere is plain, but for what is ours.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lmexposure._record import JsonTable, plain
from lmexposure._style import html, html_table, outcome_word, printable, sentence, visible
from lmexposure.core.check import Outcome, Verdict
from lmexposure.core.document import Document, Section, Table, checks_table, shared_lines

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from lmexposure.core.charts import Chart


# What CommonMark and GitHub's tables, autolinks, formulas and mentions give a meaning to.
_SPECIAL = re.compile(r"([\\`*\[\]<>|~&$@#]|(?<![^\W_])_|_(?![^\W_]))")
_AUTOLINK = re.compile(r"://|www\.", re.IGNORECASE)
_AT_THE_START = re.compile(r"^(\d+)([.)])|^([-+=:])")
_BLANK = re.compile(r"\s+")


def inline(text: str) -> str:
    r"""Text of one line, every character of it plain.

    >>> inline("a|b <i>*c*</i>")
    'a\\|b \\<i\\>\\*c\\*\\</i\\>'
    """
    line = _BLANK.sub(" ", text).strip()
    line = _SPECIAL.sub(r"\\\1", line)
    line = _AUTOLINK.sub(lambda found: found[0].replace(":", r"\:").replace(".", r"\."), line)
    return _AT_THE_START.sub(
        lambda found: f"{found[1]}\\{found[2]}" if found[1] else f"\\{found[3]}", line
    )


def code(text: str) -> str:
    r"""A name as code: between more backticks than it holds, fit for a table's cell.

    >>> code("x|`y`")
    '`` x\\|`y` ``'
    """
    line = _BLANK.sub(" ", text).strip().replace("|", r"\|")
    marks = "`" * (1 + _longest_run(line))
    pad = " " if "`" in line or not line else ""
    return f"{marks}{pad}{line}{pad}{marks}"


def fence(command: str) -> str:
    """A command line as a block of code, between more backticks than any of its lines holds."""
    marks = "`" * max(3, 1 + _longest_run(command))
    return f"{marks}sh\n{command.strip()}\n{marks}"


def bullets(lines: Sequence[str]) -> str:
    """A list, every line of it plain."""
    return "\n".join(f"- {inline(line)}" for line in lines)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A table whose cells are Markdown already; all columns but the first `left` hold numbers."""
    rule = ["---" if number < left else "---:" for number in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # as spreadsheets begin one
_ALARM = "**This report shows secrets, or texts of the corpus: it was asked to show them.**"
_EXACT = 2**53  # beyond it some readers of JSON round
# As on a page of light paper.
_COLOURS = {Outcome.LEAK: "#a4231c", Outcome.PASS: "#17633d", Outcome.INCONCLUSIVE: "#795200"}
REPORT_SCHEMA = "lmexposure.document/1"


def as_markdown(document: Document) -> str:
    """For a pull request or a model card."""
    finding = inline(document.answer)
    parts = [*_verdict(document), finding if document.verdict else f"**{finding}**"]
    parts += [_ALARM] if document.secrets else []
    parts += [bullets(document.facts)] if document.facts else []
    for section in document.on("md"):
        parts += _section(section)
    if document.warnings:
        parts += ["## Warnings", bullets(document.warnings)]
    parts.append(inline(document.origin))
    return printable("\n\n".join(parts) + "\n")


def _verdict(document: Document) -> Iterator[str]:
    """What was found, how sure that is, and what to do now; of no verdict the title alone."""
    verdict, answers = document.verdict, document.answers
    if verdict is None or answers is None:
        yield f"# {inline(document.title)}"
        return
    yield f"# {inline(document.title)}: {outcome_word(verdict.outcome)}"
    yield f"**{inline(verdict.sentence)}**"
    tested = [line for line in answers.tested if line.outcome is not Outcome.NOT_TESTED]
    if tested:
        yield "Tested:\n\n" + bullets(
            [": ".join(filter(None, (line.aside, line.what, line.said))) for line in tested]
        )
    if verdict.untested:
        yield "Not tested:\n\n" + bullets(verdict.untested)
    if answers.sure:
        yield " ".join(map(inline, answers.sure))
    steps = (f"{n}. {inline(step)}" for n, step in enumerate(answers.steps, start=1))
    yield "What now:\n\n" + "\n".join(steps)
    yield "## What was measured"


def _section(section: Section, level: int = 2) -> list[str]:
    """A section, and the parts of it a level below; of one that is folded the rest is opened."""
    title = inline(section.title)
    folded = section.folded and section.table is not None
    parts = [] if folded and level > 2 else [f"{'#' * level} {title}"]
    parts += [f"<details><summary>{title}</summary>"] if folded else []
    parts += map(inline, section.said)
    if section.table is not None and section.table.rows:
        parts += [inline(sentence(section.caption))] if section.caption else []
        words, rows = section.table.words, section.table.cells
        cells = [[*map(code, row[:words]), *row[words:]] for row in rows]
        parts.append(table([*map(inline, section.table.heads)], cells, left=words))
    parts += [bullets(section.notes)] if section.notes else []
    parts += [fence(section.code)] if section.code else []
    for part in section.parts:
        if "md" in part.on:
            parts += _section(part, level + 1)
    return [*parts, *(["</details>"] if folded else [])]


def as_csv(document: Document) -> str:
    """The main table (RFC 4180); numbers in full, missing ones empty."""
    stream = io.StringIO()
    names = [column.key for column in document.main.columns]
    rows = csv.DictWriter(stream, names, lineterminator="\r\n")
    rows.writeheader()
    for row in document.main.values:
        rows.writerow({name: _plain(value) for name, value in row.items()})
    return stream.getvalue()


def _plain(value: object) -> object:
    """A text as text: no formula, and nothing that does not print."""
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown


def as_json(document: Document) -> str:
    """What was found, and every table: its columns with units, its rows by name."""
    verdict = document.verdict
    values: JsonTable = {
        "schema": REPORT_SCHEMA,
        "title": document.title,
        "kind": document.kind,
        "verdict": None if verdict is None else plain(verdict.to_dict()),
        "finding": document.answer,
        "facts": list(document.facts),
        "main": _values(document.main),
        "sections": _sections(document.sections),
        "warnings": list(document.warnings),
        "origin": document.origin,
    }
    return json.dumps(values, indent=1, allow_nan=False) + "\n"


def _sections(sections: Sequence[Section]) -> JsonTable:
    return {
        section.id: {
            "title": section.title,
            "said": list(section.said),
            "notes": list(section.notes),
            **({} if section.table is None else _values(section.table)),
            **({"code": section.code} if section.code else {}),
            **({"parts": _sections(section.parts)} if section.parts else {}),
        }
        for section in sections
    }


def _values(shown: Table) -> JsonTable:
    columns = [
        {"name": column.key, "head": column.head, "unit": column.unit, "worse": column.worse}
        for column in shown.columns
    ]
    rows = [{name: _exact(value) for name, value in row.items()} for row in shown.values]
    return {"columns": plain(columns), "rows": plain(rows)}


def _exact(value: object) -> object:
    """A whole number that some readers would round as digits."""
    return str(value) if isinstance(value, int) and abs(value) > _EXACT else value


def as_frame(document: Document) -> "pd.DataFrame":
    """The main table as a pandas frame."""
    import pandas as pd

    names = [column.key for column in document.main.columns]
    return pd.DataFrame(document.main.values, columns=names)


def as_cell(document: Document) -> str:
    """For a notebook: the verdict, the first chart and the first table; a report has them all."""
    parts = [f"<h3>{html(document.title)}</h3>"]
    charts = document.drawings()[:1]
    parts += [verdict_cell(document.verdict, charts)] if document.verdict else []
    parts.append(f"<p>{html(document.answer)}</p>")
    sections = (part for section in document.on("html") for part in (section, *section.parts))
    shown = next((section for section in sections if section.table is not None), None)
    if shown is not None and shown.table is not None:
        parts.append(f"<h4>{html(shown.title)}</h4>")
        parts.append(html_table(shown.table.heads, shown.table.cells))
    return "\n".join([*parts, f"<p>{html(document.origin)}</p>"])


def verdict_cell(verdict: Verdict, charts: "Sequence[Chart]" = ()) -> str:
    """For a notebook: the word, why, and what each kind of check came to; then charts."""
    rows = [(line.outcome, line.what, line.said) for line in shared_lines(verdict)]
    word = outcome_word(verdict.outcome).upper()
    style = f"border-left: 6px solid {_COLOURS[verdict.outcome]}; padding-left: 8px"
    return (
        f'<div style="{style}"><p><b>{word}</b></p><p>{html(verdict.finding)}</p>'
        f"{html_table((), rows)}</div>{''.join(chart.image() for chart in charts)}"
    )


def as_page(document: Document) -> str:
    """One HTML page."""
    from lmexposure.core.page import filled_page  # brings jinja2

    first, sections = _first_chart([_Drawn.of(section) for section in document.on("html")])
    checks = None if document.verdict is None else checks_table(document.verdict)
    return filled_page(
        "study.html.jinja", document=document, first=first, checks=checks, sections=sections
    )


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """A section with its chart, and its parts with theirs."""

    section: Section
    chart: "Chart | None"
    parts: "Sequence[_Drawn]"

    @classmethod
    def of(cls, section: Section) -> "_Drawn":
        chart = None if section.chart is None else section.chart()
        parts = [cls.of(part) for part in section.parts if "html" in part.on]
        return cls(section=section, chart=chart, parts=parts)


def _first_chart(drawn: Sequence[_Drawn]) -> tuple[_Drawn | None, list[_Drawn]]:
    """The first section or part with a chart, and all of them without it."""
    for place, each in enumerate(drawn):
        found, parts = (each, each.parts) if each.chart else _first_chart(each.parts)
        if found is not None:
            rest = replace(each, chart=None, parts=parts)
            return found, [*drawn[:place], rest, *drawn[place + 1 :]]
    return None, [*drawn]


RENDERERS: Mapping[str, Callable[[Document], str]] = {
    "html": as_page,
    "md": as_markdown,
    "csv": as_csv,
    "json": as_json,
}
