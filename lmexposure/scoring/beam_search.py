"""Beam searches over the tokens of a format, many side by side.

At each step only tokens are followed that keep the text a beginning of some fill. All beams begin
behind the same tokens and read one token a step, so that one forward pass serves all of them: a
greedy search alone would compute one row at a time. A search for named secrets ends
once it is settled which of them it finds, and at which place.

A token path need not be the tokenizer's own spelling of its text: an attacker reads the text.
(Carlini et al. 2019, section 8, compares such searches with best-first search.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lmexposure.scoring.branch_and_bound import refuse_nan
from lmexposure.scoring.runtime import Bools, Floats, Ints
from lmexposure.scoring.spelling import ByteLanguage, Vocabulary
from lmexposure.scoring.steps import Steps

# Known bytes to be spelled, state of the format's bytes, whether a token begins here.
_Reading = tuple[bytes, int, bool]


@dataclass(frozen=True, kw_only=True)
class Guess:
    """A fill's text and its cost in bits behind the shared token prefix; lower = likelier."""

    text: str
    bits: float


@dataclass(frozen=True, kw_only=True)
class _Followers:
    """The K tokens that may follow in a state: ids and the states behind them, shape (K,) each."""

    tokens: Ints
    states: Ints
    beyond: Ints
    ends: Bools
    goes_on: Bools

    def __len__(self) -> int:
        return len(self.tokens)


class Spelling:
    """All ways to spell the fills of a format in tokens, as numbered states."""

    def __init__(self, language: ByteLanguage, vocabulary: Vocabulary) -> None:
        self._language, self._vocabulary = language, vocabulary
        self._numbers: dict[tuple[bytes, int], int] = {}
        self._keys: list[tuple[bytes, int]] = []
        self._followers: dict[int, _Followers] = {}
        self._goes_on: dict[int, bool] = {}

    def state(self, known: bytes, inner: int) -> int:
        """The number of the state with these bytes still to be spelled, then this one."""
        key = (known, inner)
        if key not in self._numbers:
            self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return self._numbers[key]

    def surface(self, token: int) -> bytes:
        """The bytes that a token adds."""
        return self._vocabulary.surface(token)

    def followers(self, state: int) -> _Followers:
        """What may follow in a state; computed once."""
        found = self._followers.get(state)
        if found is None:
            pairs = self._vocabulary.continuations((*self._keys[state], True), self._advance)
            behind = [(known, inner) for _, (known, inner, _) in pairs]
            states = [self.state(*key) for key in behind]
            found = self._followers[state] = _Followers(
                tokens=np.array([token for token, _ in pairs], dtype=np.int64),
                states=np.array(states, dtype=np.int64),
                beyond=np.array([self._language.beyond(inner) for _, inner in behind], np.int64),
                ends=np.array([self._whole(number) for number in states], dtype=bool),
                goes_on=np.array([self._continues(number) for number in states], dtype=bool),
            )
        return found

    def _whole(self, state: int) -> bool:
        known, inner = self._keys[state]
        return not known and self._language.complete(inner)

    def _continues(self, state: int) -> bool:
        if state not in self._goes_on:
            fresh = (*self._keys[state], True)
            self._goes_on[state] = self._vocabulary.follows(fresh, self._advance)
        return self._goes_on[state]

    def _advance(self, key: _Reading, byte: int) -> _Reading | None:
        known, inner, fresh = key
        if known:
            return (known[1:], inner, False) if known[0] == byte else None
        after = self._language.advance(inner, byte)
        if after is None or (fresh and self._language.beyond(after)):
            return None
        return b"", after, False


class Beam:
    """One search: `width` candidates are kept at each step; 1 is greedy."""

    def __init__(
        self, spelled: bytes, state: int, *, width: int, wanted: Sequence[bytes] | None = None
    ) -> None:
        self.width, self.first = width, state
        # the cheapest whole texts so far, cheapest first, at most `width`: text and bits. A text
        # that is spelled in two ways counts once. Where texts are wanted, those that are dearer
        # than all of them may be missing.
        self.finished: list[tuple[bytes, float]] = []
        self.steps = 1  # prefixes that the model computed for this search
        self.texts = [spelled]  # of the candidates kept, cheapest first
        self._wanted = None if wanted is None else list(wanted)

    def place(self, text: bytes) -> int | None:
        """The place of a wanted text among all that was found; 1 = first guess."""
        return next((n for n, (found, _) in enumerate(self.finished, 1) if found == text), None)

    def take(self, new: "_Candidates") -> Ints:
        """Numbers of the candidates that are followed, cheapest first; none: the search is over."""
        self._finish(new)
        kept = _cheapest(new.costs, new.goes_on & (new.costs < self._bound()), self.width)
        self.texts = [new.text(i) for i in kept.tolist()]
        if self._wanted is not None and not self._hopeful():
            self.texts, kept = [], kept[:0]
        return kept

    def _finish(self, new: "_Candidates") -> None:
        """Merge in the cheapest whole texts among the candidates."""
        full = len(self.finished) == self.width
        cheaper = new.ends & (new.costs < self.finished[-1][1]) if full else new.ends
        whole: dict[bytes, float] = {}
        for i in _cheapest(new.costs, cheaper, len(new.costs)).tolist():
            whole.setdefault(new.text(i), float(new.costs[i]))
            if len(whole) == self.width:
                break
        merged: dict[bytes, float] = {}
        for text, cost in sorted([*self.finished, *whole.items()], key=lambda found: found[1]):
            merged.setdefault(text, cost)
        self.finished = list(merged.items())[: self.width]

    def _bound(self) -> float:
        """Costs only grow: a candidate that costs this much changes nothing that is asked for."""
        last = self.finished[-1][1] if len(self.finished) == self.width else np.inf
        if self._wanted is None:
            return last
        costs = dict(self.finished)
        return min(last, max(costs.get(text, np.inf) for text in self._wanted))

    def _hopeful(self) -> bool:
        """Drop the wanted texts that no candidate leads to any more; whether any is left."""
        assert self._wanted is not None, "asked of searches for named texts"
        found = {text for text, _ in self.finished}
        self._wanted = [
            text
            for text in self._wanted
            if text in found or any(text.startswith(begun) for begun in self.texts)
        ]
        return bool(self._wanted)


