"""A corpus on the disk, or in memory: insert into files, verify what is left, take it out again."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmexposure._files import disk_errors
from lmexposure._locks import only_writer
from lmexposure._validate import of_type
from lmexposure.canaries import (
    CorpusCount,
    Manifest,
    Plan,
    Removal,
    Shape,
    corpus_files,
    count_files,
    count_of,
    guess_layout,
    insert_into_files,
    remove_from_files,
    shape_named,
)
from lmexposure.canaries.format import count_fills
from lmexposure.canaries.insertion import Existing
from lmexposure.errors import CorpusError, ModelError, ResultError, SettingsError
from lmexposure.integrations.documents import document_texts, plan_from

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Files = str | Path | Sequence[str | Path]


def insert_files(
    sources: Files,
    out: str | Path,
    plan: Plan | None = None,
    *,
    layout: str | None = None,
    text_field: str = "text",
    existing: Existing = "refuse",
    total: int | None = None,
    verify: bool = True,
    **plan_fields: Any,
) -> Manifest:
    """Write copies of files with canaries in them, and the manifest.

    Args:
        sources: a file, several, or patterns such as "data/*.jsonl.gz": text, JSONL or Parquet, and
            packed by gzip or zstd.
        out: a directory; gets corpus/NAME of each file, NAME.canaries.json next to each, which says
            which canaries it holds, and manifest.json (mode 0600).
        plan: what to insert; or give its fields: `formats=["pin"], repetitions=(1, 16)`.
        layout: what a document is: "lines", "paragraphs", "jsonl" or "parquet"; None: by the
            suffix.
        text_field: of JSONL and Parquet, the field that holds the text.
        existing: fills of a format that the corpus holds already: "refuse" or "set_aside".
        total: how many documents there must be; None: as many as there are.
        verify: look for such fills, hash, and check what was written.
        plan_fields: of `Plan`, in place of `plan`.

    Returns:
        the manifest that was written; it holds the secrets.

    Raises:
        CorpusError, FormatError, PlanError: the corpus or the plan cannot be used.
        ResultError: `out` holds a manifest already, or another process is at work there.
        FileError: the disk refused.
    """
    chosen, out, files = plan_from(plan, plan_fields), Path(out), _files(sources)
    record = out / "manifest.json"
    with only_writer(out):
        if record.exists():
            raise ResultError(f"{record} is there already; choose another directory")
        manifest = insert_into_files(
            files,
            chosen,
            out / "corpus",
            shape=shape_of(files, layout, text_field),
            existing=existing,
            documents=total,
            verify=verify,
        )
        manifest.write(record)
    return manifest


def verify(
    corpus: Any,
    manifest: Manifest | str | Path,
    *,
    layout: str | None = None,
    text_field: str | None = None,
    tokenizer: "str | Path | PreTrainedTokenizerBase | None" = None,
) -> CorpusCount:
    """Count what of the canaries is in a corpus, whatever was done to it since insertion.

    Args:
        corpus: the path of a file or a pattern, a list of `Path`s; the directory of a saved
            tokenised data set, with its tokenizer; or documents in memory, as `insert` takes them.
        manifest: of the insertion, or its path.
        layout: of files; None: by the suffix, else the manifest's.
        text_field: of records and columns; None: the manifest's, else "text".
        tokenizer: of a tokenised data set, or its name.

    Returns:
        the counts by class; `as_inserted` says whether everything is there.

    Raises:
        CorpusError: it cannot be read.
        ManifestError: the manifest cannot be read.
        ModelError: the tokenizer cannot be loaded.
        SettingsError: a tokenizer without such a directory, or the other way round; or chats that
            no text field gives.
    """
    known = Manifest.of(manifest)
    files = [Path(corpus)] if isinstance(corpus, str | Path) else corpus
    on_disk = isinstance(files, list | tuple) and all(isinstance(one, Path) for one in files)
    field = text_field or known.corpus.text_field or "text"
    if on_disk and files:
        return _count_files(files, known, layout, text_field, tokenizer)
    if tokenizer is not None:
        raise SettingsError("a tokenizer goes with the directory of a saved tokenised data set")
    chat = known.layout == "chat" and text_field is None
    texts = document_texts(corpus, text_field=field, chat=chat)
    found = count_fills(known.plan.formats, enumerate(texts, 1), whole_lines=False)
    return count_of(known, found, where="record")


def remove(sources: Files, manifest: Manifest | str | Path, out: str | Path) -> Removal:
    """Write files as they were before insertion, and check that they are.

    Args:
        sources: what insertion wrote: a file, several, or patterns.
        manifest: of the insertion, or its path.
        out: for one file a new file or a directory that is there; for several a directory, new or
            empty.

    Returns:
        the files that were written, how many documents were taken out, and whether the result has
        the hash of the corpus before insertion.

    Raises:
        CorpusError: the corpus changed since, is not this manifest's, or lacks a file; or a file is
            there already.
        ManifestError: the manifest cannot be read.
        FileError: the disk refused; nothing half-written is left.
    """
    known, out = Manifest.of(manifest), Path(out)
    paths = corpus_files(_files(sources))
    target = out / paths[0].name if out.is_dir() else out
    if len(paths) == 1 and target.exists():
        raise CorpusError(f"{target} is there already; choose another name")
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    return remove_from_files(paths, known, out)


def shape_of(sources: Sequence[str | Path], layout: str | None, text_field: str) -> Shape:
    """What a document is: as said, else by the suffix of the files.

    Raises:
        CorpusError: no such files, or files of different layouts.
    """
    guessed = {guess_layout(path) for path in corpus_files(sources)}
    if layout is None and len(guessed) > 1:
        raise CorpusError(
            f"the files are of different layouts: {', '.join(sorted(guessed))}; give one kind"
        )
    return shape_named(layout or guessed.pop(), text_field=text_field)


def _files(sources: Files) -> list[str | Path]:
    if isinstance(sources, str | Path):
        return [sources]
    of_type("sources", sources, Sequence, "a path, or a list of paths", error=CorpusError)
    wrong = [one for one in sources if not isinstance(one, str | Path)]
    if wrong or not sources:
        what = f"holds one of type {type(wrong[0]).__name__}" if wrong else "is empty"
        raise CorpusError(f"sources {what}; give paths of files, or patterns")
    return list(sources)


def _count_files(
    files: Sequence[Path],
    manifest: Manifest,
    layout: str | None,
    text_field: str | None,
    tokenizer: Any,
) -> CorpusCount:
    if (tokenizer is not None) != (len(files) == 1 and files[0].is_dir()):
        raise SettingsError(
            f"{files[0]}: a tokenizer goes with the directory of a saved tokenised data set, and "
            "such a directory with its tokenizer; give files, or both"
        )
    if tokenizer is not None:
        return _count_tokens(files[0], manifest, tokenizer)
    field = text_field or manifest.corpus.text_field or "text"
    shape = shape_of(files, layout, field)
    if manifest.layout == "chat" and text_field is None and shape.name in ("jsonl", "parquet"):
        raise SettingsError(
            "the canaries of this manifest stand in chats, and records are read by one text field; "
            "name the text field that holds whole chats as text, or give the tokenised data set "
            "with its tokenizer"
        )
    if layout is None and (shape.name, manifest.layout) == ("lines", "paragraphs"):
        shape = shape_of(files, "paragraphs", field)
    return count_files(files, manifest, shape=shape)


def _count_tokens(directory: Path, manifest: Manifest, tokenizer: Any) -> CorpusCount:
    from lmexposure.canaries.corpora.tokenised import count_tokenised, saved_tokens

    decoder = _loaded(tokenizer) if isinstance(tokenizer, str | Path) else tokenizer
    return count_tokenised(
        saved_tokens(directory),
        manifest,
        decode=lambda ids: str(
            decoder.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        ),
    )


def _loaded(name: str | Path) -> Any:
    from transformers import AutoTokenizer

    import lmexposure.models  # noqa: F401  (registers our own tokenizers)

    try:
        return AutoTokenizer.from_pretrained(name)
    except Exception as failure:  # whatever damaged files ran into
        reason = str(failure).strip().split("\n")[0] or type(failure).__name__
        raise ModelError(
            f"cannot load a tokenizer from {str(name)!r}: {reason}; give the directory or hub name "
            "that the data set was tokenised with"
        ) from failure
