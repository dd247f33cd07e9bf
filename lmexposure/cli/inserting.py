"""What `lmexposure insert` does with anything but one plain text file."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmexposure.audit import RunSettings
    from lmexposure.canaries import Manifest

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
    from lmexposure._locks import only_writer
    from lmexposure.audit.inserting import plan_of
    from lmexposure.canaries import insert_into_pipe, shape_named
    from lmexposure.canaries.corpora.rows import Rows
    from lmexposure.errors import CorpusError, ResultError
    from lmexposure.integrations import insert_files

    plan, record = plan_of(settings), out / "manifest.json"
    if list(corpus) != [STDIN]:
        manifest = insert_files(
            corpus,
            out,
            plan,
            layout=settings.layout,
            text_field=settings.text_field,
            existing=settings.existing,
            total=documents,
            verify=verify,
        )
        return out / "corpus", manifest
    with only_writer(out):
        if record.exists():
            raise ResultError(f"{record} is there already; choose another --out")
        shape = shape_named(settings.layout or "lines", text_field=settings.text_field)
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
