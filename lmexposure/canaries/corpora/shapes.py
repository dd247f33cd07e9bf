"""What a document is in any file, text or Parquet, and what a manifest says of it."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lmexposure._validate import one_of
from lmexposure.canaries.corpora.content import content_sha256, unpacked_name
from lmexposure.canaries.corpora.layouts import (
    LAYOUTS,
    Layout,
    Lines,
    Records,
    layout_named,
    separator_of,
)
from lmexposure.canaries.corpora.merging import Merger
from lmexposure.canaries.corpora.rows import Rows, row_texts
from lmexposure.canaries.corpora.surveying import FileSurvey
from lmexposure.canaries.corpora.textfile import text_blocks
from lmexposure.canaries.format import Format
from lmexposure.canaries.insertion import text_line
from lmexposure.canaries.manifest import CorpusRecord
from lmexposure.canaries.plan import Canary
from lmexposure.canaries.search import sure_words
from lmexposure.errors import CorpusError

SHAPES = (*LAYOUTS, Rows.name)
Shape = Layout | Rows


def shape_named(
    name: str, *, text_field: str = "text", fields: Mapping[str, Any] | None = None
) -> Shape:
    """The layout with this name.

    Args:
        name: one of `SHAPES`.
        text_field: for "jsonl" and "parquet", the field that holds the text.
        fields: for these, constants for other fields of inserted documents.

    Raises:
        CorpusError: an unknown name; or constants as `layout_named` refuses them.
    """
    one_of("layout", name, SHAPES, error=CorpusError)
    if name != Rows.name:
        return layout_named(name, text_field=text_field, fields=fields)
    constants = dict(fields or {})
    if text_field in constants:
        raise CorpusError(
            f"fields must leave out the text column {text_field!r}: the canary goes there"
        )
    return Rows(text_field=text_field, fields=constants)


def guess_layout(path: str | Path) -> str:
    """By the suffix under .gz or .zst: "jsonl" for .jsonl and .ndjson, "parquet", else "lines"."""
    name = unpacked_name(path).lower()
    if name.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    return Rows.name if name.endswith(".parquet") else "lines"


def read_documents(path: str | Path, *, layout: str, text_field: str = "text") -> Iterator[str]:
    r"""The documents of a file, one after another, in constant memory.

    A document's last line end is not part of it; line ends within a paragraph stand as they are.

    Raises:
        CorpusError: the file or a record cannot be used; see `text_blocks`, `Records` and `Rows`.
    """
    shape = shape_named(layout, text_field=text_field)
    if isinstance(shape, Rows):
        return (text for _, text in row_texts(Path(path), text_field))
    return shape.documents(text_blocks(Path(path)))


def corpus_sha256(path: str | Path, shape: Shape) -> str:
    """The hash of a corpus file as a manifest has it: of its content, or of a Parquet file's texts.

    Raises:
        CorpusError: the file cannot be read.
    """
    if not isinstance(shape, Rows):
        return content_sha256(path)
    digest = hashlib.sha256()
    for number, text in row_texts(Path(path), shape.text_field):
        digest.update(text_line(number, text))
    return digest.hexdigest()


def shape_texts(path: Path, shape: Shape, formats: Sequence[Format]) -> Iterator[tuple[int, str]]:
    """What may hold fills of these formats in a file: (number of the row or first line, text)."""
    words = sure_words(formats)
    if isinstance(shape, Rows):
        yield from row_texts(path, shape.text_field)
        return
    for block in text_blocks(path):
        yield from shape.searched(block, words)


def scans_lines(shape: Shape) -> bool:
    """Whether such a text is many lines, so that a fill's place in it is its line."""
    return not isinstance(shape, Rows) and shape.scans_lines


def merger_for(shape: Shape, canaries: Iterable[Canary], survey: FileSurvey) -> Merger:
    """What puts the canaries in, file by file."""
    # Rows come as tables and use only the count of documents.
    layout = Lines() if isinstance(shape, Rows) else shape
    return Merger(layout, canaries, first_end=survey.first_end)


def record_of(
    name: str, shape: Shape, survey: FileSurvey, digests: tuple[str, str], *, verified: bool = True
) -> CorpusRecord:
    """What the manifest says of the corpus."""
    return CorpusRecord(
        name=name,
        layout=shape.name,
        text_field=shape.text_field if isinstance(shape, Records | Rows) else None,
        constant_fields=tuple(sorted(shape.fields)) if isinstance(shape, Records | Rows) else (),
        separator=separator_of(shape.name),
        documents=survey.documents,
        sha256=digests[0],
        sha256_inserted=digests[1],
        verified=verified,
    )
