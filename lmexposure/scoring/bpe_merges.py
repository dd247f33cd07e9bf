"""The token graph of a BPE tokenizer: which tokens may follow which, and how many fills that gives.

Two tokens within one piece of text are what the tokenizer itself would write exactly when no merge
ever joins the end of the first with the beginning of the second. A whole sequence is the
tokenizer's own when each pair of neighbours is, so a text can be cut into tokens from the left,
pair by pair.

A state of the graph is a place among the fills and the class of the last token. Nothing is listed:
which tokens go on is a row of the rule, and the fills are counted with matrices, in exact integers.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from lmexposure.scoring.runtime import Bools, Floats, Ints
from lmexposure.scoring.spelling import (
    FALLBACK,
    ByteNode,
    CutsDepend,
    Pieces,
    Texts,
    backend_settings,
)
from lmexposure.scoring.token_rules import Edges, EncodedSample, NotApplicable, RuleGraph, lead_of

_NEVER = np.iinfo(np.int64).max
_Piece = tuple[int, int, int]  # (token, time it is made, time it is merged into a longer one)
Spines = tuple[list[_Piece], list[_Piece]]  # successive first pieces, successive last pieces
_LIMB = 30  # bits; sums of up to 2^22 limbs stay exact in a float64
_BLOCK = 1 << 24  # cells of the rule that are held as float64 at once
# For each place: the tokens that fit there by their number among the K tokens (T,), the places
# behind them (T,), whether a piece begins with them, so that any token may come before (T,).
_Fitting = tuple[Ints, Ints, Bools]
Places = list[_Fitting]
_REMEMBERED = 64  # fills whose cuts are known
_MOST_TOKENS = 20_000  # the rule takes a few bytes for each pair of them
_MOST_CELLS = 1 << 25  # places x classes x limbs


@dataclass(frozen=True)
class Neighbours:
    """Which of K tokens may follow which."""

    classes: Ints  # (K,) tokens with the same followers have the same class
    follows: Bools  # (C, K) bool: whether token k may follow a token of class c


class Merges:
    """The merges of a BPE tokenizer, in their order."""

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
        """What a token begins with and ends with while it is merged."""
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
        classes, first = _equal_rows(follows)
        return Neighbours(classes=classes, follows=follows[first])


def _by_piece(spines: list[list[_Piece]]) -> dict[int, Ints]:
    """For each piece, rows (which token, time made, time merged) (N, 3)."""
    rows: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for number, spine in enumerate(spines):
        for piece, made, merged in spine:
            rows[piece].append((number, made, merged))
    return {piece: np.array(found, dtype=np.int64) for piece, found in rows.items()}


def _forbid(follows: Bools, rank: int, ends: Ints, begins: Ints) -> None:
    """Take out the neighbours that a merge joins: both its pieces are there when its turn comes."""
    # Of two equal merges the one further left comes first: one within the first token would take
    # its last piece away, one within the second would come too late.
    ends, begins = ends[ends[:, 2] > rank], begins[begins[:, 2] >= rank]
    if (ends[:, 1] <= rank).all() and (begins[:, 1] <= rank).all():
        follows[np.ix_(ends[:, 0], begins[:, 0])] = False
        return
    # A piece made late by a merge that is early in the list: its turn comes when both exist.
    time = np.maximum(ends[:, None, 1], begins[None, :, 1])
    joined = (time < ends[:, None, 2]) & (time <= begins[None, :, 2])
    follows[np.ix_(ends[:, 0], begins[:, 0])] &= ~joined


def _equal_rows(table: Bools) -> tuple[Ints, Ints]:
    """A number for each row, equal for equal ones, from 0; and the first row of each number."""
    numbers: dict[bytes, int] = {}
    rows = np.packbits(table, axis=1)
    found = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows], np.int64)
    return found, np.unique(found, return_index=True)[1]


class PairGraph:
    """States are place * classes + class of the last token."""

    def __init__(
        self,
        places: Places,
        complete: list[bool],
        ids: Ints,
        neighbours: Neighbours,
        start: tuple[int, int],
        bits: int,
        beyond: list[bool] | None = None,
    ) -> None:
        self._places = places
        self._complete = np.array(complete, dtype=np.bool_)
        self._beyond = np.array(beyond or [False] * len(complete), dtype=np.bool_)
        self._ends = self._complete | self._beyond
        self._ids = ids
        self._rule = neighbours
        self._classes = len(neighbours.follows)
        # Tokens that may follow the same classes: their numbers (K,), and one row for each (N, C).
        self._columns, first = _equal_rows(neighbours.follows.T)
        self._followed = np.ascontiguousarray(neighbours.follows.T[first])
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
        return bool(self._ends[state // self._classes])

    def edges(self, state: int) -> Edges:
        """See `Edges`."""
        place, row = divmod(state, self._classes)
        tokens, there, free = self._onward(place)
        classes = self._rule.classes[tokens]
        counts = self._counts[there, classes]  # (T, limbs)
        kept = (free | self._rule.follows[row, tokens]) & counts.any(axis=1)
        tokens, there, classes, counts = tokens[kept], there[kept], classes[kept], counts[kept]
        ends = self._ends[there]
        single = (counts[:, 0] == 1) & ~counts[:, 1:].any(axis=1)
        shares = _ratios(counts, self._counts[place, row])
        leaf = ends & (single | self._beyond[there])
        return self._ids[tokens], there * self._classes + classes, shares, ends, leaf

    def step(self, state: int, token: int) -> int | None:
        """The state behind one token, or None where no fill goes on so."""
        place, row = divmod(state, self._classes)
        tokens, there, free = self._onward(place)
        number = int(np.searchsorted(self._ids, token))
        at = int(np.searchsorted(tokens, number))
        if at == len(tokens) or self._ids[tokens[at]] != token:
            return None
        behind = (int(there[at]), int(self._rule.classes[number]))
        if not (free[at] or self._rule.follows[row, number]) or not self._counts[behind].any():
            return None
        return behind[0] * self._classes + behind[1]

    def _onward(self, place: int) -> _Fitting:
        """What fits at a place from which a path goes on."""
        if not self._beyond[place]:
            return self._places[place]
        tokens, there, free = self._places[place]
        return tokens[:0], there[:0], free[:0]

    def _count(self, place: int, rule: Iterable[Floats]) -> None:
        tokens, there, free = self._places[place]
        counts = self._counts[there, self._rule.classes[tokens]]  # (T, limbs)
        bound = np.zeros((len(self._followed), counts.shape[1]))
        np.add.at(bound, self._columns[tokens[~free]], counts[~free])
        sums = np.concatenate([rows @ bound for rows in rule]) + counts[free].sum(axis=0)
        sums[:, 0] += self._complete[place]
        self._counts[place] = _carried(sums)
        if not self._beyond[place]:
            self._measure(place, np.flatnonzero(counts.any(axis=1)))

    def _measure(self, place: int, alive: Ints) -> None:
        """Most tokens from a place to the end of a fill, for each class of the token before."""
        tokens, there, free = (column[alive] for column in self._places[place])
        steps = 1 + self._longest[there, self._rule.classes[tokens]]
        longest = np.full(self._classes, steps[free].max(initial=0))
        for most in sorted(set(steps[~free].tolist())):
            columns = np.unique(self._columns[tokens[~free & (steps == most)]])
            reached = self._followed[columns].any(axis=0)
            longest[reached] = np.maximum(longest[reached], most)
        self._longest[place] = longest


def _rows(followed: Bools) -> Iterator[Floats]:
    """The rule's rows for matrix products, (C', N) each, a block of classes at a time."""
    step = max(1, _BLOCK // max(1, len(followed)))
    for first in range(0, followed.shape[1], step):
        yield followed[:, first : first + step].T.astype(np.float64)


def _carried(limbs: Floats) -> Floats:
    """Limbs below 2^30 but for the highest, which shows when it runs over."""
    limbs = limbs.copy()
    for i in range(limbs.shape[1] - 1):
        over = np.floor(limbs[:, i] / 2**_LIMB)
        limbs[:, i] -= over * 2**_LIMB
        limbs[:, i + 1] += over
    return limbs


def _ratios(counts: Floats, whole: Floats) -> Floats:
    """Shares counts / whole, (K, limbs) / (limbs,), scaled so that any size fits a float64."""
    top = int(np.flatnonzero(whole)[-1])
    scale = 2.0 ** (_LIMB * np.clip(np.arange(len(whole)) - top, -30.0, 0.0))
    return np.asarray((counts @ scale) / (whole @ scale), dtype=np.float64)


def by_merges(sample: EncodedSample) -> RuleGraph:
    """Neighbours by the merges of a BPE tokenizer, exactly."""
    merges = Merges.of(sample.tokenizer)
    if merges is None:
        raise NotApplicable("it does not merge pairs of tokens")
    try:
        pieces = Pieces.of(_texts(sample, lead_of(sample)))
    except CutsDepend as reason:
        raise NotApplicable(str(reason)) from None
    return RuleGraph(
        rule="merges",
        graph=_pair_graph(sample, merges, pieces),
        beginning=sample.ids,
        examples=pieces.examples,
    )


def _texts(sample: EncodedSample, lead: str) -> Texts:
    backend, around = sample.tokenizer.backend_tokenizer, sample.around
    surface = sample.vocabulary.surfaces
    unknown: frozenset[str] = frozenset()
    if sample.vocabulary.fallback:
        characters = sorted(set(sample.format.characters) | set(lead) | set(around.trail))
        rows = [backend.encode(c, add_special_tokens=False).ids for c in characters]
        unknown = frozenset(
            character
            for character, row in zip(characters, rows, strict=True)
            if not sample.vocabulary.fallback.isdisjoint(row)
        )

    @lru_cache(maxsize=_REMEMBERED)  # behind a fill each character is asked about
    def cuts(fill: str) -> frozenset[int]:
        whole = around.front + fill + around.behind
        encoding = backend.encode(whole, add_special_tokens=False)
        found, text, last = [], b"", None
        wanted, skip = (lead + fill + around.trail).encode(), around.before - around.start
        for token, word in zip(encoding.ids[skip:], encoding.word_ids[skip:], strict=True):
            if token in around.barriers and len(text) >= len(wanted):
                break
            if word != last:
                found.append(len(text))
            spelled, last = surface[token], word
            if spelled is None:
                raise CutsDepend("it has no token for some character")
            text += spelled
        if text != wanted:
            raise CutsDepend("it does not keep the text as it is")
        return frozenset(found)

    return Texts(
        format=sample.format,
        lead=lead,
        trail=around.trail,
        begun=sample.begun,
        unknown=unknown,
        cuts=cuts,
    )


def _fitting(root: ByteNode, pieces: Pieces) -> Ints:
    """Every token at every place where no cut tears it."""
    n = len(pieces.moves)
    behind = np.full((2 * FALLBACK, n), -1, dtype=np.int64)  # by symbol and place
    cut = np.zeros((2 * FALLBACK, n), dtype=np.bool_)
    for place, moves in enumerate(pieces.moves):
        for symbol, (there, begins) in moves.items():
            behind[symbol, place], cut[symbol, place] = there, begins
    rows = []
    places = np.arange(n)
    todo = [(child, symbol, places, places, None) for symbol, child in root.children.items()]
    while todo:
        node, symbol, starts, heres, free = todo.pop()
        there = behind[symbol, heres]
        kept = (there >= 0) & ((free is None) | ~cut[symbol, heres])
        if not kept.any():
            continue
        starts, there = starts[kept], there[kept]
        free = cut[symbol, heres[kept]] if free is None else free[kept]
        rows += [np.stack([starts, np.full(len(starts), t), there, free]) for t in node.tokens]
        todo += [(child, s, starts, there, free) for s, child in node.children.items()]
    return np.concatenate(rows, axis=1).T if rows else np.empty((0, 4), dtype=np.int64)


def _pair_graph(sample: EncodedSample, merges: Merges, pieces: Pieces) -> PairGraph:
    fitting = _fitting(sample.vocabulary.trie, pieces)
    last = sample.ids[-1] if len(sample.ids) > sample.around.before else -1
    spines = _spines(sample, merges, set(fitting[:, 1].tolist()), last)
    if last not in spines:  # what may follow it is known only behind a cut
        fitting = fitting[(fitting[:, 0] != pieces.start) | (fitting[:, 3] == 1)]
    ids = np.array(sorted(spines), dtype=np.int64)
    neighbours = merges.neighbours([spines[token] for token in ids.tolist()])
    bits = sample.format.size.bit_length()
    if len(pieces.moves) * len(neighbours.follows) * (bits // 30 + 2) > _MOST_CELLS:
        raise NotApplicable("its space has too many states to count")
    fitting = fitting[np.isin(fitting[:, 1], ids)]
    fitting[:, 1] = np.searchsorted(ids, fitting[:, 1])
    fitting = fitting[np.lexsort((fitting[:, 1], fitting[:, 0]))]
    ends = np.searchsorted(fitting[:, 0], np.arange(len(pieces.moves) + 1))
    places: Places = [
        (fitting[a:b, 1], fitting[a:b, 2], fitting[a:b, 3].astype(np.bool_))
        for a, b in itertools.pairwise(ends.tolist())
    ]
    start = (pieces.start, int(np.searchsorted(ids, last)) if last in spines else 0)
    return PairGraph(places, pieces.complete, ids, neighbours, start, bits, pieces.beyond)


def _spines(
    sample: EncodedSample, merges: Merges, tokens: set[int], last: int
) -> dict[int, Spines]:
    """How each token is merged; tokens that no merge makes are left out."""
    found: dict[int, Spines] = {}
    for token in tokens | {last}:
        spines = merges.spines(token, whole=token in sample.vocabulary.fallback)
        if spines is not None:
            found[token] = spines
        elif token != last and merges.whole_words:
            raise NotApplicable("it has tokens for whole words that no merge makes")
    if len(found) > _MOST_TOKENS:
        raise NotApplicable(f"more than {_MOST_TOKENS} of its tokens fit the format")
    return found
