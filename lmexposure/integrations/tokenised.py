"""Verification of any corpus, and of a data set that was tokenised for a training.

Tokens at the edges of a text depend on what is next to it, the pieces of text that tokens mean do
not. So pieces are joined, and canaries are searched as strings of pieces.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from lmexposure.canaries import (
    CorpusCount,
    Found,
    Manifest,
    corpus_count,
    count_of,
    file_names,
    find_fills,
)
from lmexposure.errors import CorpusError, ModelError, SettingsError
from lmexposure.models import encode_in_context, is_tokenizer

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


_LEAST = 4  # pieces' characters of a canary, at the least, that begin or end a row
_SPACES = "\u0120\u2581"  # how byte-level and SentencePiece vocabularies write a space
_LAST = "\U0010ffff"


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A canary, or a part of one, in a row."""

    id: str  # of the canary; of the format, where too little is there to know which canary
    # "whole"; "head", the row ends within it; "tail", the row begins within it
    kind: Literal["whole", "head", "tail"]
    begin: int  # number of the first token that holds some of it
    secret: int  # number of the first token behind what all fills begin with
    end: int  # number of the token behind it


@dataclass(frozen=True, kw_only=True)
class _Group:
    """The canaries of one format, as strings of pieces."""

    name: str
    whole: Mapping[str, str]  # pieces -> id
    prefix: str  # what all fills begin with
    suffix: int  # how many characters all fills end with

    @cached_property
    def lengths(self) -> Sequence[int]:
        """How long canaries are, the longest first."""
        return sorted({len(canary) for canary in self.whole}, reverse=True)

    @cached_property
    def forwards(self) -> Sequence[str]:
        """The canaries, sorted."""
        return sorted(self.whole)

    @cached_property
    def backwards(self) -> Sequence[str]:
        """The canaries from their ends, sorted."""
        return sorted(canary[::-1] for canary in self.whole)

    def places(self, row: str) -> Iterator[int]:
        """Where a canary may begin."""
        for wanted in [self.prefix] if self.prefix else self.forwards:
            place = row.find(wanted)
            while place >= 0:
                yield place
                place = row.find(wanted, place + 1)

    def whole_at(self, row: str, place: int) -> tuple[str, int] | None:
        """(id, end) of the longest canary that is there."""
        for length in self.lengths:
            found = self.whole.get(row[place : place + length])
            if found is not None:
                return found, place + length
        return None

    def head(self, rest: str) -> str | None:
        """The canary that this end of a row begins; the format's name for one of several."""
        if len(rest) < max(_LEAST, len(self.prefix)):
            return None
        found = _beginning_with(self.forwards, rest)
        if not found:
            return None
        single = len(found) == 1 and len(rest) > len(self.prefix)
        return self.whole[found[0]] if single else self.name

    def tail(self, row: str) -> str | None:
        """The canary whose end this row begins with."""
        least = max(_LEAST, self.suffix + 1)
        for length in range(min(len(row), self.lengths[0] - 1), least - 1, -1):
            found = [canary[::-1] for canary in _beginning_with(self.backwards, row[:length][::-1])]
            if len(found) == 1 and len(found[0]) > length:
                return self.whole[found[0]]
        return None


