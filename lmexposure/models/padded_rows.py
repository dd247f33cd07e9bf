"""Rows to train on, padded to the longest of their batch and checked for canaries.

A row is a record, or a text where a promise is of documents or of users.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from lmexposure.canaries import Wrapping
from lmexposure.errors import CorpusError, ModelError, SettingsError
from lmexposure.models.chat_rows import TrainingRow, record_text, row_context, training_rows
from lmexposure.models.encoding import encode_documents, encode_in_context
from lmexposure.models.packing import IGNORED, held_out
from lmexposure.studies import TrainingSettings

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class PaddedRows:
    """Rows of different lengths, one behind the other."""

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
        carried = [row.carried for row in rows]
        units, names = _units(rows)
        return cls(
            ids=ids,
            carried=np.concatenate(carried) if carried else np.empty(0, bool),
            starts=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
            units=units,
            names=names,
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def sparse(self) -> bool:
        """Whether many tokens carry no loss: those of prompts, and padding."""
        return True

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
    texts = sorted(canaries)
    expected = _canary_rows(tokenizer, texts, wrapping, settings.block_size)
    owners = [None] * len(records) if units is None else units
    rows = [
        replace(row, owner=owner, number=number)
        for number, (row, owner) in enumerate(
            zip(training_rows(tokenizer, records, wrapping), owners, strict=True), 1
        )
    ]
    found = [expected.get(tuple(row.ids)) for row in rows]
    _check_delivered(Counter(found), canaries)
    if validation is not None:
        held = list(training_rows(tokenizer, validation, wrapping))
    else:
        apart = held_out(
            [
                record_text(number, record, wrapping) if text is None else text
                for number, (record, text) in enumerate(zip(records, found, strict=True), 1)
            ],
            fraction=settings.validation_fraction,
            most_characters=settings.validation_characters,
            canaries=canaries,
            seed=settings.seed,
        )
        held = [rows[i] for i in sorted(apart)]
        rows = [row for i, row in enumerate(rows) if i not in apart]
    kept, validated = _fitted(rows, settings.block_size), _fitted(held, settings.block_size)
    if not validated:
        raise CorpusError(
            f"none of the {len(held)} records that were held out for validation carries loss; "
            f"raise block_size={settings.block_size}, or choose loss='all'"
        )
    return PaddedRows.of(kept), PaddedRows.of(validated)


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


def _units(rows: Sequence[TrainingRow]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Numbers from 0, in the order in which units come first, and the units' names."""
    numbers: dict[tuple[str, bool], int] = {}
    keys = [
        (f"document {row.number or i}", False) if row.owner is None else (row.owner, True)
        for i, row in enumerate(rows, 1)
    ]
    units = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    return units, tuple(name for name, _ in numbers)


def _canary_rows(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], wrapping: Wrapping, block_size: int
) -> dict[tuple[int, ...], str]:
    """The row of each canary, checked: it is whole, every token known, with loss."""
    if not texts:
        return {}
    context = row_context(tokenizer, wrapping, texts)
    encode_in_context(tokenizer, texts, context=context)
    rows = training_rows(tokenizer, [wrapping.record(text) for text in texts], wrapping)
    expected = {tuple(row.ids): text for text, row in zip(texts, rows, strict=True)}
    if len(expected) < len(texts):
        raise ModelError(
            "the tokenizer gives two different canaries the same tokens; use a format whose "
            "characters it keeps"
        )
    for number, ids in enumerate(expected):
        if len(ids) > block_size:
            raise ModelError(
                f"canary {number} of {len(texts)} has {len(ids)} tokens in its row, but "
                f"block_size={block_size}; it must be there whole, so raise block_size if the "
                "model's context window is longer, or use a shorter format or a shorter other turn"
            )
    return expected


