"""Rows of records or of documents, padded to the longest of their batch; deduplicated before.

What is there once is memorised far less than what is there often (Lee et al. 2022, "Deduplicating
Training Data Makes Language Models Better", arXiv 2107.06499; Kandpal et al. 2022, arXiv
2202.06539). What it does not hide: a secret that is there once, or in documents that are not alike.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from lmexposure.canaries import Wrapping
from lmexposure.errors import CorpusError, ModelError, SettingsError
from lmexposure.models.chat_rows import TrainingRow, record_text, row_context, training_rows
from lmexposure.models.encoding import encode_documents, encode_in_context
from lmexposure.models.packing import IGNORED, check_delivered, check_fits, held_out, refuse_long
from lmexposure.studies import TrainingSettings

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class PaddedRows:
    """Rows of different lengths, one behind the other."""

    sparse: ClassVar[bool] = True  # prompts carry no loss, nor padding

    ids: NDArray[np.int32]  # tokens of all rows, shape (tokens,)
    carried: NDArray[np.bool_]  # which of them carry loss, shape (tokens,)
    starts: NDArray[np.int64]  # where each row begins, and the end of the last, shape (N + 1,)
    units: NDArray[np.int64]  # whose each row is, shape (N,): numbers from 0, none left out
    names: tuple[str, ...]  # of the units, in order: "document N", or what the owner is called

    @classmethod
    def of(cls, rows: Sequence[TrainingRow]) -> "PaddedRows":
        """Rows as they are, in order."""
        lengths = [len(row.ids) for row in rows]
        ids = np.fromiter((i for row in rows for i in row.ids), np.int32, count=sum(lengths))
        # Numbers from 0, in the order in which units come first.
        numbers: dict[tuple[str, bool], int] = {}
        keys = [
            (f"document {row.number or i}", False) if row.owner is None else (row.owner, True)
            for i, row in enumerate(rows, 1)
        ]
        units = [numbers.setdefault(key, len(numbers)) for key in keys]
        return cls(
            ids=ids,
            carried=np.concatenate([np.empty(0, bool), *(row.carried for row in rows)]),
            starts=np.cumsum([0, *lengths], dtype=np.int64),
            units=np.array(units, dtype=np.int64),
            names=tuple(name for name, _ in numbers),
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """Tokens of each row that are predicted and carry loss, shape (N,)."""
        own = np.add.reduceat(self.carried, self.starts[:-1], dtype=np.int64)
        return own - self.carried[self.starts[:-1]]  # nothing predicts a row's first token

    @property
    def parts(self) -> tuple[bytes, ...]:
        """All that decides what a model learns from them, to be hashed."""
        own = self.ids.tobytes(), self.carried.tobytes(), self.starts.tobytes()
        # As before there were units: the hash of rows that are each by themselves is then the same.
        alone = np.array_equal(self.units, np.arange(len(self)))
        return own if alone else (*own, self.units.tobytes())

    def batch(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Some rows without their last token, and what follows each token with loss."""
        starts, ends = self.starts[numbers], self.starts[numbers + 1]
        # A row of one token is a row of padding: models take no empty batch.
        width = max(int((ends - starts).max()) - 1, 1)
        ids = np.zeros((len(numbers), width), np.int32)
        labels = np.full((len(numbers), width), IGNORED, np.int64)
        for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
            ids[i, : end - start - 1] = self.ids[start : end - 1]
            following, learned = self.ids[start + 1 : end], self.carried[start + 1 : end]
            labels[i, : end - start - 1] = np.where(learned, following, IGNORED)
        return ids, labels


