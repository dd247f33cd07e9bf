"""A corpus of one or many files in, a directory of the same files with canaries out."""

from collections.abc import Sequence
from pathlib import Path

from lmexposure._files import atomic_directory, mode_like, new_file
from lmexposure.canaries.corpora.copying import Copied, CorpusCopy, corpus_copy
from lmexposure.canaries.corpora.shapes import Shape, record_of
from lmexposure.canaries.corpora.shards import Sidecar, corpus_files
from lmexposure.canaries.corpora.surveying import survey_files
from lmexposure.canaries.insertion import Existing, draw
from lmexposure.canaries.manifest import Manifest
from lmexposure.canaries.plan import Plan
from lmexposure.errors import CorpusError


def insert_into_files(
    sources: Sequence[str | Path],
    plan: Plan,
    out: str | Path,
    *,
    shape: Shape,
    existing: Existing = "refuse",
    documents: int | None = None,
    verify: bool = True,
) -> Manifest:
    """Write a copy of each file with its part of the plan's canaries, and a sidecar beside it.

    Documents are numbered over all files, sorted by name. Cut in other places between documents,
    the same corpus gets the same canaries before the same documents, and the same manifest but for
    the corpus' name.

    Args:
        sources: files or patterns; UTF-8 text, plain, .gz or .zst, or Parquet. All are read twice,
            in constant memory.
        plan: what to insert.
        out: a directory, new or empty; it appears whole or not at all.
        shape: what a document is; see `shape_named`.
        existing: about fills already in the corpus: "refuse" or "set_aside".
        documents: how many there must be; None: as many as there are.
        verify: check that it is text, look for fills before, hash, and check what was written.
            Without, the manifest says so, and fills that stand in the corpus already go unseen.

    Raises:
        CorpusError: the corpus cannot be used, holds fills already, or has another number of
            documents.
        PlanError: the corpus or a format is too small for the plan.
        FileError: the disk refused; nothing half-written is left.
    """
    paths, out = corpus_files(sources), Path(out)
    _check_places(paths, out)
    formats = plan.formats if verify else ()
    survey = survey_files(paths, shape, formats)
    if documents not in (None, survey.documents):
        raise CorpusError(
            f"documents={documents}, but the corpus has {survey.documents} in {len(paths)} files; "
            "is a file missing? Give the right number, or leave it out"
        )
    canaries, set_aside = draw(plan, survey, existing)
    mode = mode_like(*paths)
    with atomic_directory(out) as unnamed:
        with corpus_copy(survey, shape, canaries, formats) as copy:
            copies = [_copy(copy, path, unnamed / path.name, mode) for path in paths]
            digests = copy.finish(set_aside)
        name = paths[0].name if len(paths) == 1 else ""
        record = record_of(name, shape, survey, digests, verified=verify)
        manifest = Manifest(plan=plan, corpus=record, entries=canaries, set_aside=set_aside)
        _write_sidecars(unnamed, copies, manifest)
    return manifest


def _check_places(paths: Sequence[Path], out: Path) -> None:
    """Nothing is written over anything, and no two files get one name."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CorpusError(f"{out} holds something already; choose a new or an empty directory")
    names: dict[str, Path] = {}
    for path in paths:
        if path.name in names:
            raise CorpusError(
                f"{names[path.name]} and {path} would get one name in {out}; rename one of them"
            )
        names[path.name] = path


def _copy(copy: CorpusCopy, source: Path, target: Path, mode: int) -> Copied:
    with new_file(target, mode) as stream:
        return copy.file(source, stream)


def _write_sidecars(out: Path, copies: Sequence[Copied], manifest: Manifest) -> None:
    for shard, copied in enumerate(copies, 1):
        Sidecar(
            manifest_sha256=manifest.sha256, shard=shard, shards=len(copies), copied=copied
        ).write(out / copied.name)
