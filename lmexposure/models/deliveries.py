"""Count, in the very blocks that a model is given, how often each canary stands in them whole."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from lmexposure.errors import ModelError
from lmexposure.models.encoding import encode_in_context
from lmexposure.models.packing import Packed

_BASE = 0x9E3779B97F4A7C15  # odd, hence invertible modulo 2^64
_INVERSE = pow(_BASE, -1, 2**64)


def check_deliveries(
    tokenizer: PreTrainedTokenizerBase,
    packed: Packed,
    planned: Mapping[str, int],
    *,
    separator: str | None,
) -> None:
    """Refuse to train unless every canary stands whole in the blocks exactly as often as planned.

    Args:
        planned: text of each canary -> its repetitions.

    Raises:
        ModelError: some canary is there more or less often; it is named by its number among the
            sorted texts.
    """
    found = count_deliveries(tokenizer, packed, planned, separator=separator)
    wrong = [(i, text) for i, text in enumerate(sorted(planned)) if found[text] != planned[text]]
    if wrong:
        number, text = wrong[0]
        raise ModelError(
            f"{len(wrong)} of {len(planned)} canaries would not reach the model as planned: canary "
            f"{number} stands whole in the blocks {found[text]} times instead of {planned[text]}; "
            "train on the documents that the manifest belongs to"
        )


def count_deliveries(
    tokenizer: PreTrainedTokenizerBase,
    packed: Packed,
    canaries: Mapping[str, int],
    *,
    separator: str | None,
) -> dict[str, int]:
    """How often each canary stands whole, as a document, within one block.

    The tokens themselves are searched, whatever the packing believes: an occurrence is the canary
    in its context, followed by the end of the block or the beginning of a document.

    Args:
        packed: the blocks in any order.
        canaries: the texts are its keys.

    Returns:
        text -> number of occurrences.
    """
    texts = list(canaries)
    encoded = encode_in_context(tokenizer, texts, context=separator)
    counts = dict.fromkeys(texts, 0)
    by_length: dict[int, dict[tuple[int, ...], str]] = {}
    for text, one in zip(texts, encoded, strict=True):
        by_length.setdefault(len(one.ids), {})[tuple(one.ids)] = text
    for length, wanted in by_length.items():
        for sequence in _occurrences(packed, length, list(wanted)):
            counts[wanted[sequence]] += 1
    return counts


def _occurrences(
    packed: Packed, length: int, wanted: list[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """Every place where one of the wanted sequences, all of one length, stands as a document."""
    if length > packed.ids.shape[1]:
        return []
    known = _window_hashes(np.array(wanted, dtype=np.int32), length)[:, 0]
    hits = np.argwhere(np.isin(_window_hashes(packed.ids, length), known))
    sequences = set(wanted)
    found = []
    for row, place in hits.tolist():
        sequence = tuple(packed.ids[row, place : place + length].tolist())
        if sequence in sequences and _ends(packed, row, place + length):
            found.append(sequence)
    return found


def _ends(packed: Packed, row: int, place: int) -> bool:
    """Whether a document may end before this place of the block."""
    filled = int(packed.lengths[row])
    return place == filled or (place < filled and int(packed.ids[row, place]) in packed.openers)


def _window_hashes(ids: NDArray[np.int32], length: int) -> NDArray[np.uint64]:
    """Polynomial hash modulo 2^64 of each window of a row, shape (N, block_size - length + 1)."""
    width = ids.shape[1]
    powers = _powers(_BASE, width)
    # +1, so that runs of token 0 of different lengths differ.
    terms = (ids.astype(np.uint64) + np.uint64(1)) * powers
    sums = np.concatenate([np.zeros((len(ids), 1), np.uint64), terms.cumsum(axis=1)], axis=1)
    hashes: NDArray[np.uint64] = sums[:, length:] - sums[:, :-length]
    return hashes * _powers(_INVERSE, width - length + 1)


def _powers(base: int, count: int) -> NDArray[np.uint64]:
    values = [1]
    for _ in range(count - 1):
        values.append(values[-1] * base % 2**64)
    return np.array(values, dtype=np.uint64)
