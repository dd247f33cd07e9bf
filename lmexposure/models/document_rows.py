"""Texts to train on, a document a row: for methods whose promise is of documents, or of users."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from lmexposure.errors import ModelError
from lmexposure.models.chat_rows import TrainingRow
from lmexposure.models.encoding import encode_documents, encode_in_context
from lmexposure.models.packing import held_out
from lmexposure.models.padded_rows import PaddedRows
from lmexposure.studies import TrainingSettings

_LOG = logging.getLogger(__name__)


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
