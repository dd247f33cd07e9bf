"""The longest run of a document's own text that greedy decoding gives back, word for word.

A window shows which of its suffix's tokens are the model's first choice. A row of them is what
greedy decoding would give, prompted with the document up to there. Where the second half of a
window is such a row, the window is made twice as long until the model departs from the text.

Text that others have too is no memory of a document, and counts once. Documents are taken in an
order that is drawn without looking at their sides. A stretch of 20 characters belongs to the first
document that holds it, whatever of that was asked for; a document whose text is mostly that of
others is a near copy, and no unit of a test. From documents of the corpus all that a held-out
document holds is taken out as well.

Proof that a test by shuffling keeps its level: what is asked of a document is drawn without looking
at sides (see `windows`), what is its own follows from the order alone, and its stratum, the length
that is compared and the median of its stratum from these. So under a random split, without memory,
all arrangements of sides are equally likely, given all of these numbers. What is taken out beyond
that makes runs of the corpus shorter, and none longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.regurgitation.windows import Document, Windows
from lmexposure.scoring import WindowScores, score_windows
from lmexposure.statistics import centred, length_strata


@dataclass(frozen=True, kw_only=True)
class Run:
    """A row of tokens that are the model's first choice."""

    # first, stop: places of its tokens in the document's `placed.ids`
    first: int
    stop: int
    # start, end: its characters in the document
    start: int
    end: int
    prompt: int  # tokens of the document that the model was given in front
    whole: bool  # it does not end at the end of the model's context

    @property
    def characters(self) -> int:
        """Of the run."""
        return self.end - self.start

    @property
    def tokens(self) -> int:
        """Of the run."""
        return self.stop - self.first


def longest(runs: Sequence[Run]) -> Run | None:
    """The longest run of a document, in characters; None where no token was a first choice."""
    return max(runs, key=lambda run: run.characters, default=None)


