"""The longest run of a document that greedy decoding gives back, word for word.

A window shows which of its suffix's tokens are the model's first choice. A row of them is what
greedy decoding would give, prompted with the document up to there. Where the second half of a
window is such a row, the window is made twice as long until the model departs from the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lmexposure.regurgitation.windows import Document, Windows
from lmexposure.scoring import WindowScores, score_windows


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