@dataclass(frozen=True, kw_only=True)
class _Candidates:
    """The M continuations of one beam: costs in bits, tokens, states, each shape (M,)."""

    costs: Floats
    parents: Ints
    tokens: Ints
    beyond: Ints
    ends: Bools
    goes_on: Bools
    texts: list[bytes]
    spelling: Spelling

    def text(self, i: int) -> bytes:
        """What is spelled of the fill."""
        surface = self.spelling.surface(int(self.tokens[i]))
        return self.texts[int(self.parents[i])] + surface[: len(surface) - int(self.beyond[i])]


@dataclass(frozen=True, kw_only=True)
class _Wanted(_Followers):
    """All M continuations of N rows: what `_Followers` says, and the row, shape (M,) each."""

    rows: Ints


def search_beams(
    steps: Steps,
    spelling: Spelling,
    beginning: Sequence[int],
    beams: Sequence[Beam],
    most: int,
    watch: Callable[[int], None] = lambda read: None,
) -> None:
    """Run all beams to their ends; each then holds what it found."""
    alive = list(beams)
    sizes = np.ones(len(alive), dtype=np.int64)  # rows of each beam
    costs = np.zeros(len(alive))
    states = np.array([beam.first for beam in alive], dtype=np.int64)
    wanted = _wanted(spelling, states)
    model, bits = steps.start(beginning, wanted.tokens)
    for read in range(len(beginning) + 1, most + 2):
        refuse_nan(bits, read - len(beginning) - 1)
        totals = costs[wanted.rows] + bits
        kept = _kept(alive, sizes, wanted, totals, spelling)
        alive = [beam for beam, some in zip(alive, kept, strict=True) if len(some)]
        if not alive or read > most:
            return
        chosen = [some for some in kept if len(some)]
        sizes, rows = np.array([len(some) for some in chosen]), np.concatenate(chosen)
        for beam, size in zip(alive, sizes.tolist(), strict=True):
            beam.steps += size
        first = read == len(beginning) + 1  # of one row, which all beams share
        parents = np.zeros_like(rows) if first else wanted.rows[rows]
        tokens, costs, states = wanted.tokens[rows], totals[rows], wanted.states[rows]
        wanted = _wanted(spelling, states)
        model, bits = steps.advance(model, parents, tokens, wanted.rows, wanted.tokens)
        watch(read - len(beginning))


def _wanted(spelling: Spelling, states: Ints) -> _Wanted:
    found = [spelling.followers(state) for state in states.tolist()]
    return _Wanted(
        rows=np.repeat(np.arange(len(found)), [len(followers) for followers in found]),
        tokens=np.concatenate([followers.tokens for followers in found]),
        states=np.concatenate([followers.states for followers in found]),
        beyond=np.concatenate([followers.beyond for followers in found]),
        ends=np.concatenate([followers.ends for followers in found]),
        goes_on=np.concatenate([followers.goes_on for followers in found]),
    )


def _kept(
    beams: Sequence[Beam], sizes: Ints, wanted: _Wanted, totals: Floats, spelling: Spelling
) -> list[Ints]:
    """For each beam, numbers of the candidates that it follows."""
    ends = np.cumsum(sizes)
    cuts = np.searchsorted(wanted.rows, [0, *ends])  # a beam's rows, and so its candidates, adjoin
    kept = []
    for n, beam in enumerate(beams):
        own = slice(cuts[n], cuts[n + 1])
        chosen = beam.take(
            _Candidates(
                costs=totals[own],
                parents=wanted.rows[own] - (ends[n] - sizes[n]),
                tokens=wanted.tokens[own],
                beyond=wanted.beyond[own],
                ends=wanted.ends[own],
                goes_on=wanted.goes_on[own],
                texts=beam.texts,
                spelling=spelling,
            )
        )
        kept.append(chosen + cuts[n])
    return kept


def _cheapest(costs: Floats, among: Bools, most: int) -> Ints:
    """Numbers of the cheapest of those marked, cheapest first, the earlier one first in a tie."""
    chosen = np.flatnonzero(among)
    if len(chosen) > most:
        limit = np.partition(costs[chosen], most - 1)[most - 1]
        chosen = chosen[costs[chosen] <= limit]
    return chosen[np.argsort(costs[chosen], kind="stable")][:most]
