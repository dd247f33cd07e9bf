"""What an insertion into files would do, before anything is written."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lmexposure.canaries.corpora.merging import Merger
from lmexposure.canaries.corpora.rows import Rows, row_texts
from lmexposure.canaries.corpora.shapes import Shape, merger_for
from lmexposure.canaries.corpora.shards import corpus_files
from lmexposure.canaries.corpora.surveying import FileSurvey, named_errors, survey_files, unchanged
from lmexposure.canaries.corpora.textfile import noted_blocks
from lmexposure.canaries.insertion import Existing, draw, text_line
from lmexposure.canaries.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What an insertion would do.

    Attributes:
        documents: in the corpus now.
        insertions: documents that would be added.
        bytes_before: size of the corpus' content now; of Parquet, of its texts.
        bytes_added: how much that would grow.
        canaries: different canaries, over all formats.
        held_out: candidates that their coins leave out, over all formats.
        controls: over all formats.
        references: per format, how many secrets are left for references.
        set_aside: per format, how many secrets stand in the corpus already.
        expected: insertions, bytes added, canaries and held_out are what coins not yet tossed give
            on average.
    """

    documents: int
    insertions: int
    bytes_before: int
    bytes_added: int
    canaries: int
    held_out: int
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


def preview_insertion(
    sources: Sequence[str | Path],
    plan: Plan,
    *,
    shape: Shape,
    existing: Existing = "refuse",
) -> Preview:
    """What `insert_into_files` would do with the same arguments; nothing is written.

    Raises:
        CorpusError: as for `insert_into_files`.
        PlanError: as for `insert_into_files`.
    """
    paths = corpus_files(sources)
    survey = survey_files(paths, shape, plan.formats)
    canaries, set_aside = draw(plan, survey, existing)
    before, added = _sizes(paths, survey, shape, merger_for(shape, canaries, survey))
    aside = {one.name: len(set_aside.get(one.name, ())) for one in plan.formats}
    return Preview(
        documents=survey.documents,
        insertions=sum(one.inserted for one in canaries),
        bytes_before=before,
        bytes_added=added,
        canaries=sum(one.role == "canary" for one in canaries),
        held_out=sum(one.role == "held_out" for one in canaries),
        controls=sum(one.role == "control" for one in canaries),
        references={
            one.name: one.size - aside[one.name] - plan.secrets_per_format for one in plan.formats
        },
        set_aside=aside,
    )


def _sizes(
    paths: Sequence[Path], survey: FileSurvey, shape: Shape, merger: Merger
) -> tuple[int, int]:
    """(bytes of the contents now, bytes that their canaries would add)."""
    before = after = 0
    for path, notes, state in zip(paths, survey.notes, survey.states, strict=True):
        with named_errors(path), unchanged(path, state):
            if isinstance(shape, Rows):
                before += sum(len(text_line(*row)) for row in row_texts(path, shape.text_field))
            for block, note in noted_blocks(path, notes) if notes else ():
                before += block.size
                after += sum(map(len, merger.merged(block, note)))
    if isinstance(shape, Rows):
        return before, sum(len(text_line(0, one.text)) for _, one in merger.take(sys.maxsize))
    return before, after - before
