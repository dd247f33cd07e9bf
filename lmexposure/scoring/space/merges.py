"""Which tokens of a BPE tokenizer may stand side by side within one piece of text.

Two neighbours are what the tokenizer itself would write exactly when no merge ever joins the end of
the first with the beginning of the second. Within one piece a whole sequence is the tokenizer's own
when each pair of neighbours is, so a text can be cut into tokens from the left, pair by pair.
"""

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.scoring.space.vocabulary import backend_settings

_NEVER = np.iinfo(np.int64).max
_Piece = tuple[int, int, int]  # (token, time it is made, time it is merged into a longer one)
Spines = tuple[list[_Piece], list[_Piece]]  # successive first pieces, successive last pieces


@dataclass(frozen=True)
class Neighbours:
    """Which of K tokens may follow which.

    Attributes:
        classes: (K,) tokens with the same followers have the same class.
        follows: (C, K) bool: whether token k may follow a token of class c.
    """

    classes: NDArray[np.int64]
    follows: NDArray[np.bool_]


class Merges:
    """The merges of a BPE tokenizer, in their order.

    Args:
        vocab: token name -> id.
        merges: pairs of names, the first merged first.
        whole_words: a piece that is a token is taken whole before anything is merged.
    """

    def __init__(
        self, vocab: dict[str, int], merges: list[Any], *, whole_words: bool = False
    ) -> None:
        self.whole_words = whole_words
        self._vocab = vocab
        self._names = {token: name for name, token in vocab.items()}
        self._ranks: dict[tuple[int, int], tuple[int, int]] = {}
        for rank, merge in enumerate(merges):
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            if left in vocab and right in vocab and left + right in vocab:
                self._ranks[vocab[left], vocab[right]] = (rank, vocab[left + right])

    @classmethod
    def of(cls, tokenizer: Any) -> "Merges | None":
        """The merges of a tokenizer; None where it is no BPE or does more than merging."""
        model = backend_settings(tokenizer).get("model") or {}
        marks = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
        if model.get("type") != "BPE" or any(model.get(mark) for mark in marks):
            return None
        whole_words = bool(model.get("ignore_merges"))
        return cls(model["vocab"], model["merges"], whole_words=whole_words)

    def spines(self, token: int, *, whole: bool) -> Spines | None:
        """What a token begins with and ends with while it is merged.

        Args:
            token: its id.
            whole: it is never merged from smaller ones (a byte of an unknown character).

        Returns:
            the successive first pieces and last pieces; None for a token that merging never makes.
        """
        if whole:
            return [(token, -1, _NEVER)], [(token, -1, _NEVER)]
        pieces = [self._vocab.get(character, -1) for character in self._names.get(token, "")]
        if not pieces or -1 in pieces:
            return None
        first, last = [(pieces[0], -1, _NEVER)], [(pieces[-1], -1, _NEVER)]
        time = -1
        while len(pieces) > 1:
            options = [
                (*self._ranks[pair], place)
                for place, pair in enumerate(itertools.pairwise(pieces))
                if pair in self._ranks
            ]
            if not options:
                return None
            rank, made, place = min(options, key=lambda option: (option[0], option[2]))
            time = max(time, rank)
            if place == 0:
                first[-1] = (*first[-1][:2], time)
                first.append((made, time, _NEVER))
            if place + 2 == len(pieces):
                last[-1] = (*last[-1][:2], time)
                last.append((made, time, _NEVER))
            pieces[place : place + 2] = [made]
        return (first, last) if pieces == [token] else None

    def neighbours(self, spines: list[Spines]) -> Neighbours:
        """Which tokens may follow which, from the spines of each."""
        begins, ends = _by_piece([s[0] for s in spines]), _by_piece([s[1] for s in spines])
        follows = np.ones((len(spines), len(spines)), dtype=np.bool_)  # (K, K)
        for (left, right), (rank, _) in self._ranks.items():
            if left in ends and right in begins:
                _forbid(follows, rank, ends[left], begins[right])
        return _classified(follows)


def _by_piece(spines: list[list[_Piece]]) -> dict[int, NDArray[np.int64]]:
    """For each piece, rows (which token, time made, time merged) (N, 3)."""
    rows: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for number, spine in enumerate(spines):
        for piece, made, merged in spine:
            rows[piece].append((number, made, merged))
    return {piece: np.array(found, dtype=np.int64) for piece, found in rows.items()}


def _forbid(
    follows: NDArray[np.bool_], rank: int, ends: NDArray[np.int64], begins: NDArray[np.int64]
) -> None:
    """Take out the neighbours that a merge joins: both its pieces are there when its turn comes."""
    # Of two equal merges the one further left comes first: one within the first token would take
    # its last piece away, one within the second would come too late.
    ends, begins = ends[ends[:, 2] > rank], begins[begins[:, 2] >= rank]
    if (ends[:, 1] <= rank).all() and (begins[:, 1] <= rank).all():
        follows[np.ix_(ends[:, 0], begins[:, 0])] = False
        return
    # A piece made late by a merge that stands early in the list: its turn comes when both exist.
    time = np.maximum(ends[:, None, 1], begins[None, :, 1])
    joined = (time < ends[:, None, 2]) & (time <= begins[None, :, 2])
    follows[np.ix_(ends[:, 0], begins[:, 0])] &= ~joined


def _classified(follows: NDArray[np.bool_]) -> Neighbours:
    rows = np.packbits(follows, axis=1)
    numbers: dict[bytes, int] = {}
    classes = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows], np.int64)
    _, one_of_each = np.unique(classes, return_index=True)
    return Neighbours(classes=classes, follows=follows[one_of_each])
