"""Extraction: finding a secret from the model alone, given the format and perhaps a beginning.

Beam search over tokens, constrained to the format: at each step only tokens are followed that keep
the text a beginning of some fill. Greedy is the beam of width 1. Both stand on the scorer's own
next-token step. A token path need not be the tokenizer's own spelling of its text: an attacker
reads the text. (Carlini et al. 2019, section 8, compares these with best-first search.)
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure._validate import integer
from lmexposure.canaries import CanaryFormat
from lmexposure.errors import InputError, ModelError
from lmexposure.models.encoding import context_window, encode_in_context
from lmexposure.scoring.space.byte_language import ByteLanguage
from lmexposure.scoring.space.prefix import find_beginning
from lmexposure.scoring.space.vocabulary import Vocabulary
from lmexposure.scoring.steps import RecomputedSteps, next_token_steps

__all__ = ["Extraction", "Extractor", "Guess", "beam_width"]

_SAMPLED_FILLS = 64  # fills whose common token prefix is where a search begins

# Where a search stands in a text: known bytes still to be spelled, then a state of the format.
_State = tuple[bytes, int]


def beam_width(canaries: int) -> int:
    """The least width that is worth the name: 100, and twice the canaries of the format.

    A beam narrower than the number of inserted canaries can be filled by the other canaries.
    """
    return max(100, 2 * canaries)


@dataclass(frozen=True, kw_only=True)
class Guess:
    """A fill's text and its cost in bits behind the shared token prefix; lower = likelier."""

    text: str
    bits: float


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """One search for one secret.

    Attributes:
        method: "greedy" or "beam".
        revealed: how many of the secret's first characters the attacker was given.
        width: candidates kept at each step.
        found: whether the secret is in the final beam.
        place: its place there among all fills, other inserted canaries included; 1 = first guess.
        steps: prefixes that the model computed for this search.
    """

    method: str
    revealed: int
    width: int
    found: bool
    place: int | None
    steps: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as result.json holds them."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class _Beam:
    """Unfinished texts, cheapest first: costs in bits (N,), states and texts so far."""

    costs: NDArray[np.float64]
    states: list[_State]
    texts: list[bytes]


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """Allowed continuations (M,): the beam's row, the token, the state behind it."""

    rows: NDArray[np.int64]
    tokens: NDArray[np.int64]
    states: list[_State]


@dataclass(frozen=True, kw_only=True)
class _Candidates:
    """Every allowed continuation of a beam, cheapest first, with its parent's row."""

    rows: list[int]
    tokens: list[int]
    costs: list[float]
    states: list[_State]
    texts: list[bytes]


