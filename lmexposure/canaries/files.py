"""A corpus file in, the same file with canaries out; every other byte as it was."""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lmexposure._files import atomic_write
from lmexposure.canaries.copying import corpus_copy
from lmexposure.canaries.insertion import Existing, draw, text_line
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.merging import Merger
from lmexposure.canaries.plan import Plan
from lmexposure.canaries.rows import Rows, row_texts
from lmexposure.canaries.shapes import Shape, merger_for, record_of, shape_named
from lmexposure.canaries.surveying import FileSurvey, survey_files
from lmexposure.canaries.textfile import noted_blocks
from lmexposure.errors import CorpusError

__all__ = ["Preview", "insert_into_file", "preview_insertion"]


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What an insertion would do.

    Attributes:
        documents: in the corpus now.
        insertions: documents that would be added.
        bytes_before: size of the corpus' content now; of Parquet, of its texts.
        bytes_added: how much that would grow.
        canaries: different canaries, over all formats.
        excluded: candidates that their coins leave out, over all formats.
        controls: over all formats.
        references: per format, how many secrets are left for references.
        set_aside: per format, how many secrets stand in the corpus already.
        expected: insertions, bytes added, canaries and excluded are what coins not yet tossed give
            on average.
    """

    documents: int
    insertions: int
    bytes_before: int
    bytes_added: int
    canaries: int
    excluded: int
    controls: int
    references: Mapping[str, int]
    set_aside: Mapping[str, int]
    expected: bool = False

    @property
    def share_of_documents(self) -> float:
        """Inserted documents / all documents after insertion."""
        return self.insertions / (self.documents + self.insertions)

    @property
    def share_of_bytes(self) -> float:
        """Inserted bytes / all bytes after insertion."""
        return self.bytes_added / (self.bytes_before + self.bytes_added)

    def to_dict(self) -> dict[str, Any]:
        """All attributes and both shares."""
        shares = {"share_of_documents": self.share_of_documents}
        return {**asdict(self), **shares, "share_of_bytes": self.share_of_bytes}


def insert_into_file(
    corpus_path: str | Path,
    plan: Plan,
    out_path: str | Path,
    *,
    layout: str,
    text_field: str = "text",
    fields: Mapping[str, Any] | None = None,
    existing: Existing = "refuse",
) -> Manifest:
    """Write a copy of a corpus with the plan's canaries in it.

    A canary becomes a document of its own before another one, with that one's line end. The copy
    is checked before it gets its name; the manifest is the caller's to write.

    Args:
        corpus_path: UTF-8 text, plain, .gz or .zst, or Parquet; read twice, in constant memory.
        plan: what to insert.
        out_path: another file; replaced if it is there.
        layout: "lines", "paragraphs", "jsonl" or "parquet".
        text_field: for "jsonl" and "parquet", the field that holds the text.
        fields: for these, constants for other fields of inserted records; the rest is copied
            from the record that follows.
        existing: about fills already in the corpus: "refuse" or "set_aside".

    Raises:
        CorpusError: the corpus cannot be used, or holds fills of a format already.
        PlanError: the corpus or a format is too small for the plan.
        FileError: the disk refused; no half-written file is left.
    """
    source, out = Path(corpus_path), Path(out_path)
    if out.exists() and source.exists() and out.samefile(source):
        raise CorpusError(f"{out} is the corpus itself; write to another file")
    shape = shape_named(layout, text_field=text_field, fields=fields)
    survey = survey_files([source], shape, plan.formats)
    canaries, set_aside = draw(plan, survey, existing)
    with atomic_write(out) as stream:
        with corpus_copy(survey, shape, canaries, plan.formats) as copy:
            copy.file(source, stream)
            digests = copy.finish(set_aside)
        record = record_of(source.name, shape, survey, digests)
    return Manifest(plan=plan, corpus=record, canaries=canaries, set_aside=set_aside)


def preview_insertion(
    corpus_path: str | Path,
    plan: Plan,
    *,
    layout: str,
    text_field: str = "text",
    fields: Mapping[str, Any] | None = None,
    existing: Existing = "refuse",
) -> Preview:
    """What `insert_into_file` would do with the same arguments; nothing is written.

    Raises:
        CorpusError: as for `insert_into_file`.
        PlanError: as for `insert_into_file`.
    """
    source = Path(corpus_path)
    shape = shape_named(layout, text_field=text_field, fields=fields)
    survey = survey_files([source], shape, plan.formats)
    canaries, set_aside = draw(plan, survey, existing)
    before, added = _sizes(source, survey, shape, merger_for(shape, canaries, survey))
    aside = {one.name: len(set_aside.get(one.name, ())) for one in plan.formats}
    return Preview(
        documents=survey.documents,
        insertions=sum(one.inserted for one in canaries),
        bytes_before=before,
        bytes_added=added,
        canaries=sum(one.role == "canary" for one in canaries),
        excluded=sum(one.role == "excluded" for one in canaries),
        controls=sum(one.role == "control" for one in canaries),
        references={
            one.name: one.size - aside[one.name] - plan.secrets_per_format for one in plan.formats
        },
        set_aside=aside,
    )


def _sizes(source: Path, survey: FileSurvey, shape: Shape, merger: Merger) -> tuple[int, int]:
    """(bytes of the content now, bytes that its canaries would add)."""
    if isinstance(shape, Rows):
        before = sum(len(text_line(*row)) for row in row_texts(source, shape.text_field))
        return before, sum(len(text_line(0, one.text)) for _, one in merger.take(sys.maxsize))
    before = after = 0
    for block, note in noted_blocks(source, survey.notes[0]):
        before += block.size
        after += sum(map(len, merger.merged(block, note)))
    return before, after - before
