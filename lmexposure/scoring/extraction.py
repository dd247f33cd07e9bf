"""Extraction: finding a secret from the model alone, given the format and perhaps a beginning.

By beam search, constrained to the format; greedy is the beam of width 1. At each step only tokens
are followed that keep the text a beginning of some fill. All beams begin behind the same tokens and
read one token a step, so that one forward pass serves all of them: a greedy search alone would
compute one row at a time. A search for named secrets ends once it is settled which of them it
finds, and at which place.

A token path need not be the tokenizer's own spelling of its text: an attacker reads the text.
(Carlini et al. 2019, section 8, compares such searches with best-first search.)
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lmexposure._validate import integer
from lmexposure.canaries import Format
from lmexposure.errors import InputError, ModelError
from lmexposure.models import AnyContext, context_window, encode_in_context
from lmexposure.scoring.beginnings import find_beginning, refuse_no_beginning
from lmexposure.scoring.branch_and_bound import refuse_nan
from lmexposure.scoring.runtime import Bools, Floats, Ints, halved, module_of, out_of_memory
from lmexposure.scoring.spelling import ByteLanguage, Vocabulary
from lmexposure.scoring.steps import RecomputedSteps, Steps, next_token_steps, path_bits
from lmexposure.studies import Extraction

# Known bytes to be spelled, state of the format's bytes, whether a token begins here.
_Reading = tuple[bytes, int, bool]
_SAMPLED_FILLS = 64  # fills whose common token prefix is where a search begins
_BEAM_BYTES = 1 << 28  # of model states held at once
_MOST_ROWS = 2_048
# Texts of a beam whose cost is computed beforehand: one for as many candidates, or it costs more
# than it saves.
_WORTH = 8
_SLACK = 0.5  # bits by which the same path may cost more in a beam, of weights in half precision


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
        self._language, self.vocabulary = language, vocabulary
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

    def followers(self, state: int) -> _Followers:
        """What may follow in a state; computed once."""
        found = self._followers.get(state)
        if found is None:
            pairs = self.vocabulary.continuations((*self._keys[state], True), self._advance)
            behind = [(known, inner) for _, (known, inner, _) in pairs]
            states = [self.state(*key) for key in behind]
            found = self._followers[state] = _Followers(
                tokens=np.array([token for token, _ in pairs], dtype=np.int64),
                states=np.array(states, dtype=np.int64),
                beyond=np.array([self._language.beyond(inner) for _, inner in behind], np.int64),
                ends=np.array(
                    [not known and self._language.complete(inner) for known, inner in behind], bool
                ),
                goes_on=np.array([self._continues(number) for number in states], dtype=bool),
            )
        return found

    def _continues(self, state: int) -> bool:
        if state not in self._goes_on:
            fresh = (*self._keys[state], True)
            self._goes_on[state] = self.vocabulary.follows(fresh, self._advance)
        return self._goes_on[state]

    def _advance(self, key: _Reading, byte: int) -> _Reading | None:
        known, inner, fresh = key
        if known:
            return (known[1:], inner, False) if known[0] == byte else None
        after = self._language.advance(inner, byte)
        if after is None or (fresh and self._language.beyond(after)):
            return None
        return b"", after, False


@dataclass(frozen=True, kw_only=True)
class Spelled:
    """The tokenizer's own spelling of a text behind what all beams begin with, and its cost."""

    tokens: Sequence[int]
    bits: float