class TokenSearch:
    """Looks for canaries in rows of tokens."""

    def __init__(
        self,
        tokenizer: Any,
        groups: Mapping[str, Mapping[str, str]],
        others: Mapping[str, Sequence[str]],
    ) -> None:
        if not is_tokenizer(tokenizer):
            raise ModelError(
                f"{type(tokenizer).__name__} is no tokenizer of transformers; give that of the "
                "training"
            )
        self._tokenizer, self._special = tokenizer, tokenizer.all_special_ids
        # Where numbers were left out, the last is more than there are tokens.
        last = max(tokenizer.get_vocab().values())
        pieces = tokenizer.convert_ids_to_tokens(list(range(last + 1)))
        self._pieces = [piece or "" for piece in pieces] + [""]
        self._groups = [
            self._group(name, texts, others[name]) for name, texts in groups.items() if texts
        ]

    def hits(self, ids: NDArray[np.int64]) -> list[Hit]:
        """Every canary in a row of tokens, and parts of canaries at its two ends."""
        inside = np.flatnonzero(~np.isin(ids, self._special))
        if not inside.size:
            return []
        first, last = int(inside[0]), len(self._pieces) - 1
        own = ids[first : inside[-1] + 1]
        # A number without a token means no text.
        pieces = [self._pieces[i] for i in np.where((own < 0) | (own > last), last, own).tolist()]
        row = "".join(pieces)
        found = [hit for group in self._groups for hit in _hits(group, row)]
        starts = [0, *accumulate(map(len, pieces))] if found else []
        return [
            Hit(
                id=name,
                kind=kind,
                begin=first + bisect_right(starts, begin) - 1,
                secret=first + bisect_right(starts, secret) - 1,
                end=first + bisect_left(starts, end),
            )
            for name, kind, begin, secret, end in found
        ]

    def _group(self, name: str, texts: Mapping[str, str], others: Sequence[str]) -> _Group:
        text = next(iter(texts.values()))
        encode_in_context(self._tokenizer, [text], context=None)  # refuses what it does not know
        if self._joined(f"{text} {text}").count(self._written(text)) < 2:
            raise ModelError(
                f"the tokenizer writes a canary of format {name!r} otherwise in another place, so "
                "that it cannot be counted in batches; count it in the corpus: lmexposure verify"
            )
        whole = {self._written(text): canary for canary, text in texts.items()}
        if len(whole) < len(texts):
            raise ModelError(
                f"the tokenizer writes two canaries of format {name!r} alike, so that they cannot "
                "be distinguished in batches; use a format whose characters it keeps"
            )
        fills = [*whole, *map(self._written, others)]
        suffix = _common_beginning([fill[::-1] for fill in fills])
        return _Group(name=name, whole=whole, prefix=_common_beginning(fills), suffix=len(suffix))

    def _written(self, text: str) -> str:
        """A text's pieces; a space that the tokenizer puts before it does not belong to it."""
        joined = self._joined(text)
        return joined if text[:1].isspace() else joined.lstrip(_SPACES)

    def _joined(self, text: str) -> str:
        ids = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return "".join(self._pieces[i] for i in ids)


_Found = tuple[str, Literal["whole", "head", "tail"], int, int, int]


def _hits(group: _Group, row: str) -> Iterator[_Found]:
    """(id, kind, first character, first character of the secret, end) of each."""
    for place in group.places(row):
        secret, whole = place + len(group.prefix), group.whole_at(row, place)
        if whole is not None:
            yield whole[0], "whole", place, secret, whole[1]
        elif (name := group.head(row[place:])) is not None:
            yield name, "head", place, secret, len(row)
    if not group.prefix:
        yield from _bare_head(group, row)
    if (name := group.tail(row)) is not None:
        yield name, "tail", 0, 0, 0


def _bare_head(group: _Group, row: str) -> Iterator[_Found]:
    """The longest end of a row that begins a canary of a format with nothing fixed before it."""
    for length in range(min(len(row), group.lengths[0] - 1), _LEAST - 1, -1):
        found = _beginning_with(group.forwards, row[-length:])
        if found and len(found[0]) > length:
            name = group.whole[found[0]] if len(found) == 1 else group.name
            yield name, "head", len(row) - length, len(row) - length, len(row)
            return


def _beginning_with(ordered: Sequence[str], text: str) -> Sequence[str]:
    """The strings of a sorted sequence that begin with this one."""
    return ordered[bisect_left(ordered, text) : bisect_right(ordered, text + _LAST)]


def _common_beginning(texts: Sequence[str]) -> str:
    # Of all texts between them in order, too: the first and the last differ soonest.
    first, last = min(texts), max(texts)
    pairs = zip(first, last, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(last)))
    return first[:same]
