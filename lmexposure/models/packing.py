"""Rows of tokens that a training reads: held-out documents, packed blocks, batches of a step.

A canary is never cut, and no held-out document holds one. Before training begins, each canary is
searched for in the very blocks that the model is given.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import IterableDataset
from transformers import PreTrainedTokenizerBase

from lmexposure.canaries import derive_seed, permutation
from lmexposure.errors import CorpusError, ModelError
from lmexposure.models.encoding import encode_documents, encode_in_context
from lmexposure.studies import TrainingSettings

_FEWEST = 10  # with fewer, one held-out document is a large part of the corpus
IGNORED = -100  # the label that torch's cross-entropy leaves out
_DOCUMENTS_AT_ONCE = 20_000  # bounds the memory that Python lists of tokens take
_BASE = 0x9E3779B97F4A7C15  # odd, hence invertible modulo 2^64
_INVERSE = pow(_BASE, -1, 2**64)


def split_validation(
    documents: Sequence[str], canaries: Collection[str], settings: TrainingSettings
) -> tuple[list[str], list[str]]:
    """Split documents into those to train on and those to validate on, each in corpus order."""
    held = held_out(documents, canaries, settings)
    kept = [text for i, text in enumerate(documents) if i not in held]
    return kept, [documents[i] for i in sorted(held)]


def held_out(
    documents: Sequence[str], canaries: Collection[str], settings: TrainingSettings
) -> set[int]:
    """The numbers of the documents to validate on; as `split_validation`."""
    fraction, most = settings.validation_fraction, settings.validation_characters
    texts = set(canaries)
    eligible = [i for i, text in enumerate(documents) if text.strip() and text not in texts]
    # Of ordinary text alone: a canary more or less must not move what is held out.
    wanted = min(fraction * sum(len(documents[i]) for i in eligible), most)
    drawn = _draw(documents, eligible, wanted, settings.seed) if len(eligible) >= _FEWEST else set()
    joined = "\0".join(documents[i] for i in sorted(drawn))
    present = [text for text in texts if text in joined]
    held = {i for i in drawn if not any(text in documents[i] for text in present)}
    if not held:
        raise CorpusError(
            f"of {len(documents)} documents, {len(eligible)} hold text and are no canary: too few "
            f"to hold some out for validation; give at least {_FEWEST}, for instance by cutting "
            "the corpus into lines"
        )
    return held


def _draw(documents: Sequence[str], eligible: Sequence[int], wanted: float, seed: int) -> set[int]:
    """Random documents that together come near the wanted number of characters, at least one."""
    held: set[int] = set()
    characters = 0
    for place in permutation(len(eligible), derive_seed(seed, "validation")):
        length = len(documents[eligible[place]])
        if characters + length <= wanted:
            held.add(eligible[place])
            characters += length
        if characters >= 0.9 * wanted:
            break
    return held or {min(eligible, key=lambda i: len(documents[i]))}


@dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """Tokens in blocks."""

    sparse: ClassVar[bool] = False  # only padding carries no loss

    # tokens, shape (N, block_size), 0 where padding; any token may be there, since no causal model
    # looks at what follows
    ids: NDArray[np.int32]
    lengths: NDArray[np.int32]  # tokens before the padding of each block, shape (N,)
    openers: frozenset[int]  # the tokens that some document begins with

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """Tokens that are predicted in each block, shape (N,)."""
        return np.asarray((self.labels >= 0).sum(axis=1), dtype=np.int64)

    @property
    def units(self) -> NDArray[np.int64]:
        """Whose each block is, shape (N,): its own, for documents share blocks."""
        return np.arange(len(self))

    @property
    def names(self) -> tuple[str, ...]:
        """What each block is called."""
        return tuple(f"block {number}" for number in range(1, len(self) + 1))

    @property
    def parts(self) -> tuple[bytes, ...]:
        """All that decides what a model learns from them, to be hashed."""
        return self.ids.tobytes(), self.lengths.tobytes()

    def batch(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Some blocks without their last token, and what follows each token; see `labels`."""
        return self.ids[numbers, :-1], self.labels[numbers]

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The token behind each position, shape (N, block_size - 1); IGNORED at padding."""
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
    """Documents as a stream that is cut into blocks; those whose text is in `atomic` are whole."""
    texts = set(atomic)
    check_fits(tokenizer, sorted(texts), separator, block_size)
    stream, lengths = _tokens(tokenizer, documents, separator)
    if stream.size == 0:
        raise CorpusError("the documents have no tokens at all; give a corpus with some text")
    whole = np.fromiter((text in texts for text in documents), dtype=bool, count=len(documents))
    starts = np.cumsum(lengths) - lengths
    gaps = _gaps(starts[whole], lengths[whole], block_size)
    ids, filled = _blocks(stream, starts[whole], gaps, block_size)
    return Packed(ids=ids, lengths=filled, openers=frozenset(stream[starts[lengths > 0]].tolist()))


def check_fits(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], separator: str | None, block_size: int
) -> None:
    """Refuse canaries that are longer than a block, or have a token that is unknown."""
    encoded = encode_in_context(tokenizer, texts, context=separator)
    refuse_long((len(text.ids) for text in encoded), len(texts), block_size, "with its separator")


def refuse_long(
    lengths: Iterable[int], canaries: int, block_size: int, where: str, more: str = ""
) -> None:
    """Refuse canaries that have more tokens than a block."""
    for number, length in enumerate(lengths):
        if length > block_size:
            raise ModelError(
                f"canary {number} of {canaries} has {length} tokens {where}, but "
                f"block_size={block_size}; it must be there whole, so raise block_size if the "
                f"model's context window is longer, or use a shorter format{more}"
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
    stream: NDArray[np.int32], starts: NDArray[np.int64], gaps: NDArray[np.int64], block_size: int
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


def check_deliveries(
    tokenizer: PreTrainedTokenizerBase,
    packed: Packed,
    planned: Mapping[str, int],
    *,
    separator: str | None,
) -> None:
    """Refuse to train unless every canary is whole in the blocks as often as planned."""
    found = count_deliveries(tokenizer, packed, planned, separator=separator)
    how = "occurs whole in the blocks {} times"
    check_delivered(found, planned, how, "documents that the manifest belongs to")


def check_delivered(
    found: Mapping[Any, int], planned: Mapping[str, int], how: str, right: str
) -> None:
    """Refuse to train unless every canary is there exactly as often as planned."""
    wrong = [(i, text) for i, text in enumerate(sorted(planned)) if found[text] != planned[text]]
    if wrong:
        number, text = wrong[0]
        raise ModelError(
            f"{len(wrong)} of {len(planned)} canaries would not reach the model as planned: canary "
            f"{number} {how.format(found[text])} instead of {planned[text]}; train on the {right}"
        )


def count_deliveries(
    tokenizer: PreTrainedTokenizerBase,
    packed: Packed,
    canaries: Mapping[str, int],
    *,
    separator: str | None,
) -> dict[str, int]:
    """How often each canary occurs whole, as a document, among the tokens of one block."""
    texts = list(canaries)
    encoded = encode_in_context(tokenizer, texts, context=separator)
    counts = dict.fromkeys(texts, 0)
    by_length: dict[int, dict[tuple[int, ...], str]] = {}
    for text, tokens in zip(texts, encoded, strict=True):
        by_length.setdefault(len(tokens.ids), {})[tuple(tokens.ids)] = text
    for length, wanted in by_length.items():
        for sequence in _occurrences(packed, length, list(wanted)):
            counts[wanted[sequence]] += 1
    return counts


def _occurrences(
    packed: Packed, length: int, wanted: list[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """Every place where one of the wanted sequences, all of one length, is a document."""
    if length > packed.ids.shape[1]:
        return []
    known = _window_hashes(np.array(wanted, dtype=np.int32), length)[:, 0]
    hits = np.argwhere(np.isin(_window_hashes(packed.ids, length), known))
    sequences = set(wanted)
    found = []
    for row, place in hits.tolist():
        sequence, end = tuple(packed.ids[row, place : place + length].tolist()), place + length
        filled = int(packed.lengths[row])
        ends = end == filled or (end < filled and int(packed.ids[row, end]) in packed.openers)
        if ends and sequence in sequences:
            found.append(sequence)
    return found


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


_ROWS_AT_ONCE = 256


def has_length(data: Any) -> bool:
    """Whether it is known how many rows or batches there are."""
    try:
        return len(data) is not None
    except (TypeError, AttributeError):  # the latter of Ray's
        return False


def is_stream(data: Any) -> bool:
    """Whether rows come one after the other, and none can be had by its number."""
    by_number = has_length(data) and hasattr(data, "__getitem__")
    return isinstance(data, IterableDataset) or not by_number


def steps_per_epoch(blocks: int, batch_size: int) -> int:
    """Optimizer steps in an epoch; the last one may have fewer blocks."""
    return -(-blocks // batch_size)


def epoch_steps(
    blocks: int, *, batch_size: int, seed: int, epoch: int
) -> Iterator[NDArray[np.int64]]:
    """The block numbers of each step of an epoch, shape (<= batch_size,), in random order."""
    order = np.fromiter(permutation(blocks, derive_seed(seed, "epoch", str(epoch))), dtype=np.int64)
    for first in range(0, blocks, batch_size):
        yield order[first : first + batch_size]


def micro_batches(
    step: NDArray[np.int64], *, process: int, processes: int, accumulation: int
) -> list[NDArray[np.int64]]:
    """This process's share of a step, in `accumulation` parts, of which some may be empty."""
    share = np.array_split(step, processes)[process]
    return np.array_split(share, min(accumulation, len(step)))


