"""Verification of any corpus, and of a data set that was tokenised for a training."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from lmexposure.canaries import (
    CorpusCount,
    Found,
    Manifest,
    corpus_count,
    count_of,
    file_names,
    find_fills,
)
from lmexposure.errors import CorpusError, SettingsError

if TYPE_CHECKING:
    from lmexposure.studies import RowsRecord

_COLUMN = "input_ids"
_ROWS_AT_ONCE = 1000


@overload
def verify(
    corpus: Any,
    manifest: Manifest | str | Path,
    *,
    layout: str | None = None,
    text_field: str | None = None,
    tokenizer: Any = None,
    rows: Literal[False] = False,
) -> CorpusCount: ...


@overload
def verify(
    corpus: Any, manifest: Manifest | str | Path, *, tokenizer: Any, rows: Literal[True]
) -> "RowsRecord": ...


def verify(
    corpus: Any,
    manifest: Manifest | str | Path,
    *,
    layout: str | None = None,
    text_field: str | None = None,
    tokenizer: Any = None,
    rows: bool = False,
) -> "CorpusCount | RowsRecord":
    """Count what of the canaries is in a corpus, whatever was done to it since insertion.

    Args:
        corpus: the path of a file or a pattern, a list of `Path`s or of names of files that are
            there; a stream of text, open for reading bytes; the directory of a saved tokenised data
            set, Axolotl's `dataset_prepared_path` and LLaMA-Factory's `tokenized_path` among them,
            with its tokenizer; or documents in memory, as `insert` takes them.
        manifest: of the insertion, or its path.
        layout: of files and streams; None: by the suffix, else the manifest's.
        text_field: of records and columns; None: the manifest's, else "text".
        tokenizer: of a tokenised data set, or its name.
        rows: find out in which rows the training has the canaries: what is in front and behind,
            truncation, packing, loss. Then `corpus` is such a directory, or in memory a trainer, a
            loader, a data set or other rows, as `delivered_rows` takes them.

    Returns:
        the counts by class; `as_inserted` says whether everything is there. With `rows`, a record
        that `measure(..., rows=...)` takes.

    Raises:
        CorpusError: it cannot be read.
        ManifestError: the manifest cannot be read.
        ModelError: the tokenizer cannot be loaded.
        SettingsError: a tokenizer without such a directory, or the other way round; chats that no
            text field gives; rows without a tokenizer.
    """
    known = Manifest.of(manifest)
    if rows:
        return _rows(corpus, known, tokenizer, of_text=layout or text_field)
    if tokenizer is None:
        return corpus_count(corpus, known, layout=layout, text_field=text_field)
    names = file_names(corpus)
    if not names:
        raise SettingsError("a tokenizer goes with the directory of a saved tokenised data set")
    directory = Path(names[0])
    if len(names) > 1 or not directory.is_dir():
        raise SettingsError(
            f"{directory}: a tokenizer goes with the directory of a saved tokenised data set, and "
            "such a directory with its tokenizer; give files, or both"
        )
    decoder = load_tokenizer(tokenizer)
    return count_tokenised(
        saved_tokens(directory),
        known,
        decode=lambda ids: str(
            decoder.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        ),
    )


def _rows(corpus: Any, manifest: Manifest, tokenizer: Any, *, of_text: str | None) -> "RowsRecord":
    from lmexposure.integrations.row_contexts import delivered_rows

    if tokenizer is None or of_text is not None:
        raise SettingsError(
            "rows=True reads rows of tokens, which have no layout and no text field; give the "
            "tokenizer that they were made with, and nothing else"
        )
    names = file_names(corpus)
    if len(names) > 1 or (names and not Path(names[0]).is_dir()):
        raise SettingsError(
            f"{names[0]} is no directory of a saved tokenised data set; give one of save_to_disk, "
            "or rows in memory"
        )
    given = saved_rows(names[0]) if names else corpus
    return delivered_rows(given, manifest, load_tokenizer(tokenizer))


def saved_tokens(path: str | Path) -> Iterator[Sequence[int] | None]:
    """The token ids of a saved `datasets.Dataset`, or of the train split of a `DatasetDict`."""
    rows = saved_rows(path).select_columns([_COLUMN])
    return (row for rows in rows.iter(batch_size=_ROWS_AT_ONCE) for row in rows[_COLUMN])


def saved_rows(path: str | Path) -> Any:
    """A saved data set whose rows are tokens; of several splits the one named "train"."""
    from datasets import DatasetDict, load_from_disk

    place = prepared_directory(path)
    try:
        dataset: Any = load_from_disk(str(place))
    except Exception as failure:  # damaged and empty ones raise whatever reading them ran into
        reason = str(failure).strip().split("\n")[0] or type(failure).__name__
        raise CorpusError(
            f"cannot read the data set {place}: {reason}; give a directory of save_to_disk with "
            "rows, Axolotl's dataset_prepared_path, or LLaMA-Factory's tokenized_path"
        ) from failure
    if isinstance(dataset, DatasetDict):
        if "train" not in dataset:
            raise CorpusError(f"no 'train' split; {place} has {', '.join(dataset) or 'none'}")
        dataset = dataset["train"]
    return _with_tokens(dataset, place)


def prepared_directory(path: str | Path) -> Path:
    """The saved data set that a directory is, or the only one in it, a level down."""
    path = Path(path)
    if _is_saved(path) or not path.is_dir():
        return path
    inside = sorted((p for p in path.iterdir() if _is_saved(p)), key=lambda p: p.stat().st_mtime)
    if len(inside) > 1:
        names = ", ".join(p.name for p in reversed(inside))
        raise CorpusError(
            f"{path} holds {len(inside)} prepared data sets, the newest first: {names}; give the "
            "directory of the one that the training read, which its log names"
        )
    return inside[0] if inside else path


def _is_saved(path: Path) -> bool:
    return any((path / name).is_file() for name in ("state.json", "dataset_dict.json"))


def _with_tokens(dataset: Any, path: Path) -> Any:
    if _COLUMN not in dataset.column_names:
        raise CorpusError(
            f"no column {_COLUMN!r}; {path} has {', '.join(dataset.column_names)}: tokenise it "
            "first"
        )
    from pyarrow import types

    kind = dataset.features.arrow_schema.field(_COLUMN).type
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not (is_list and types.is_integer(kind.value_type)):
        raise CorpusError(
            f"column {_COLUMN!r} of {path} is of type {kind}, and tokens are lists of whole "
            "numbers; tokenise it first"
        )
    return dataset.with_format(None)


def count_tokenised(
    pieces: Iterable[Sequence[int] | None],
    manifest: Manifest,
    *,
    decode: Callable[[Sequence[int]], str],
) -> CorpusCount:
    """Count the fills in pieces of token ids, in the order of the data set."""
    found = {name: Found() for name in manifest.hidden_formats}
    cut: Counter[str] = Counter()
    ids = {(entry.format, entry.index): entry.id for entry in manifest.entries}
    # No token of a byte-level vocabulary is less than a byte.
    reach = max(len(entry.text.encode()) for entry in manifest.entries) + 1
    before: Sequence[int] = ()
    for number, piece in enumerate(pieces, 1):
        if piece is None or min(piece, default=0) < 0:
            what = "no list of tokens" if piece is None else f"the token {min(piece)}"
            raise CorpusError(
                f"row {number} holds {what}, and a row is a list of numbers from 0; leave it out"
            )
        text, tail, head = decode(piece), decode(before), decode(piece[:reach])
        for form in manifest.plan.hidden_formats:
            for fill in find_fills(form, text):
                found[form.name].add(number, fill.index)
            for fill in find_fills(form, tail + head):
                if fill.start < len(tail) < fill.end and (form.name, fill.index) in ids:
                    cut[ids[form.name, fill.index]] += 1
        before = piece[-reach:]
    return count_of(manifest, found, cut=cut, where="row")


def load_tokenizer(name: Any) -> Any:
    """A tokenizer of transformers, by its directory or hub name; anything else as it is."""
    if not isinstance(name, str | Path):
        return name
    from lmexposure.models import tokenizer_named  # brings torch

    return tokenizer_named(name)