class Beam:
    """One search: `width` candidates are kept at each step; 1 is greedy.

    As long as it follows a wanted text in a spelling whose cost is known, candidates that cost more
    than that whole text are let go: they come behind it, and crowd out nothing that comes before.
    """

    def __init__(
        self,
        spelled: bytes,
        state: int,
        *,
        width: int,
        wanted: Sequence[bytes] | None = None,
        own: Mapping[bytes, Spelled] | None = None,  # of wanted texts
    ) -> None:
        self.width, self.first = width, state
        # the cheapest whole texts so far, cheapest first, at most `width`: text and bits. A text
        # that is spelled in two ways counts once. Where texts are wanted, those that are dearer
        # than all of them may be missing.
        self.finished: list[tuple[bytes, float]] = []
        self.steps = 1  # prefixes that the model computed for this search
        self.texts = [spelled]  # of the candidates kept, cheapest first
        self._wanted = None if wanted is None else list(wanted)
        self._own = dict(own or {})  # of the texts that are followed as they are spelled there
        self._rows = dict.fromkeys(self._own, 0)  # the candidate that each has come to
        self._read = 0  # tokens

    def place(self, text: bytes) -> int | None:
        """The place of a wanted text among all that was found; 1 = first guess."""
        return next((n for n, (found, _) in enumerate(self.finished, 1) if found == text), None)

    def take(self, new: "_Candidates") -> Ints:
        """Numbers of the candidates that are followed, cheapest first; none: the search is over."""
        self._finish(new)
        kept = _cheapest(new.costs, new.goes_on & (new.costs < self._bound()), self.width)
        self.texts = [new.text(i) for i in kept.tolist()]
        self._follow(new.parents[kept], new.tokens[kept])
        if self._wanted is not None and not self._hopeful():
            self.texts, kept = [], kept[:0]
        return kept

    def _follow(self, parents: Ints, tokens: Ints) -> None:
        """Find the wanted texts among the candidates kept; of those that are gone none is known."""
        for text, own in list(self._own.items()):
            read = own.tokens[self._read : self._read + 1]
            on = np.flatnonzero((parents == self._rows[text]) & np.isin(tokens, read))
            if len(on):
                self._rows[text] = int(on[0])
            else:
                del self._own[text]
        self._read += 1

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
        costs = {text: own.bits + _SLACK for text, own in self._own.items()} | dict(self.finished)
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
    vocabulary: Vocabulary

    def text(self, i: int) -> bytes:
        """What is spelled of the fill."""
        surface = self.vocabulary.surface(int(self.tokens[i]))
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
                vocabulary=spelling.vocabulary,
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


def beam_width(canaries: int) -> int:
    """The least width that is worth the name: 100, and twice the canaries of the format."""
    return max(100, 2 * canaries)


@dataclass(frozen=True, kw_only=True)
class SecretSearch:
    """A search to be made: for the secret `index`, `revealed` characters given, `width` wide."""

    index: int
    revealed: int
    width: int

    def __post_init__(self) -> None:
        integer("width", self.width, low=1)