def rows_of_records(
    tokenizer: PreTrainedTokenizerBase,
    records: Sequence[Mapping[str, Any]],
    *,
    wrapping: Wrapping,
    canaries: Mapping[str, int],
    settings: TrainingSettings,
    validation: Sequence[Mapping[str, Any]] | None = None,
    units: Sequence[str | None] | None = None,
) -> tuple[PaddedRows, PaddedRows]:
    """Rows to train on, with each canary whole and as often as planned, and rows to validate on."""
    expected = _canary_rows(tokenizer, sorted(canaries), wrapping, settings.block_size)
    rows = _owned(training_rows(tokenizer, records, wrapping), units)
    found = [expected.get(tuple(row.ids)) for row in rows]
    whose = "records that the manifest belongs to, with the chat template of the insertion"
    check_delivered(Counter(found), canaries, "is the row of {} records", whose)
    held = None if validation is None else training_rows(tokenizer, validation, wrapping)
    said = (
        record_text(number, record, wrapping) if text is None else text
        for number, (record, text) in enumerate(zip(records, found, strict=True), 1)
    )
    return _parted(rows, held, said, canaries, settings, "records")


def rows_of_documents(
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[str],
    *,
    separator: str | None,
    canaries: Mapping[str, int],
    settings: TrainingSettings,
    validation: Sequence[str] | None = None,
    units: Sequence[str | None] | None = None,
) -> tuple[PaddedRows, PaddedRows]:
    """As `rows_of_records`, of texts, all whose tokens carry loss."""
    check_fits(tokenizer, sorted(canaries), separator, settings.block_size)
    found = Counter(text for text in documents if text in canaries)
    check_delivered(found, canaries, "is {} documents", "documents that the manifest belongs to")

    def encoded(texts: Sequence[str]) -> Iterator[TrainingRow]:
        for ids in encode_documents(tokenizer, texts, context=separator):
            yield TrainingRow(ids=ids, carried=np.ones(len(ids), bool))

    held = None if validation is None else encoded(validation)
    return _parted(
        _owned(encoded(documents), units), held, documents, canaries, settings, "documents"
    )


def _owned(rows: Iterable[TrainingRow], owners: Sequence[str | None] | None) -> list[TrainingRow]:
    """Rows with their numbers, and whose they are."""
    pairs = zip(rows, repeat(None) if owners is None else owners, strict=False)
    return [replace(row, owner=owner, number=n) for n, (row, owner) in enumerate(pairs, 1)]


def _parted(
    rows: list[TrainingRow],
    held: Iterable[TrainingRow] | None,
    texts: Iterable[str],
    canaries: Collection[str],
    settings: TrainingSettings,
    what: str,
) -> tuple[PaddedRows, PaddedRows]:
    """Rows to train on and to validate on: those given, or some of the others, by their texts."""
    if held is None:
        apart = held_out(list(texts), canaries, settings)
        held = [rows[i] for i in sorted(apart)]
        rows = [row for i, row in enumerate(rows) if i not in apart]
    held, size = list(held), settings.block_size
    kept, validated = _fitted(rows, size, what), _fitted(held, size, what)
    if not validated:
        raise CorpusError(
            f"none of the {len(held)} {what} that were held out for validation carries loss; "
            f"raise block_size={size}, or choose loss='all'"
        )
    return PaddedRows.of(kept), PaddedRows.of(validated)


def _fitted(rows: Sequence[TrainingRow], block_size: int, what: str) -> list[TrainingRow]:
    """Rows cut to block_size at their end; those with no loss within it are left out."""
    cut = (replace(r, ids=r.ids[:block_size], carried=r.carried[:block_size]) for r in rows)
    kept = [row for row in cut if row.carried[1:].any()]
    long, lost = sum(len(row.ids) > block_size for row in rows), len(rows) - len(kept)
    if long:
        told = "%d of %d %s are longer than block_size=%d tokens, and are cut there"
        _LOG.warning(told, long, len(rows), what, block_size)
    if lost and what == "records":  # of documents, those of one token
        _LOG.warning("%d of %d records carry no loss, and are left out", lost, len(rows))
    return kept


