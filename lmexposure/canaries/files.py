"""A corpus file in, the same file with canaries out; every other byte as it was."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lmexposure._files import atomic_write, sha256_file
from lmexposure.canaries.format import CanaryFormat
from lmexposure.canaries.insertion import Existing, Survey, draw, schedule
from lmexposure.canaries.layouts import Layout, Records, layout_named, line_end, separator_of
from lmexposure.canaries.manifest import CorpusRecord, Manifest
from lmexposure.canaries.plan import Canary, Plan
from lmexposure.canaries.search import count_fills
from lmexposure.canaries.textfile import BOM, Block, text_blocks
from lmexposure.canaries.verify import verify_file
from lmexposure.errors import CorpusError

__all__ = ["Preview", "insert_into_file", "preview_insertion"]


@dataclass(frozen=True, kw_only=True)
class FileSurvey(Survey):
    """A survey of a file, and its first line end (a line feed where it has none)."""

    first_end: bytes


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What an insertion would do.

    Attributes:
        documents: in the corpus now.
        insertions: documents that would be added.
        bytes_before: size of the corpus now.
        bytes_added: how much it would grow.
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
        corpus_path: UTF-8 text; read twice, in constant memory.
        plan: what to insert.
        out_path: another file; replaced if it is there.
        layout: "lines", "paragraphs" or "jsonl".
        text_field: for "jsonl", the field that holds the text.
        fields: for "jsonl", constants for other fields of inserted records; the rest is copied
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
    shape = layout_named(layout, text_field=text_field, fields=fields)
    survey = _survey(source, shape, plan.formats)
    canaries, set_aside = draw(plan, survey, existing)
    manifests = []

    def check(unnamed: Path) -> None:
        record = _record(source, layout, shape, survey, sha256_file(unnamed))
        manifest = Manifest(plan=plan, corpus=record, canaries=canaries, set_aside=set_aside)
        verify_file(unnamed, manifest)
        manifests.append(manifest)

    with atomic_write(out, check=check) as stream:
        _copy(source, shape, canaries, survey, stream.write)
    return manifests[0]


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
    shape = layout_named(layout, text_field=text_field, fields=fields)
    survey = _survey(source, shape, plan.formats)
    canaries, set_aside = draw(plan, survey, existing)
    written = 0

    def count(data: bytes) -> None:
        nonlocal written
        written += len(data)

    _copy(source, shape, canaries, survey, count)
    aside = {one.name: len(set_aside.get(one.name, ())) for one in plan.formats}
    return Preview(
        documents=survey.documents,
        insertions=sum(one.inserted for one in canaries),
        bytes_before=source.stat().st_size,
        bytes_added=written - source.stat().st_size,
        canaries=sum(one.role == "canary" for one in canaries),
        excluded=sum(one.role == "excluded" for one in canaries),
        controls=sum(one.role == "control" for one in canaries),
        references={
            one.name: one.size - aside[one.name] - plan.secrets_per_format for one in plan.formats
        },
        set_aside=aside,
    )


def _survey(path: Path, layout: Layout, formats: Sequence[CanaryFormat]) -> FileSurvey:
    """The first pass: check, count, hash, look for fills."""
    digest = hashlib.sha256()
    documents, visible, after_blank = 0, False, True
    first_end = b""

    def texts() -> Iterator[tuple[int, str]]:
        nonlocal documents, visible, after_blank, first_end
        for block in text_blocks(path):
            _hash(digest.update, block)
            first_end = first_end or line_end(block.lines[0])
            for line in block.lines:
                documents += layout.begins(line, after_blank)
                after_blank = not line.strip()
                visible = visible or not after_blank
            yield from layout.texts(block)

    fills = count_fills(formats, texts(), whole_lines=layout.scans_lines)
    if not visible:
        raise CorpusError(f"the corpus {path} holds only blank lines; give a file with text in it")
    return FileSurvey(
        documents=documents,
        sha256=digest.hexdigest(),
        fills=fills,
        place="line",
        first_end=first_end or b"\n",
    )


def _hash(update: Callable[[bytes], None], block: Block) -> None:
    update(BOM * block.has_bom)
    update(b"".join(block.lines))


def _copy(
    path: Path,
    layout: Layout,
    canaries: Sequence[Canary],
    survey: FileSurvey,
    write: Callable[[bytes], object],
) -> None:
    """The second pass: every byte as it was, and the canaries in their places."""
    digest, places = hashlib.sha256(), schedule(canaries)[::-1]
    document, after_blank = -1, True
    for block in text_blocks(path):
        _hash(digest.update, block)
        pieces = [BOM * block.has_bom]
        for line in block.lines:
            document += layout.begins(line, after_blank)
            after_blank = not line.strip()
            while places and places[-1][0] == document:
                end = line_end(line) or survey.first_end
                pieces.append(layout.render(places.pop()[1].text, line, end))
            pieces.append(line)
        write(b"".join(pieces))
    if digest.hexdigest() != survey.sha256:
        raise CorpusError(f"the corpus {path} changed while it was read; try again")


def _record(
    source: Path, layout: str, shape: Layout, survey: Survey, inserted: str
) -> CorpusRecord:
    return CorpusRecord(
        name=source.name,
        layout=layout,
        text_field=shape.text_field if isinstance(shape, Records) else None,
        constant_fields=tuple(sorted(shape.fields)) if isinstance(shape, Records) else (),
        separator=separator_of(layout),
        documents=survey.documents,
        sha256=survey.sha256,
        sha256_inserted=inserted,
    )
