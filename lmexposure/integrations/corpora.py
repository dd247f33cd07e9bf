"""A corpus on the disk, or in memory: count what is left of the canaries, take them out again."""

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, overload

from lmexposure.canaries.corpora.copies import listed_files
from lmexposure.canaries.corpora.counting import (
    CorpusCount,
    count_files,
    count_fills_in,
    count_of,
)
from lmexposure.canaries.corpora.files import LAYOUTS, corpus_files, layout_for
from lmexposure.canaries.corpora.in_memory import are_paths
from lmexposure.canaries.corpora.pipe import StreamSource, is_stream, stream_layout
from lmexposure.canaries.corpora.removal import (
    Removal,
    remove_from_files,
    remove_from_stream,
)
from lmexposure.canaries.manifest import Manifest
from lmexposure.errors import CorpusError, ModelError, SettingsError
from lmexposure.integrations.documents import count_documents, restored_documents

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_T = TypeVar("_T")
_CHATS = (
    "the canaries of this manifest stand in chats, and records are read by one text field; name "
    "the text field that holds whole chats as text, or give the tokenised data set with its "
    "tokenizer"
)


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
        corpus: the path of a file or a pattern, a list of `Path`s or of names of files that are
            there; a stream of text, open for reading bytes; the directory of a saved tokenised data
            set, with its tokenizer; or documents in memory, as `insert` takes them.
        manifest: of the insertion, or its path.
        layout: of files and streams; None: by the suffix, else the manifest's.
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
    if names := _names(corpus):
        return _count_files([Path(name) for name in names], known, layout, text_field, tokenizer)
    if tokenizer is not None:
        raise SettingsError("a tokenizer goes with the directory of a saved tokenised data set")
    if is_stream(corpus):
        return _count_stream(corpus, known, layout, text_field)
    return count_documents(corpus, known, text_field=text_field)


@overload
def remove(corpus: Any, manifest: Manifest | str | Path, out: str | Path) -> Removal: ...
@overload
def remove(corpus: _T, manifest: Manifest | str | Path, out: None = None) -> _T: ...
def remove(corpus: Any, manifest: Manifest | str | Path, out: str | Path | None = None) -> Any:
    """Give a corpus as it was before insertion, and check that it is.

    A manifest of a stream, of Ray or of a step has no hash to check against: then nothing but the
    canaries is looked at, and the log warns of it, or `Removal.checked` is False.

    Args:
        corpus: what insertion wrote: a file, several, or patterns; a stream of text, open for
            reading bytes; or documents in memory, as `insert` gave them.
        manifest: of the insertion, or its path.
        out: for one file a new file or a directory that is there; for several a directory, new or
            empty; None: the documents are in memory.

    Returns:
        documents of the same kind; or of files those that were written, how many documents were
        taken out, and whether the result has the hash of the corpus before insertion.

    Raises:
        CorpusError: the corpus changed since, is not this manifest's, or lacks a file; or a file is
            there already.
        ManifestError: the manifest cannot be read.
        FileError: the disk refused; nothing half-written is left.
    """
    known = Manifest.of(manifest)
    if out is None:
        if _names(corpus) or is_stream(corpus):
            raise CorpusError("the corpus is in files; give out, the name of the file to write")
        return restored_documents(corpus, known)
    if is_stream(corpus):
        return remove_from_stream(corpus, known, out)
    if not isinstance(corpus, str | Path) and not _are_there(corpus):
        raise CorpusError(  # shows no name: texts hold secrets
            "documents in memory need no out; leave it out, or give names of files that are there"
        )
    return remove_from_files(listed_files(corpus), known, out)


def _names(corpus: Any) -> Sequence[str | Path]:
    """A path or pattern, `Path`s, and names of files that are all there; of texts none."""
    if isinstance(corpus, str | Path):
        return [corpus]
    if not isinstance(corpus, list | tuple):
        return []
    paths = all(isinstance(name, Path) for name in corpus) or are_paths(corpus)
    return corpus if paths else []


def _are_there(corpus: Any) -> bool:
    """Whether it lists paths, which a message may show, and what names files that are there."""
    return isinstance(corpus, list | tuple) and all(
        isinstance(name, Path)
        or are_paths([name])
        or (isinstance(name, str) and bool(glob.glob(name, recursive=True)))
        for name in corpus
    )


def _count_files(
    files: Sequence[Path],
    manifest: Manifest,
    layout: str | None,
    text_field: str | None,
    tokenizer: Any,
) -> CorpusCount:
    is_directory = len(files) == 1 and files[0].is_dir()
    if is_directory and tokenizer is None:
        raise SettingsError(
            f"{files[0]}: a tokenizer goes with the directory of a saved tokenised data set; give "
            "it; else load the data set and give that, or its *.arrow files"
        )
    if tokenizer is not None and not is_directory:
        raise SettingsError(
            f"{files[0]}: a tokenizer goes with the directory of a saved tokenised data set, and "
            "such a directory with its tokenizer; give files, or both"
        )
    if tokenizer is not None:
        return _count_tokens(files[0], manifest, tokenizer)
    field, paths = text_field or manifest.corpus.text_field or "text", corpus_files(files)
    known = layout_for(paths, layout, field)
    if manifest.layout == "chat" and text_field is None and known.text_field is not None:
        raise SettingsError(_CHATS)
    if layout is None and (known.name, manifest.layout) == ("lines", "paragraphs"):
        known = layout_for(paths, "paragraphs", field)
    return count_files(paths, manifest, layout=known)


def _count_stream(
    stream: IO[bytes], manifest: Manifest, layout: str | None, text_field: str | None
) -> CorpusCount:
    """The same for a stream, which no suffix tells of: its layout is the manifest's."""
    name = layout or (manifest.layout if manifest.layout in LAYOUTS else "lines")
    known = stream_layout(name, text_field or manifest.corpus.text_field or "text")
    if manifest.layout == "chat" and text_field is None and known.text_field is not None:
        raise SettingsError(_CHATS)
    found = count_fills_in([StreamSource(stream, known)], manifest)
    return count_of(manifest, found, where="line or row")


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