class Extractor:
    """Searches one format under one model."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        format: Format,
        *,
        context: AnyContext,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        model, self.format = module_of(model), format
        self._vocabulary = vocabulary or Vocabulary(tokenizer)
        self._window = context_window(model.config)
        fills = [format.text(i) for i in format.sample(min(_SAMPLED_FILLS, format.size), seed=0)]
        encoded = encode_in_context(tokenizer, fills, context=context)
        found = find_beginning(
            tokenizer, self._vocabulary, fills, encoded, context=context, literal=format.prefix
        )
        refuse_no_beginning(format, found.ids)
        if found.characters is None:
            raise ModelError(
                f"the tokenizer does not keep the text of format {format.name!r} as it is, so its "
                "tokens cannot be followed character by character; extraction is left out"
            )
        self._start, self._offset, self._lead = found.ids, found.characters, found.lead
        self._language = ByteLanguage(format.language, trail=found.trail.encode())
        self._steps = next_token_steps(model, encoded[0].ids)
        # why its steps are slower than those of other models; empty where they are not
        self.slower = self._steps.slower if isinstance(self._steps, RecomputedSteps) else ""
        self._spelling = Spelling(self._language, self._vocabulary)
        self._encode = partial(encode_in_context, tokenizer, context=context)
        self._own: dict[bytes, Spelled] = {}  # of the secrets, as far as they were asked for

    def search(self, beginning: str, *, width: int) -> list[Guess]:
        """The likeliest fills that a beam finds, best first, at most `width` of them."""
        beam = self._beam(beginning, integer("width", width, low=1), None)
        self._run([beam])
        before = len(self._lead)
        return [Guess(text=text.decode()[before:], bits=bits) for text, bits in beam.finished]

    def find(self, index: int, *, revealed: int, width: int) -> Extraction:
        """Search for the secret with this index, its first `revealed` characters given."""
        search = SecretSearch(index=index, revealed=revealed, width=width)
        return next(rows[0] for rows in self.find_all([search]))

    def find_all(
        self,
        searches: Sequence[SecretSearch],
        *,
        done: int = 0,
        watch: Callable[[int], None] = lambda done: None,
    ) -> Iterator[list[Extraction]]:
        """Search for many secrets, as many searches side by side as memory holds."""
        before = 0
        for group in self._together(searches):
            if before >= done:
                yield self._found(group, partial(self._report, watch, before, len(group)))
            before += len(group)

    def _report(self, watch: Callable[[int], None], before: int, part: int, read: int) -> None:
        """Spelled byte by byte, a search reads `longest` tokens; mostly it reads fewer."""
        watch(before + int(part * min(1.0, read / self._longest)))

    def _together(self, searches: Sequence[SecretSearch]) -> Iterator[list[SecretSearch]]:
        """The searches in order, in parts whose beams are no wider together than memory holds."""
        most, wide = self._most_rows(), 0
        part: list[SecretSearch] = []
        seen: set[tuple[str, int]] = set()
        for search in searches:
            key = self._key(search)
            if part and key not in seen and wide + search.width > most:
                yield part
                part, seen, wide = [], set(), 0
            wide += 0 if key in seen else search.width
            seen.add(key)
            part.append(search)
        if part:
            yield part

    def _key(self, search: SecretSearch) -> tuple[str, int]:
        """Searches are the same where the beginning known and the width are."""
        return self.format.revealed(search.index, search.revealed), search.width

    def _found(
        self, searches: Sequence[SecretSearch], watch: Callable[[int], None]
    ) -> list[Extraction]:
        """One beam for all searches that begin alike; fewer at a time where memory runs out."""
        try:
            return self._found_together(searches, watch)
        except (RuntimeError, MemoryError) as failure:
            if not out_of_memory(failure) or len(searches) < 2:
                raise
        size = halved(len(searches))
        return [*self._found(searches[:size], watch), *self._found(searches[size:], watch)]

    def _found_together(
        self, searches: Sequence[SecretSearch], watch: Callable[[int], None]
    ) -> list[Extraction]:
        wanted: dict[tuple[str, int], list[bytes]] = {}
        for search in searches:
            wanted.setdefault(self._key(search), []).append(self._text(search.index))
        worth = [texts for (_, width), texts in wanted.items() if len(texts) * _WORTH <= width]
        self._learn([text for texts in worth for text in texts])
        beams = {key: self._beam(*key, wanted=texts) for key, texts in wanted.items()}
        self._run(list(beams.values()), watch)
        return [self._extraction(search, beams[self._key(search)]) for search in searches]

    def _learn(self, texts: Sequence[bytes]) -> None:
        """Compute what these secrets cost in the tokenizer's spelling."""
        new = [text for text in dict.fromkeys(texts) if text not in self._own]
        if not new:
            return
        fills = [text.decode().removeprefix(self._lead) for text in new]
        begun = len(self._start)
        paths = {
            text: each.ids[begun:]
            for text, each in zip(new, self._encode(fills), strict=True)
            # Of a rare fill the first token may be merged with what the others begin with.
            if list(each.ids[:begun]) == list(self._start) and len(each.ids) > begun
        }
        if paths:
            costs = path_bits(self._steps, self._start, list(paths.values())).tolist()
            for (text, path), bits in zip(paths.items(), costs, strict=True):
                self._own[text] = Spelled(tokens=path, bits=bits)

    def _extraction(self, search: SecretSearch, beam: Beam) -> Extraction:
        place = beam.place(self._text(search.index))
        left = self.format.fills_left(search.index, search.revealed)
        return Extraction(
            method="greedy" if search.width == 1 else "beam",
            revealed=search.revealed,
            width=search.width,
            found=place is not None,
            place=place,
            steps=beam.steps,
            proven=None,
            fills_left=left,
            by_chance=min(1.0, search.width / left),
        )

    def _text(self, index: int) -> bytes:
        return (self._lead + self.format.text(index)).encode()

    def _beam(self, beginning: str, width: int, wanted: Sequence[bytes] | None) -> Beam:
        """A beam before its first step: what is known still has to be spelled in tokens."""
        if self.format.prefix.startswith(beginning):
            beginning = self.format.prefix  # the template is public
        state = self._language.read(self._language.start, beginning.encode())
        if state is None:
            raise InputError(
                f"no text of format {self.format.name!r} begins with the {len(beginning)} "
                "characters given; give a beginning of one of its texts"
            )
        known = self._lead + beginning
        left, spelled = known[self._offset :].encode(), known[: self._offset].encode()
        own = {text: self._own[text] for text in wanted or () if text in self._own}
        first = self._spelling.state(left, state)
        return Beam(spelled, first, width=width, wanted=wanted, own=own)

    def _run(self, beams: Sequence[Beam], watch: Callable[[int], None] = lambda read: None) -> None:
        most = sys.maxsize if self._window is None else self._window
        search_beams(self._steps, self._spelling, self._start, beams, most, watch)

    @property
    def _longest(self) -> int:
        """Bytes of a fill behind the tokens that all fills share."""
        return len(self._text(0)) - self._offset

    def _most_rows(self) -> int:
        """Rows of all beams together whose states fit into memory, spelled byte by byte."""
        state, _ = self._steps.start(self._start, np.zeros(0, dtype=np.int64))
        row_bytes = state.row_bytes(self._longest, every=False)
        return max(1, min(_MOST_ROWS, int(_BEAM_BYTES / row_bytes)))