def document_runs(
    model: Any, windows: Windows, scores: WindowScores, *, prefix: int, limit: int | None
) -> list[list[Run]]:
    """The runs of each document: the rows within its windows, and those followed beyond."""
    found: list[list[Run]] = [[] for _ in windows.documents]
    open_ends: list[list[tuple[int, int]]] = [[] for _ in windows.documents]  # (place, length)
    for window, hits in zip(windows.windows, scores.greedy, strict=True):
        document = windows.documents[window.document]
        for first, length in _rows(hits):
            run = _run(document, window.place, first, length, prefix, whole=True)
            found[window.document].append(run)
        if hits[-(len(hits) + 1) // 2 :].all():
            open_ends[window.document].append((window.place, len(hits)))
    _extend(model, windows.documents, open_ends, found, prefix, limit)
    return [[run for run in runs if run.characters] for runs in found]


def _extend(
    model: Any,
    documents: Sequence[Document],
    open_ends: list[list[tuple[int, int]]],
    runs: list[list[Run]],
    prefix: int,
    limit: int | None,
) -> None:
    """Follow rows beyond their windows, one of each document at a time."""
    under_way = {d: ends.pop(0) for d, ends in enumerate(open_ends) if ends}
    while under_way:
        asked = []
        for number, (place, length) in under_way.items():
            document = documents[number]
            longest = len(document.placed.ids) - place
            if limit is not None:
                longest = min(longest, limit - prefix - len(document.lead))
            asked.append((number, place, length, max(length, min(2 * length, longest)), longest))
        longer = [documents[d].encoded(p, prefix, n) for d, p, _, n, _ in asked]
        scored = score_windows(model, longer)
        for (number, place, _, length, longest), hits in zip(asked, scored.greedy, strict=True):
            document = documents[number]
            at_end = bool(hits[-1])
            if at_end and length < longest:
                under_way[number] = (place, length)
                continue
            first, found = max(_rows(hits), key=lambda row: row[1], default=(0, 0))
            ended = place + length >= len(document.placed.ids)
            touches = at_end and first + found == len(hits)
            run = _run(document, place, first, found, prefix, whole=ended or not touches)
            runs[number].append(run)
            # Windows inside of what was followed say nothing new.
            left = [end for end in open_ends[number] if end[0] + end[1] > place + length]
            open_ends[number] = left[1:]
            if left:
                under_way[number] = left[0]
            else:
                del under_way[number]


def _run(
    document: Document, place: int, first: int, length: int, prefix: int, *, whole: bool
) -> Run:
    begin = place + first
    start, end = document.characters(begin, begin + length)
    given = min(prefix, place - document.placed.first) + first
    return Run(
        first=begin, stop=begin + length, start=start, end=end, prompt=max(0, given), whole=whole
    )


def _rows(hits: np.ndarray[Any, np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """Where each row of hits begins, and how long it is."""
    misses = np.flatnonzero(np.concatenate([[True], ~hits, [True]]))
    lengths = np.diff(misses) - 1
    return [(int(misses[k]), int(lengths[k])) for k in np.flatnonzero(lengths)]


SHARED = 20  # characters of a stretch
_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no character is lost in the powers of 2**64


@dataclass(frozen=True, eq=False)
class OwnText:
    """Which characters that were asked for are a document's own."""

    places: NDArray[np.int64]  # of the characters in its text, ascending, shape (C,)
    first: NDArray[np.bool_]  # no document earlier in the order has them, shape (C,)
    # a held-out document has them too; of held-out documents nowhere, shape (C,)
    held: NDArray[np.bool_]
    unit: bool  # it is no near copy

    @property
    def characters(self) -> int:
        """Of its own, by the order alone."""
        return int(self.first.sum())

    def longest(
        self, runs: Sequence[Run], within: int | None = None, *, with_held: bool = False
    ) -> int:
        """Characters of its own in one run."""
        kept = self.first if with_held else self.first & ~self.held
        if within is not None:
            kept = kept & (self.first.cumsum() <= within)
        return max((self._of(kept, run) for run in runs), default=0)

    def unheld(self, runs: Sequence[Run]) -> int:
        """Characters of one run that no held-out document has."""
        return max((run.characters - self._of(self.held, run) for run in runs), default=0)

    def _of(self, marks: NDArray[np.bool_], run: Run) -> int:
        start, stop = np.searchsorted(self.places, (run.start, run.end))
        return int(marks[start:stop].sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class Units:
    """Documents of both groups as a test takes them, near copies left out."""

    # corpus, held_out: places of units among the documents of each group
    corpus: NDArray[np.int64]
    held_out: NDArray[np.int64]
    sides: NDArray[np.bool_]  # whether a unit is of the corpus, those first, shape (N,)
    strata: NDArray[np.int64]  # units of about one length, shape (N,)
    # characters of the longest run, the median of its stratum taken off, shape (N,)
    scores: NDArray[np.float64]


def own_texts(
    corpus: Windows, held_out: Windows | None, *, seed: int
) -> tuple[list[OwnText], list[OwnText]]:
    """What is the own of each document, of the corpus and of those held out."""
    groups = [corpus] if held_out is None else [corpus, held_out]
    read = [_Read.of(windows, n) for windows in groups for n in range(len(windows.documents))]
    among, D = len(read), len(corpus.documents)
    order = np.random.default_rng([seed, 5]).permutation(among)
    known, kinds = np.unique(np.concatenate([part.stretches for part in read]), return_inverse=True)
    earliest = np.full(known.size, among)
    held = np.zeros(known.size, dtype=bool)
    texts = (document.text for windows in groups for document in windows.documents)
    for number, text in enumerate(texts):
        hashed = _hashed(text)
        there = np.searchsorted(known, hashed)
        there = there[np.take(known, there, mode="clip") == hashed] if known.size else there[:0]
        np.minimum.at(earliest, there, order[number])
        held[there] |= number >= D
    found, begin = [], 0
    for number, part in enumerate(read):
        own = kinds[begin : (begin := begin + len(part.stretches))]
        first = ~part.covered(earliest[own] < order[number])
        also = part.covered(held[own]) if number < D else np.zeros_like(first)
        unit = int(first.sum()) >= max(1, min(part.places.size / 2, part.suffix))
        found.append(OwnText(part.places, first, also, unit))
    return found[:D], found[D:]


def units(
    own: Sequence[OwnText],
    runs: Sequence[Sequence[Run]],
    others: Sequence[OwnText],
    other_runs: Sequence[Sequence[Run]],
) -> Units | None:
    """Documents of both groups, looked at over the same length within a stratum."""
    kept = [[n for n, text in enumerate(group) if text.unit] for group in (own, others)]
    if not (kept[0] and kept[1]):
        return None
    pairs = [(own[n], runs[n]) for n in kept[0]] + [(others[n], other_runs[n]) for n in kept[1]]
    lengths = np.array([text.characters for text, _ in pairs])
    # Equal lengths may fall on both sides of an edge: which of them, no side may decide.
    mixed = np.random.default_rng(lengths.size).permutation(lengths.size)
    strata = np.empty(lengths.size, dtype=np.int64)
    strata[mixed] = length_strata(lengths[mixed])
    shortest = {group: int(lengths[strata == group].min()) for group in np.unique(strata).tolist()}
    scores, by_order = (
        np.array(
            [
                text.longest(some, shortest[group], with_held=with_held)
                for (text, some), group in zip(pairs, strata.tolist(), strict=True)
            ],
            dtype=float,
        )
        for with_held in (False, True)
    )
    return Units(
        corpus=np.array(kept[0]),
        held_out=np.array(kept[1]),
        sides=np.arange(len(pairs)) < len(kept[0]),
        strata=strata,
        scores=scores - by_order + centred(by_order, strata),
    )


@dataclass(frozen=True, eq=False)
class _Read:
    """What was looked at of a document."""

    places: NDArray[np.int64]  # of characters that were asked for, ascending
    starts: NDArray[np.int64]  # of stretches that hold one of these, ascending
    stretches: NDArray[np.uint64]  # a number of the text of each
    length: int  # of the document
    suffix: float  # characters of a suffix

    @classmethod
    def of(cls, windows: Windows, number: int) -> "_Read":
        text = windows.documents[number].text
        asked, near = (np.zeros(len(text), dtype=bool) for _ in range(2))
        mine = [windows.windows[i] for i in windows.of_document(number)]
        for window in mine:
            asked[window.start : window.stop] = True
            near[max(0, window.start - SHARED + 1) : window.stop] = True
        hashed = _hashed(text)
        starts = np.flatnonzero(near[: hashed.size])
        mean = sum(w.stop - w.start for w in mine) / len(mine)
        return cls(np.flatnonzero(asked), starts, hashed[starts], len(text), mean)

    def covered(self, taken: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether a character that was asked for is in one of these stretches."""
        marks = np.zeros(self.length + 1, dtype=np.int64)
        np.add.at(marks, self.starts[taken], 1)
        np.add.at(marks, np.minimum(self.starts[taken] + SHARED, self.length), -1)
        covered: NDArray[np.bool_] = marks.cumsum()[self.places] > 0
        return covered


def _hashed(text: str) -> NDArray[np.uint64]:
    """A hash of the stretch that begins at each character, by 64 bits."""
    signs = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64)
    count = max(0, len(signs) - SHARED + 1)
    hashed = np.zeros(count, dtype=np.uint64)
    for k in range(SHARED):
        hashed = hashed * _BASE + signs[k : k + count]
    return hashed