class Batches(Protocol):
    """What is trained on: N rows of tokens, and what follows each of their tokens."""

    @property
    def sparse(self) -> bool:
        """Whether many tokens carry no loss."""

    @property
    def predicted(self) -> NDArray[np.int64]:
        """How many tokens are predicted in each row, shape (N,)."""

    @property
    def parts(self) -> tuple[bytes, ...]:
        """All that decides what is learned from them, to be hashed."""

    @property
    def units(self) -> NDArray[np.int64]:
        """Whose each row is, shape (N,): numbers from 0, as differential privacy counts them."""

    @property
    def names(self) -> tuple[str, ...]:
        """What the units are called, in order."""

    def __len__(self) -> int: ...

    def batch(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Tokens of some rows, and the labels of each, shape (B, T); IGNORED at no label."""


def unigram_bits(training: Batches, held: Batches) -> float:
    """Loss on held-out rows by how often each token is in the training rows, bits per token."""
    learned, asked = _counts(training), _counts(held)
    size = max(learned.size, asked.size)
    learned, asked = (np.pad(n, (0, size - n.size)) for n in (learned, asked))
    bits = -np.log2((learned + 1) / (learned.sum() + size))
    return float((asked * bits).sum() / max(1, asked.sum()))


def _counts(rows: Batches) -> NDArray[np.int64]:
    """How often each token is predicted, shape (largest token + 1,)."""
    counts = np.zeros(1, dtype=np.int64)
    for numbers in np.array_split(np.arange(len(rows)), -(-len(rows) // _ROWS_AT_ONCE)):
        labels = rows.batch(numbers)[1]
        found = np.bincount(labels[labels != IGNORED])
        size = max(found.size, counts.size)
        counts = np.pad(counts, (0, size - counts.size)) + np.pad(found, (0, size - found.size))
    return counts


class SomeRows:
    """Some of the rows, as rows of their own."""

    def __init__(self, rows: Batches, numbers: NDArray[np.int64]) -> None:
        self._rows, self._numbers = rows, numbers
        self.sparse = rows.sparse
        self.predicted = rows.predicted[numbers]
        self.units = np.unique(rows.units[numbers], return_inverse=True)[1]
        self.names = tuple(rows.names[unit] for unit in np.unique(rows.units[numbers]))

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def parts(self) -> tuple[bytes, ...]:
        """All that decides what is learned from them, to be hashed."""
        return *self._rows.parts, self._numbers.tobytes()

    def batch(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """See `Batches`."""
        return self._rows.batch(self._numbers[numbers])


@dataclass(frozen=True, kw_only=True, eq=False)
class Read:
    """What a model says of the predicted tokens of some rows."""

    logits: Tensor  # of each of N tokens, row by row, float32 of shape (N, V)
    labels: Tensor  # the tokens, shape (N,)

    def scored(self) -> tuple[Tensor, Tensor]:
        """Logarithms of all probabilities, shape (N, V), and -ln p of the tokens, shape (N,)."""
        logs = torch.log_softmax(self.logits, dim=1)
        return logs, -logs.gather(1, self.labels[:, None]).squeeze(1)


class Blocks:
    """The loss of a model on some of the rows."""

    def __init__(self, rows: Batches, *, device: torch.device, precision: str) -> None:
        self._rows = rows
        self.predicted, self.units, self.names = rows.predicted, rows.units, rows.names
        self._device = device
        self._bf16 = precision == "bf16"

    def __len__(self) -> int:
        return len(self._rows)

    def tokens(self, numbers: NDArray[np.int64]) -> int:
        """Tokens that are predicted in these rows."""
        return int(self.predicted[numbers].sum())

    def nats(self, model: nn.Module, numbers: NDArray[np.int64]) -> Tensor:
        """Summed -ln p of the predicted tokens of these rows, a float32 scalar with gradient."""
        logits, labels = self._said(model, numbers)
        flat, labels = logits.flatten(0, 1), labels.flatten()
        if self._rows.sparse:  # no softmax over the vocabulary where there is no loss
            flat, labels = flat[labels != IGNORED], labels[labels != IGNORED]
        loss = nn.functional.cross_entropy(flat.float(), labels, reduction="sum")
        return loss if numbers.size else loss * 0.0

    def read(self, model: nn.Module, numbers: NDArray[np.int64]) -> "Read":
        """What a model says of the predicted tokens of these rows, with gradient."""
        logits, labels = self._said(model, numbers)
        kept = labels != IGNORED
        kept &= numbers.size > 0
        return Read(logits=logits[kept].float(), labels=labels[kept])

    def nats_of_each(self, model: nn.Module, numbers: NDArray[np.int64]) -> Tensor:
        """The same of each row by itself, float32 of shape (B,): for per-document gradients."""
        ids, labels = self._batch(numbers)
        places = torch.arange(ids.shape[1], device=self._device).expand(ids.shape)
        logits = model(input_ids=ids, position_ids=places, use_cache=False).logits
        each = nn.functional.cross_entropy(
            logits.float().transpose(1, 2), labels, reduction="none", ignore_index=IGNORED
        )
        nats: Tensor = each.sum(dim=1)
        return nats if numbers.size else nats * 0.0

    def _said(self, model: nn.Module, numbers: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The logits of a model and the labels of some rows, in the training's precision."""
        ids, labels = self._batch(numbers)
        half = torch.autocast(self._device.type, dtype=torch.bfloat16) if self._bf16 else None
        with half or nullcontext():
            return model(input_ids=ids, use_cache=False).logits, labels

    def _batch(self, numbers: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Tokens and labels of some rows on the device; of none, those of a row."""
        chosen = numbers if numbers.size else np.zeros(1, dtype=np.int64)
        tokens, following = map(torch.from_numpy, self._rows.batch(chosen))
        return tokens.to(self._device, torch.int64), following.to(self._device)
