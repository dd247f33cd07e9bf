"""What `lmexposure insert` does with anything but one plain text file."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.audit import RunSettings
    from lmexposure.canaries import Manifest, Shape

STDIN = "-"


def is_one_text(corpus: Sequence[str]) -> bool:
    """Whether this is one text file that is not packed; a missing one is, too."""
    from lmexposure.canaries import guess_layout

    name = corpus[0].lower()
    if len(corpus) > 1 or name == STDIN or name.endswith((".gz", ".zst")):
        return False
    if guess_layout(name) == "parquet":
        return False
    return Path(corpus[0]).exists() or not set("*?[") & set(name)


def shape_of(corpus: Sequence[str], layout: str | None, text_field: str) -> "Shape":
    """What a document is: as said, else by the suffix of the files.

    Raises:
        CorpusError: no such files, or files of different layouts.
    """
    from lmexposure.canaries import corpus_files, guess_layout, shape_named
    from lmexposure.errors import CorpusError

    guessed = {"lines"}
    if list(corpus) != [STDIN]:
        guessed = {guess_layout(path) for path in corpus_files(corpus)}
    if layout is None and len(guessed) > 1:
        raise CorpusError(
            f"the files are of different layouts: {', '.join(sorted(guessed))}; give one kind"
        )
    return shape_named(layout or guessed.pop(), text_field=text_field)


def insert_anything(
    corpus: Sequence[str],
    out: Path,
    settings: "RunSettings",
    *,
    documents: int | None,
    verify: bool,
) -> tuple[Path | str, "Manifest"]:
    """Insert into many files, packed ones, Parquet, or from standard input to standard output.

    Returns:
        where the corpus is, and the manifest, which was written to `out`.

    Raises:
        CorpusError, PlanError, FileError: as the insertions do.
        ResultError: `out` holds a manifest already.
    """
    from lmexposure.audit.inserting import plan_of
    from lmexposure.canaries import insert_into_files, insert_into_pipe
    from lmexposure.canaries.corpora.rows import Rows
    from lmexposure.errors import CorpusError, ResultError

    record = out / "manifest.json"
    if record.exists():
        raise ResultError(f"{record} is there already; choose another --out")
    plan, shape = plan_of(settings), shape_of(corpus, settings.layout, settings.text_field)
    if list(corpus) == [STDIN]:
        if isinstance(shape, Rows) or sys.stdin is None:
            raise CorpusError("standard input must be open, and text; give Parquet as a file")
        manifest = insert_into_pipe(
            sys.stdin.buffer,
            sys.stdout.buffer,
            plan,
            shape=shape,
            existing=settings.existing,
            documents=documents,
            verify=verify,
        )
        manifest.write(record)
        return "standard output", manifest
    manifest = insert_into_files(
        corpus,
        plan,
        out / "corpus",
        shape=shape,
        existing=settings.existing,
        documents=documents,
        verify=verify,
    )
    manifest.write(record)
    return out / "corpus", manifest