def _check_delivered(found: Mapping[str | None, int], planned: Mapping[str, int]) -> None:
    """Refuse to train unless every canary is a row exactly as often as planned."""
    wrong = [(i, text) for i, text in enumerate(sorted(planned)) if found[text] != planned[text]]
    if wrong:
        number, text = wrong[0]
        raise ModelError(
            f"{len(wrong)} of {len(planned)} canaries would not reach the model as planned: canary "
            f"{number} is the row of {found[text]} records instead of {planned[text]}; train on "
            "the records that the manifest belongs to, with the chat template of the insertion"
        )


def _fitted(rows: Iterable[TrainingRow], block_size: int) -> list[TrainingRow]:
    """Rows cut to block_size at their end; those with no loss within it are left out."""
    every = list(rows)
    kept = [row for row in (row.cut(block_size) for row in every) if row.carried[1:].any()]
    long = sum(len(row.ids) > block_size for row in every)
    if long:
        _LOG.warning(
            "%d of %d records are longer than block_size=%d tokens, and are cut there",
            *(long, len(every), block_size),
        )
    if len(kept) < len(every):
        _LOG.warning(
            "%d of %d records carry no loss, and are left out", len(every) - len(kept), len(every)
        )
    return kept


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
    """Rows to train on, with each canary whole and as often as planned, and rows to validate on."""
    _check_canaries(tokenizer, documents, separator, canaries, settings.block_size)
    owners = [None] * len(documents) if units is None else units
    every = list(zip(documents, owners, range(1, len(documents) + 1), strict=True))
    if validation is None:
        apart = _held_out(documents, canaries, settings)
        held = [every[i] for i in sorted(apart)]
        every = [each for i, each in enumerate(every) if i not in apart]
    else:
        held = [(text, None, 0) for text in validation]
    kept, validated = (
        PaddedRows.of(_rows(tokenizer, some, separator, settings.block_size))
        for some in (every, held)
    )
    return kept, validated


def _held_out(
    documents: Sequence[str], canaries: Collection[str], settings: TrainingSettings
) -> set[int]:
    return held_out(
        documents,
        fraction=settings.validation_fraction,
        most_characters=settings.validation_characters,
        canaries=canaries,
        seed=settings.seed,
    )


def _check_canaries(
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[str],
    separator: str | None,
    canaries: Mapping[str, int],
    block_size: int,
) -> None:
    """Refuse to train unless every canary fits a row, and is one exactly as often as planned."""
    texts = sorted(canaries)
    for number, encoded in enumerate(encode_in_context(tokenizer, texts, context=separator)):
        if len(encoded.ids) > block_size:
            raise ModelError(
                f"canary {number} of {len(texts)} has {len(encoded.ids)} tokens with its separator,"
                f" but block_size={block_size}; it must be there whole, so raise block_size if the "
                "model's context window is longer, or use a shorter format"
            )
    found = Counter(text for text in documents if text in canaries)
    wrong = [(i, text) for i, text in enumerate(texts) if found[text] != canaries[text]]
    if wrong:
        number, text = wrong[0]
        raise ModelError(
            f"{len(wrong)} of {len(texts)} canaries would not reach the model as planned: canary "
            f"{number} is {found[text]} documents instead of {canaries[text]}; train on the "
            "documents that the manifest belongs to"
        )


def _rows(
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[tuple[str, str | None, int]],
    separator: str | None,
    block_size: int,
) -> list[TrainingRow]:
    """A row of each document, all its tokens with loss; those of one token have none."""
    texts = [text for text, _, _ in documents]
    every = encode_documents(tokenizer, texts, context=separator)
    long = sum(len(ids) > block_size for ids in every)
    if long:
        _LOG.warning(
            "%d of %d documents are longer than block_size=%d tokens, and are cut there",
            *(long, len(every), block_size),
        )
    return [
        TrainingRow(ids=ids, carried=np.ones(len(ids), bool), owner=owner, number=number).cut(
            block_size
        )
        for ids, (_, owner, number) in zip(every, documents, strict=True)
        if len(ids) > 1
    ]