class Extractor:
    """Searches one format under one model.

    Args:
        model: a causal language model, left in the mode that it was in.
        tokenizer: its tokenizer.
        format: the canary format.
        context: left context, as for `log_perplexity`.
        vocabulary: what the tokens spell, where it is known already; one serves all formats.

    Attributes:
        slower: why its steps are slower than those of other models; empty where they are not.

    Raises:
        ModelError: the tokenizer's tokens cannot be followed character by character (it changes
            the text, as lower-casing ones do), or nothing stands before the secret to begin from.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        format: CanaryFormat,
        *,
        context: str | None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self.format = format
        self._context = context or ""
        self._vocabulary = vocabulary or Vocabulary(tokenizer)
        self._language = ByteLanguage(format.language)
        self._window = context_window(model.config)
        fills = [format.text(i) for i in format.sample(min(_SAMPLED_FILLS, format.size), seed=0)]
        encoded = encode_in_context(tokenizer, fills, context=context)
        found = find_beginning(
            tokenizer, self._vocabulary, fills, encoded, context=context, literal=format.prefix
        )
        if not found.ids:
            raise ModelError(
                f"format {format.name!r} begins with its secret and this tokenizer has neither BOS "
                "nor EOS, so the model has nothing to begin from; put text before the first hole"
            )
        if found.characters is None:
            raise ModelError(
                f"the tokenizer does not keep the text of format {format.name!r} as it is, so its "
                "tokens cannot be followed character by character; extraction is left out"
            )
        self._start, self._offset = found.ids, found.characters
        self._steps = next_token_steps(model, encoded[0].ids)
        self.slower = self._steps.slower if isinstance(self._steps, RecomputedSteps) else ""
        self._allowed: dict[_State, tuple[list[int], list[_State]]] = {}
        self._searches: dict[tuple[str, int], tuple[list[Guess], int]] = {}

    def search(self, beginning: str, *, width: int) -> list[Guess]:
        """The likeliest fills that a beam finds, best first, at most `width` of them.

        Args:
            beginning: what the attacker knows: a beginning of some fill's text.
            width: candidates kept at each step; 1 is greedy.

        Raises:
            InputError: no fill of the format begins so.
        """
        integer("width", width, low=1)
        alive = self._first(beginning)
        wanted = self._wanted(alive)
        state, bits = self._steps.start(self._start, wanted.tokens)
        finished: list[Guess] = []
        read = len(self._start)
        while True:
            candidates = self._extend(alive, wanted, bits)
            finished = self._finish(candidates, finished, width)
            kept = self._unfinished(candidates, finished, width)
            read += 1
            # A spelling in more tokens than the model reads at once cannot be followed further.
            if not kept or (self._window is not None and read > self._window):
                return finished
            alive = _Beam(
                costs=np.array([candidates.costs[i] for i in kept]),
                states=[candidates.states[i] for i in kept],
                texts=[candidates.texts[i] for i in kept],
            )
            wanted = self._wanted(alive)
            state, bits = self._steps.advance(
                state,
                np.array([candidates.rows[i] for i in kept]),
                np.array([candidates.tokens[i] for i in kept]),
                wanted.rows,
                wanted.tokens,
            )

    def find(self, index: int, *, revealed: int, width: int) -> Extraction:
        """Search for the secret with this index, its first `revealed` characters given.

        Args:
            index: the secret, in [0, format.size).
            revealed: characters of the secret that the attacker knows, from 0.
            width: candidates kept at each step; 1 is greedy.
        """
        guesses, steps = self._searched(self.format.revealed(index, revealed), width)
        secret = self.format.text(index)
        place = next((n for n, guess in enumerate(guesses, 1) if guess.text == secret), None)
        return Extraction(
            method="greedy" if width == 1 else "beam",
            revealed=revealed,
            width=width,
            found=place is not None,
            place=place,
            steps=steps,
        )

    def _searched(self, beginning: str, width: int) -> tuple[list[Guess], int]:
        """A search and its cost; with nothing revealed it is one search for all secrets."""
        if (beginning, width) not in self._searches:
            before = self._steps.evaluated
            guesses = self.search(beginning, width=width)
            self._searches[beginning, width] = (guesses, self._steps.evaluated - before)
        return self._searches[beginning, width]

    def _first(self, beginning: str) -> _Beam:
        """The beam before its first step: what is known still has to be spelled in tokens."""
        if self.format.prefix.startswith(beginning):
            beginning = self.format.prefix  # the template is public
        state = self._language.read(self._language.start, beginning.encode())
        if state is None:
            raise InputError(
                f"no fill of format {self.format.name!r} begins with the {len(beginning)} "
                "characters given; give a beginning of one of its texts"
            )
        known = self._context + beginning
        left, spelled = known[self._offset :].encode(), known[: self._offset].encode()
        return _Beam(costs=np.zeros(1), states=[(left, state)], texts=[spelled])

    def _advance(self, state: _State, byte: int) -> _State | None:
        known, inner = state
        if known:
            return (known[1:], inner) if known[0] == byte else None
        after = self._language.advance(inner, byte)
        return None if after is None else (b"", after)

    def _continuations(self, state: _State) -> tuple[list[int], list[_State]]:
        """The tokens that may follow in this state, and the state behind each; computed once."""
        if state not in self._allowed:
            pairs = self._vocabulary.continuations(state, self._advance)
            self._allowed[state] = ([t for t, _ in pairs], [s for _, s in pairs])
        return self._allowed[state]

    def _wanted(self, alive: _Beam) -> _Wanted:
        """All allowed continuations of the beam."""
        rows: list[int] = []
        tokens: list[int] = []
        states: list[_State] = []
        for row, state in enumerate(alive.states):
            allowed, behind = self._continuations(state)
            rows += [row] * len(allowed)
            tokens += allowed
            states += behind
        return _Wanted(
            rows=np.array(rows, dtype=np.int64),
            tokens=np.array(tokens, dtype=np.int64),
            states=states,
        )

    def _extend(self, alive: _Beam, wanted: _Wanted, bits: NDArray[np.float64]) -> _Candidates:
        """The wanted continuations, cheapest first."""
        rows, tokens, states = wanted.rows, wanted.tokens, wanted.states
        costs = alive.costs[rows] + bits
        order = np.argsort(costs, kind="stable").tolist()
        return _Candidates(
            rows=rows[order].tolist(),
            tokens=tokens[order].tolist(),
            costs=costs[order].tolist(),
            states=[states[i] for i in order],
            texts=[alive.texts[rows[i]] + self._vocabulary.surface(tokens[i]) for i in order],
        )

    def _finish(self, new: _Candidates, finished: list[Guess], width: int) -> list[Guess]:
        """The `width` cheapest whole texts so far; a text spelled in two ways counts once."""
        whole = [
            Guess(text=text.decode()[len(self._context) :], bits=cost)
            for text, cost, (known, inner) in zip(new.texts, new.costs, new.states, strict=True)
            if not known and self._language.complete(inner)
        ]
        cheapest: dict[str, Guess] = {}
        for guess in sorted(finished + whole, key=lambda g: g.bits):
            cheapest.setdefault(guess.text, guess)
        return list(cheapest.values())[:width]

    def _unfinished(self, new: _Candidates, finished: list[Guess], width: int) -> list[int]:
        """The cheapest candidates worth following: costs only grow, so the rest cannot place."""
        bound = finished[-1].bits if len(finished) == width else np.inf
        kept: list[int] = []
        for i, (cost, state) in enumerate(zip(new.costs, new.states, strict=True)):
            if len(kept) == width or cost >= bound:
                break
            if self._continuations(state)[0]:
                kept.append(i)
        return kept
