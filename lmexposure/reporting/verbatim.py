"""A look at memorised text as files: a page, Markdown, and a table of the documents."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from lmexposure._files import PRIVATE
from lmexposure._style import sentence
from lmexposure._text import printable
from lmexposure.core import bullets, inline, write_files
from lmexposure.reporting.markdown import section_table
from lmexposure.reporting.verbatim_tables import (
    run_words,
    verbatim_finding,
    verbatim_origin,
    verbatim_sections,
)
from lmexposure.reporting.write import known_in
from lmexposure.studies import Passage, VerbatimDocument, VerbatimPassages, VerbatimRecord

_HIDDEN = "▒"


@dataclass(frozen=True, kw_only=True)
class ShownPassage:
    """A passage as the report shows it: in parts, redacted where that is asked for."""

    document: int  # its number
    title: str  # where it is, in words
    prompt: str  # the end of what the model was given
    same: str  # what came out and is in the document
    output: str  # what came out behind that
    original: str  # what the document has in its place


def verbatim_markdown(record: VerbatimRecord) -> str:
    """A look as Markdown, every value escaped, without texts."""
    parts = [
        "# Memorised text",
        f"**{inline(sentence(verbatim_finding(record)))}**",
        inline(verbatim_origin(record)),
    ]
    for section in verbatim_sections(record):
        parts += [f"## {inline(section.title)}", section_table(section)]
        parts += [bullets(section.notes)] if section.notes else []
    if record.warnings:
        parts += ["## Warnings", bullets(record.warnings)]
    return printable("\n\n".join(parts) + "\n")


def verbatim_csv(record: VerbatimRecord) -> str:
    """A row a document (RFC 4180); numbers in full, missing ones empty."""
    stream = io.StringIO()
    rows = [_flat(row) for row in record.rows]
    table = csv.DictWriter(stream, list(rows[0]), lineterminator="\r\n")
    table.writeheader()
    table.writerows(rows)
    return stream.getvalue()


def shown_passages(
    record: VerbatimRecord, texts: VerbatimPassages | None, *, show_text: bool
) -> list[ShownPassage]:
    """Passages for the page, worst first."""
    if texts is None:
        return []
    rows = {row.number: row for row in record.rows}
    shown = []
    for passage in texts.passages:
        row = rows.get(passage.document)
        if row is not None and row.run is not None and row.verdict != "no":
            shown.append(_passage(row, passage, show_text))
    return shown


def write_verbatim(
    record: VerbatimRecord,
    out: str | Path,
    *,
    source: Path | None = None,
    texts: VerbatimPassages | None = None,
    show_text: bool = False,
) -> list[Path]:
    """Write report.html, report.md and report.csv into a directory, each whole or not at all."""
    from lmexposure.reporting.verbatim_page import render_verbatim

    of = known_in(Path(out), VerbatimRecord.NAME, source, record.inputs_sha256)
    page = render_verbatim(record, shown_passages(record, texts, show_text=show_text))
    files = {
        "report.html": page.encode(),
        "report.md": verbatim_markdown(record).encode(),
        "report.csv": verbatim_csv(record).encode(),
    }
    return write_files(Path(out), files, mode=PRIVATE, of=of)


def _passage(row: VerbatimDocument, passage: Passage, show_text: bool) -> ShownPassage:
    same = passage.output[: passage.matching]
    output, original = (t[passage.matching :] for t in (passage.output, passage.original))
    texts = [passage.prompt, same, output, original]
    if not show_text:
        texts = [_redacted(text) for text in texts]
    prompt, same, output, original = texts
    return ShownPassage(
        document=row.number,
        title=f"Document {row.number}: {run_words(row)}",
        prompt=prompt,
        same=same,
        output=output,
        original=original,
    )


def _redacted(text: str) -> str:
    """Its length and its gaps, and nothing else."""
    return "".join(" " if character.isspace() else _HIDDEN for character in text)


def _flat(row: VerbatimDocument) -> dict[str, object]:
    run = row.run
    return {
        "document": row.number,
        "copies": row.copies,
        "characters": row.characters,
        "verdict": row.verdict,
        "run_characters": None if run is None else run.characters,
        "run_tokens": None if run is None else run.tokens,
        "run_start": None if run is None else run.start,
        "run_prompt_tokens": None if run is None else run.prompt,
        "run_copies": None if run is None else run.copies,
        "reference_run": None if run is None else run.reference,
        "windows": row.windows,
        "greedy_windows": row.greedy,
        "extractable_windows": row.extractable,
        "least_tries": row.least_tries,
        "unheld_characters": row.unheld,
        "p": row.p,
        "false_share": row.false_share,
    }