def check_units(
    units: Sequence[str | None] | None, documents: Sequence[object], settings: TrainingSettings
) -> None:
    """Refuse units that a promise would not be of."""
    if (units is None) != (settings.unit_field is None):
        what = "no units are given" if units is None else "units are given"
        raise SettingsError(
            f"unit_field={settings.unit_field!r}, and {what}; give both, or neither for a promise "
            "for each document"
        )
    if units is not None and len(units) != len(documents):
        raise CorpusError(
            f"units says of {len(units)} documents whose they are, and there are {len(documents)}; "
            "give one for each, None for a document by itself"
        )


def _canary_rows(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], wrapping: Wrapping, block_size: int
) -> dict[tuple[int, ...], str]:
    """The row of each canary, checked: it is whole, every token known, with loss."""
    if not texts:
        return {}
    encode_in_context(tokenizer, texts, context=row_context(tokenizer, wrapping, texts))
    rows = training_rows(tokenizer, [wrapping.record(text) for text in texts], wrapping)
    expected = {tuple(row.ids): text for text, row in zip(texts, rows, strict=True)}
    if len(expected) < len(texts):
        raise ModelError(
            "the tokenizer gives two different canaries the same tokens; use a format whose "
            "characters it keeps"
        )
    refuse_long(map(len, expected), len(texts), block_size, "in its row", " or other turn")
    return expected


_WIDTH = 13  # characters of a shingle
_ALIKE = 0.8  # Jaccard similarity of the shingles of two documents that are nearly the same
_PERMUTATIONS = 128
_BANDS, _ROWS = 21, 6


def deduplicated(
    documents: Sequence[Any], canaries: Mapping[str, int], *, wrapping: Wrapping | None, near: bool
) -> tuple[list[Any], dict[str, int]]:
    """The first of all documents that say (nearly) the same, and the canaries still there."""
    texts, first = _texts(documents, wrapping), dict[str, int]()
    for number, text in enumerate(texts):
        first.setdefault(text, number)
    kept = _apart(texts, list(first.values())) if near else list(first.values())
    chosen = set(kept)
    dropped = [text for number, text in enumerate(texts) if number not in chosen]
    made = [text if wrapping is None else wrapping.record(text) for text in canaries]
    of_canary = dict(zip(_texts(made, wrapping), canaries, strict=True))
    # A document that has a canary amid other text, or as the beginning of another, is not its.
    gone = Counter(of_canary[text] for text in dropped if text in of_canary)
    left = {text: times - gone[text] for text, times in canaries.items() if times > gone[text]}
    return [documents[number] for number in kept], left


def _texts(documents: Sequence[Any], wrapping: Wrapping | None) -> list[str]:
    if wrapping is None:
        return list(documents)
    return [record_text(number, record, wrapping) for number, record in enumerate(documents, 1)]


def _apart(texts: Sequence[str], numbers: Sequence[int]) -> list[int]:
    """Those of these documents that are not nearly the same as one that is kept before them."""
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError as failure:
        raise ModelError(
            "deduplicate='near' needs datasketch, which is not installed; install it: pip install "
            "'lmexposure[dedup]', or give deduplicate='exact'"
        ) from failure
    tables = MinHashLSH(num_perm=_PERMUTATIONS, params=(_BANDS, _ROWS))
    kept = []
    for number in numbers:
        shingles = _shingles(texts[number])
        signature = MinHash(num_perm=_PERMUTATIONS)
        signature.update_batch([shingle.encode() for shingle in sorted(shingles)])
        others = (_shingles(texts[other]) for other in tables.query(signature))
        # Proposed are some that are not alike, and of those that are one in 600 is not.
        if not any(len(own & shingles) / len(own | shingles) >= _ALIKE for own in others):
            tables.insert(number, signature)
            kept.append(number)
    return kept


def _shingles(text: str) -> set[str]:
    """All 13-grams of characters; of a shorter text, the text itself."""
    return {text[at : at + _WIDTH] for at in range(max(1, len(text) - _WIDTH + 1))}
