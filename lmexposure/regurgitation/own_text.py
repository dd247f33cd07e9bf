"""What is a document's own: text that others have too is no memory of it, and counts once.

Documents are taken in an order that is drawn without looking at their sides. A stretch of 20
characters belongs to the first document that holds it; a document whose text is mostly that of
others is a near copy, and no unit of a test. From documents of the corpus all that a held-out
document holds is taken out as well. Proof that a test by shuffling keeps its level: by the order
alone, what is a document's own does not depend on sides; what is taken out beyond that only
shortens runs of the corpus.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lmexposure.regurgitation.runs import Run
from lmexposure.regurgitation.windows import Windows
from lmexposure.statistics import centred, length_strata

SHARED = 20  # characters of a stretch
_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no character is lost in the powers of 2**64


@dataclass(frozen=True, eq=False)
class OwnText:
    """Which characters that were asked for are a document's own.

    Attributes:
        places: of the characters in its text, ascending, shape (C,).
        first: no document earlier in the order has them, shape (C,).
        held: a held-out document has them too; of held-out documents nowhere, shape (C,).
        unit: it is no near copy.
    """

    places: NDArray[np.int64]
    first: NDArray[np.bool_]
    held: NDArray[np.bool_]
    unit: bool

    @property
    def characters(self) -> int:
        """Of its own, by the order alone."""
        return int(self.first.sum())

    def longest(self, runs: Sequence[Run], within: int | None = None) -> int:
        """Characters of its own in one run.

        Args:
            runs: of the document.
            within: only the first of its own characters, this many; None: all.
        """
        kept = self.first & ~self.held
        if within is not None:
            kept &= self.first.cumsum() <= within
        return max((self._of(kept, run) for run in runs), default=0)

    def unheld(self, runs: Sequence[Run]) -> int:
        """Characters of one run that no held-out document has.

        Args:
            runs: of the document.
        """
        return max((run.characters - self._of(self.held, run) for run in runs), default=0)

    def _of(self, marks: NDArray[np.bool_], run: Run) -> int:
        start, stop = np.searchsorted(self.places, (run.start, run.end))
        return int(marks[start:stop].sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class Units:
    """Documents of both groups as a test takes them, near copies left out.

    Attributes:
        corpus, held_out: places of units among the documents of each group.
        sides: whether a unit is of the corpus, those first, shape (N,).
        strata: units of about one length, shape (N,).
        scores: characters of the longest run, the median of its stratum taken off, shape (N,).
    """

    corpus: NDArray[np.int64]
    held_out: NDArray[np.int64]
    sides: NDArray[np.bool_]
    strata: NDArray[np.int64]
    scores: NDArray[np.float64]


def own_texts(
    corpus: Windows, held_out: Windows | None, *, seed: int
) -> tuple[list[OwnText], list[OwnText]]:
    """What is the own of each document, of the corpus and of those held out.

    Args:
        corpus: its windows.
        held_out: of documents that the model never saw; None: there are none.
        seed: of the order.
    """
    groups = [corpus] if held_out is None else [corpus, held_out]
    read = [_Read.of(windows, n) for windows in groups for n in range(len(windows.documents))]
    among, D = len(read), len(corpus.documents)
    order = np.random.default_rng([seed, 5]).permutation(among)
    owners = np.repeat(order, [len(part.stretches) for part in read])
    every = [part.stretches for part in read]
    _, kinds = np.unique(np.concatenate(every), return_inverse=True)
    earliest = np.full(int(kinds.max(initial=-1)) + 1, among)
    np.minimum.at(earliest, kinds, owners)
    outside = np.repeat(np.arange(among) >= D, [len(part) for part in every])
    held = np.bincount(kinds[outside], minlength=earliest.size) > 0
    found, begin = [], 0
    for number, part in enumerate(read):
        own = kinds[begin : (begin := begin + len(part.stretches))]
        first = ~part.covered(earliest[own] < order[number])
        also = part.covered(held[own]) if number < D else np.zeros_like(first)
        asked = part.places.size
        unit = int(first.sum()) >= max(1, min(asked / 2, part.suffix))
        found.append(OwnText(part.places, first, also, unit))
    return found[:D], found[D:]


def units(
    own: Sequence[OwnText],
    runs: Sequence[Sequence[Run]],
    others: Sequence[OwnText],
    other_runs: Sequence[Sequence[Run]],
) -> Units | None:
    """Documents of both groups, looked at over the same length within a stratum.

    Args:
        own: text of the documents of the corpus.
        runs: of each.
        others: text of held-out documents.
        other_runs: of each.

    Returns:
        None where one of the groups has no unit.
    """
    kept = [[n for n, text in enumerate(group) if text.unit] for group in (own, others)]
    if not (kept[0] and kept[1]):
        return None
    pairs = [(own[n], runs[n]) for n in kept[0]] + [(others[n], other_runs[n]) for n in kept[1]]
    lengths = np.array([text.characters for text, _ in pairs])
    strata = length_strata(lengths)
    shortest = {group: int(lengths[strata == group].min()) for group in np.unique(strata).tolist()}
    scores = [
        text.longest(some, shortest[group])
        for (text, some), group in zip(pairs, strata.tolist(), strict=True)
    ]
    return Units(
        corpus=np.array(kept[0]),
        held_out=np.array(kept[1]),
        sides=np.arange(len(pairs)) < len(kept[0]),
        strata=strata,
        scores=centred(scores, strata),
    )


@dataclass(frozen=True, eq=False)
class _Read:
    """What was looked at of a document.

    Attributes:
        places: of characters that were asked for, ascending.
        starts: of stretches in its prompts, its suffixes and just behind, ascending.
        stretches: a number of the text of each.
        length: of the document.
        suffix: characters of a suffix.
    """

    places: NDArray[np.int64]
    starts: NDArray[np.int64]
    stretches: NDArray[np.uint64]
    length: int
    suffix: float

    @classmethod
    def of(cls, windows: Windows, number: int) -> "_Read":
        document = windows.documents[number]
        asked, read = (np.zeros(len(document.text), dtype=bool) for _ in range(2))
        mine = [windows.windows[i] for i in windows.of_document(number)]
        for window in mine:
            asked[window.start : window.stop] = True
            tokens = window.encoded.scored_from
            begin, _ = document.characters(max(0, window.place - tokens), window.place)
            # What follows fills no window here, and may fill one in a longer copy.
            read[min(begin, window.start) : 2 * window.stop - window.start] = True
        starts, stretches = _stretches(document.text, read)
        mean = sum(w.stop - w.start for w in mine) / len(mine)
        return cls(np.flatnonzero(asked), starts, stretches, len(document.text), mean)

    def covered(self, taken: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether a character that was asked for is in one of these stretches."""
        marks = np.zeros(self.length + 1, dtype=np.int64)
        np.add.at(marks, self.starts[taken], 1)
        np.add.at(marks, np.minimum(self.starts[taken] + SHARED, self.length), -1)
        covered: NDArray[np.bool_] = marks.cumsum()[self.places] > 0
        return covered


def _stretches(text: str, read: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Where stretches that were looked at begin, and a hash of each, by 64 bits."""
    signs = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64)
    count = len(signs) - SHARED + 1
    if count < 1:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint64)
    hashed = np.zeros(count, dtype=np.uint64)
    for k in range(SHARED):
        hashed = hashed * _BASE + signs[k : k + count]
    whole = np.concatenate([[0], read.cumsum()])
    starts = np.flatnonzero(whole[SHARED:] - whole[:-SHARED] == SHARED)
    return starts, hashed[starts]
