"""Looks at documents that no model read, and looks with leaks planted among them.

What a model follows is a coin of each place, or of the three characters that end there: texts that
are alike come out alike. Sides fall at random, near copies on one side.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from lmexposure.models import Encoded, Placed
from lmexposure.regurgitation.own_text import SHARED, own_texts, units
from lmexposure.regurgitation.runs import Run
from lmexposure.regurgitation.windows import Document, Window, Windows
from lmexposure.statistics import centred, length_strata

_LETTERS = 26
_PROMPT = 3  # characters of a prompt, each a token
_SHORT = 4  # characters of the shortest run that is kept

Split = tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64]]  # scores, sides, strata


def of_lengths(
    draws: np.random.Generator,
    sides: NDArray[np.bool_],
    *,
    longer: int = 1,
    most: int = 1_000,
    chance: float | NDArray[np.float64] = 0.5,
    leaks: int = 0,
) -> Split:
    """Longest rows of coins, looked at over one length within a stratum.

    Args:
        draws: of lengths and coins.
        sides: whether a document is of the corpus, shape (N,).
        longer: how many times as long the documents of the corpus are.
        most: that a run can be.
        chance: of each coin, or of the coins of each document.
        leaks: documents of the corpus with 20 more in their row.
    """
    lengths = draws.integers(10, 60, size=sides.size) * np.where(sides, longer, 1)
    strata = length_strata(lengths)
    least = {group: lengths[strata == group].min() for group in np.unique(strata)}
    kept = np.array([least[group] for group in strata])
    # The largest of n geometric numbers: P(below k) = (1 - chance^k)^n.
    largest = np.floor(np.log(1 - draws.random(sides.size) ** (1 / kept)) / np.log(chance))
    largest[:leaks] += 20
    return centred(np.minimum(largest, most), strata), sides, strata


def of_texts(
    draws: np.random.Generator,
    *,
    copies: Sequence[int] = (),
    changed: float = 0.02,
    shared: int = 0,
) -> Split:
    """Documents of random letters by the way that a look goes: own texts, then units.

    Args:
        draws: of texts, sides and the model.
        copies: near copies in each cluster, beside 30 documents of their own.
        changed: share of the characters of a near copy that are others.
        shared: characters of a text that half of all documents have, and the model knows by heart.
    """
    known = draws.integers(_LETTERS, size=shared)
    clusters: list[list[NDArray[np.int64]]] = []
    for size in [1] * 30 + list(copies):
        text = draws.integers(_LETTERS, size=draws.integers(60, 160))
        if shared and draws.random() < 0.5:
            text = np.insert(text, draws.integers(_PROMPT, text.size), known)
        others = draws.integers(_LETTERS, size=(size, text.size))
        edited = np.where(draws.random(others.shape) < changed, others, text)
        clusters.append([text, *edited[1:]])
    inside = draws.permutation(np.arange(len(clusters)) < len(clusters) // 2)
    table = draws.random((_LETTERS,) * 3) < 0.6
    looks = []
    for side in (True, False):
        texts = [text for n, some in enumerate(clusters) if inside[n] == side for text in some]
        looks.append((_windows(texts), [_runs(text, table, known) for text in texts]))
    (corpus, runs), (held_out, other_runs) = looks
    own, others_own = own_texts(corpus, held_out, seed=int(draws.integers(1 << 30)))
    found = units(own, runs, others_own, other_runs)
    assert found is not None
    return found.scores, found.sides, found.strata


def halves(size: int) -> NDArray[np.bool_]:
    """As many documents of the corpus as held-out ones, shape (2 size,)."""
    return np.arange(2 * size) < size


NULLS: dict[str, Callable[[np.random.Generator], Split]] = {
    "one law": lambda draws: of_lengths(draws, halves(60)),
    "twice as long": lambda draws: of_lengths(draws, halves(60), longer=2),
    "heavy ties": lambda draws: of_lengths(draws, halves(60), most=4),
    "one-token runs": lambda draws: of_lengths(draws, halves(60), most=1, chance=0.02),
    "near copies": lambda draws: of_texts(draws, copies=(5, 20)),
    "boilerplate in both": lambda draws: of_texts(draws, shared=3 * SHARED),
    "2,000 against 400": lambda draws: of_lengths(draws, np.arange(2_400) < 2_000),
}


class _OneEach(Windows):
    """One window for each document."""

    def of_document(self, number: int) -> list[int]:
        return [number]


def _windows(texts: Sequence[NDArray[np.int64]]) -> Windows:
    documents, windows = [], []
    for number, codes in enumerate(texts):
        text = "".join(map(chr, (codes + ord("a")).tolist()))
        places = np.arange(codes.size)[:, None] + [0, 1]
        placed = Placed(ids=codes.tolist(), first=0, places=places)
        documents.append(Document(number=number + 1, copies=1, text=text, placed=placed, lead=()))
        windows.append(
            Window(
                document=number,
                place=_PROMPT,
                encoded=Encoded(ids=placed.ids, scored_from=_PROMPT),
                start=_PROMPT,
                stop=codes.size,
            )
        )
    count = len(texts)
    return _OneEach(
        documents=documents,
        windows=windows,
        among=count,
        read=count,
        distinct=count,
        too_short=0,
        characters=sum(text.size for text in texts),
        sha256="",
    )


def _runs(
    codes: NDArray[np.int64], table: NDArray[np.bool_], known: NDArray[np.int64]
) -> list[Run]:
    """Rows of characters that the model follows behind the prompt, but for the shortest."""
    hits = np.zeros(codes.size + 1, dtype=bool)
    hits[_PROMPT:-1] = table[codes[1:-2], codes[2:-1], codes[3:]]
    if known.size:
        views = np.lib.stride_tricks.sliding_window_view(codes, min(known.size, codes.size))
        for place in np.flatnonzero((views == known[: views.shape[1]]).all(1)).tolist():
            hits[max(_PROMPT, place) : place + known.size] = True
    edges = np.flatnonzero(np.diff(np.concatenate([[False], hits]).astype(int))).reshape(-1, 2)
    return [
        Run(first=start, stop=end, start=start, end=end, prompt=_PROMPT, whole=True)
        for start, end in edges[edges[:, 1] - edges[:, 0] >= _SHORT].tolist()
    ]
