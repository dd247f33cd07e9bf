"""Documents to blocks of equal length; a canary is never cut."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from lmexposure.errors import CorpusError, ModelError
from lmexposure.models.encoding import encode_documents, encode_in_context

IGNORED = -100  # the label that torch's cross-entropy leaves out

_DOCUMENTS_AT_ONCE = 20_000  # bounds the memory that Python lists of tokens take


@dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """Tokens in blocks.

    Args:
        ids: tokens, shape (N, block_size), 0 where padding; any token may stand there, since no
            causal model looks at what follows.
        lengths: tokens before the padding of each block, shape (N,).
        openers: the tokens that some document begins with.
    """

    ids: NDArray[np.int32]
    lengths: NDArray[np.int32]
    openers: frozenset[int]

    @property
    def tokens(self) -> int:
        """Tokens in all blocks, padding not counted."""
        return int(self.lengths.sum())

    def labels(self) -> NDArray[np.int64]:
        """What each position should be followed by, shape (N, block_size - 1); IGNORED at padding.

        Position t of a block predicts its token t + 1; a block's first token is not predicted.
        """
        following = self.ids[:, 1:].astype(np.int64)
        padding = np.arange(1, self.ids.shape[1]) >= self.lengths[:, None]
        following[padding] = IGNORED
        return following


def pack(
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[str],
    *,
    separator: str | None,
    block_size: int,
    atomic: Collection[str] = (),
) -> Packed:
    """Encode the documents in context, one after the other, and cut the stream into blocks.

    Ordinary documents are cut wherever a block ends. A document whose text is in `atomic` stands
    in one block: if it does not fit in what is left, padding fills that up and it begins the next.

    Args:
        tokenizer: of the model that will read the blocks.
        documents: in the order of the corpus.
        separator: the text between documents, None for records.
        block_size: tokens in a block, at least 2.
        atomic: texts of the canaries.

    Raises:
        ModelError: a canary is longer than a block, or meets an unknown token.
        CorpusError: there is not one token.
    """
    texts = set(atomic)
    _check_canaries(tokenizer, sorted(texts), separator, block_size)
    stream, lengths = _tokens(tokenizer, documents, separator)
    if stream.size == 0:
        raise CorpusError("the documents have no tokens at all; give a corpus with some text")
    whole = np.fromiter((text in texts for text in documents), dtype=bool, count=len(documents))
    starts = np.cumsum(lengths) - lengths
    gaps = _gaps(starts[whole], lengths[whole], block_size)
    ids, filled = _blocks(stream, starts[whole], gaps, block_size)
    openers = stream[starts[lengths > 0]]
    return Packed(ids=ids, lengths=filled, openers=frozenset(openers.tolist()))


def _check_canaries(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], separator: str | None, block_size: int
) -> None:
    for number, encoded in enumerate(encode_in_context(tokenizer, texts, context=separator)):
        if len(encoded.ids) > block_size:
            raise ModelError(
                f"canary {number} of {len(texts)} has {len(encoded.ids)} tokens with its separator,"
                f" but block_size={block_size}; it must stand in one block whole, so raise "
                "block_size or use a shorter format"
            )


def _tokens(
    tokenizer: PreTrainedTokenizerBase, documents: Sequence[str], separator: str | None
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """All tokens, and the number of tokens of each document, shape (documents,)."""
    parts: list[NDArray[np.int32]] = []
    lengths: list[int] = []
    for first in range(0, len(documents), _DOCUMENTS_AT_ONCE):
        some = documents[first : first + _DOCUMENTS_AT_ONCE]
        rows = encode_documents(tokenizer, some, context=separator)
        lengths += map(len, rows)
        parts.append(np.fromiter((i for row in rows for i in row), dtype=np.int32))
    stream = np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)
    return stream, np.asarray(lengths, dtype=np.int64)


def _gaps(
    starts: NDArray[np.int64], lengths: NDArray[np.int64], block_size: int
) -> NDArray[np.int64]:
    """Padding that goes before each uncut document, shape of `starts`."""
    gaps = np.zeros_like(starts)
    shift = 0
    for i, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        used = (start + shift) % block_size
        if used + length > block_size:
            gaps[i] = block_size - used
            shift += block_size - used
    return gaps


def _blocks(
    stream: NDArray[np.int32],
    starts: NDArray[np.int64],
    gaps: NDArray[np.int64],
    block_size: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The stream with its gaps, in rows, and the tokens in each row."""
    shift = np.zeros(stream.size, dtype=np.int64)
    shift[starts] = gaps
    places = np.arange(stream.size) + np.cumsum(shift)
    rows = int(places[-1]) // block_size + 1
    ids = np.zeros(rows * block_size, dtype=np.int32)
    ids[places] = stream
    filled = np.bincount(places // block_size, minlength=rows)
    return ids.reshape(rows, block_size), filled.astype(np.int32)
