"""A corpus file in, the same file with canaries out; every other byte as it was."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmexposure._files import atomic_write, mode_like
from lmexposure.canaries.corpora.content import packing
from lmexposure.canaries.corpora.copying import corpus_copy
from lmexposure.canaries.corpora.shapes import record_of, shape_named
from lmexposure.canaries.corpora.surveying import survey_files
from lmexposure.canaries.insertion import Existing, draw
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Plan
from lmexposure.errors import CorpusError


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
    has the source's permission bits (see `mode_like`), and is checked before it gets its name; the
    manifest is the caller's to write.

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
    if packing(out) != packing(source):
        as_is = packing(source) or "neither .gz nor .zst"
        raise CorpusError(
            f"{out.name} would be packed otherwise than {source.name}; choose a name that ends in "
            f"{as_is}"
        )
    shape = shape_named(layout, text_field=text_field, fields=fields)
    survey = survey_files([source], shape, plan.formats)
    canaries, set_aside = draw(plan, survey, existing)
    with atomic_write(out, mode=mode_like(source)) as stream:
        with corpus_copy(survey, shape, canaries, plan.formats) as copy:
            copy.file(source, stream)
            digests = copy.finish(set_aside)
        record = record_of(source.name, shape, survey, digests)
    return Manifest(plan=plan, corpus=record, entries=canaries, set_aside=set_aside)
