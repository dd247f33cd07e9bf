"""The token graph of a tokenizer whose rule reaches from one token to the next.

A state is a place among the fills and the class of the last token. Nothing is listed: which tokens
go on is a row of the rule, and the fills are counted with matrices, in exact integers.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from lmexposure.scoring.space.merges import Neighbours
from lmexposure.scoring.space.token_graph import Edges

_LIMB = 30  # bits; sums of up to 2^22 limbs stay exact in a float64
_BLOCK = 1 << 24  # cells of the rule that are held as float64 at once

# For each place: the tokens that fit there by their number among the K tokens (T,), the places
# behind them (T,), whether a piece begins with them, so that any token may stand before (T,).
Places = list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]]


class PairGraph:
    """States are place * classes + class of the last token.

    Args:
        places: what fits at each place; tokens lead to places with smaller numbers.
        complete: for each place, whether a fill ends there.
        ids: (K,) the tokens' ids, ascending.
        neighbours: which of them may follow which.
        start: the first place and the number of the token before it.
        bits: of the number of fills, rounded up.
    """

    def __init__(
        self,
        places: Places,
        complete: list[bool],
        ids: NDArray[np.int64],
        neighbours: Neighbours,
        start: tuple[int, int],
        bits: int,
    ) -> None:
        self._places = places
        self._complete = complete
        self._ends = np.array(complete, dtype=np.bool_)
        self._ids = ids
        self._rule = neighbours
        self._classes = len(neighbours.follows)
        self._columns, self._followed = _equal_columns(neighbours.follows)
        limbs = bits // _LIMB + 2
        shape = (len(places), self._classes)
        self._counts = np.zeros((*shape, limbs))  # float64 limbs, the lowest first
        self._longest = np.zeros(shape, dtype=np.int64)
        kept = list(_rows(self._followed)) if self._followed.size <= _BLOCK else None
        for place in range(len(places)):
            self._count(place, kept or _rows(self._followed))
        self.root = start[0] * self._classes + int(neighbours.classes[start[1]])

    def count(self, state: int) -> int:
        """The number of fills at or below a state."""
        limbs = self._counts[divmod(state, self._classes)]
        return sum(int(limb) << (_LIMB * i) for i, limb in enumerate(limbs))

    def longest(self, state: int) -> int:
        """Most tokens from a state to the end of a fill."""
        return int(self._longest[divmod(state, self._classes)])

    def complete(self, state: int) -> bool:
        """Whether a fill ends here."""
        return self._complete[state // self._classes]

    def edges(self, state: int) -> Edges:
        """See `Edges`."""
        place, row = divmod(state, self._classes)
        tokens, there, free = self._places[place]
        classes = self._rule.classes[tokens]
        counts = self._counts[there, classes]  # (T, limbs)
        kept = (free | self._rule.follows[row, tokens]) & counts.any(axis=1)
        tokens, there, classes, counts = tokens[kept], there[kept], classes[kept], counts[kept]
        ends = self._ends[there]
        one = (counts[:, 0] == 1) & ~counts[:, 1:].any(axis=1)
        shares = _ratios(counts, self._counts[place, row])
        return self._ids[tokens], there * self._classes + classes, shares, ends, ends & one

    def step(self, state: int, token: int) -> int | None:
        """The state behind one token, or None where no fill goes on so."""
        place, row = divmod(state, self._classes)
        tokens, there, free = self._places[place]
        number = int(np.searchsorted(self._ids, token))
        at = int(np.searchsorted(tokens, number))
        if at == len(tokens) or self._ids[tokens[at]] != token:
            return None
        behind = (int(there[at]), int(self._rule.classes[number]))
        if not (free[at] or self._rule.follows[row, number]) or not self._counts[behind].any():
            return None
        return behind[0] * self._classes + behind[1]

    def _count(self, place: int, rule: Iterable[NDArray[np.float64]]) -> None:
        tokens, there, free = self._places[place]
        counts = self._counts[there, self._rule.classes[tokens]]  # (T, limbs)
        bound = np.zeros((len(self._followed), counts.shape[1]))
        np.add.at(bound, self._columns[tokens[~free]], counts[~free])
        sums = np.concatenate([rows @ bound for rows in rule]) + counts[free].sum(axis=0)
        sums[:, 0] += self._ends[place]
        self._counts[place] = _carried(sums)
        self._measure(place, np.flatnonzero(counts.any(axis=1)))

    def _measure(self, place: int, alive: NDArray[np.int64]) -> None:
        """Most tokens from a place to the end of a fill, for each class of the token before."""
        tokens, there, free = (column[alive] for column in self._places[place])
        steps = 1 + self._longest[there, self._rule.classes[tokens]]
        longest = np.full(self._classes, steps[free].max(initial=0))
        for most in sorted(set(steps[~free].tolist())):
            columns = np.unique(self._columns[tokens[~free & (steps == most)]])
            reached = self._followed[columns].any(axis=0)
            longest[reached] = np.maximum(longest[reached], most)
        self._longest[place] = longest


def _rows(followed: NDArray[np.bool_]) -> Iterator[NDArray[np.float64]]:
    """The rule's rows for matrix products, (C', N) each, a block of classes at a time."""
    step = max(1, _BLOCK // max(1, len(followed)))
    for first in range(0, followed.shape[1], step):
        yield followed[:, first : first + step].T.astype(np.float64)


def _equal_columns(follows: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Tokens that may follow the same classes: their numbers (K,) and one row for each (N, C)."""
    packed = np.packbits(follows.T, axis=1)
    numbers: dict[bytes, int] = {}
    columns = np.array([numbers.setdefault(c.tobytes(), len(numbers)) for c in packed], np.int64)
    _, first = np.unique(columns, return_index=True)
    return columns, np.ascontiguousarray(follows.T[first])


def _carried(limbs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Limbs below 2^30 but for the highest, which shows when it runs over."""
    limbs = limbs.copy()
    for i in range(limbs.shape[1] - 1):
        over = np.floor(limbs[:, i] / 2**_LIMB)
        limbs[:, i] -= over * 2**_LIMB
        limbs[:, i + 1] += over
    return limbs


def _ratios(counts: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """counts (K, limbs) over whole (limbs,), scaled so that numbers of any size fit a float64."""
    top = int(np.flatnonzero(whole)[-1])
    scale = 2.0 ** (_LIMB * np.clip(np.arange(len(whole)) - top, -30.0, 0.0))
    return np.asarray((counts @ scale) / (whole @ scale), dtype=np.float64)
