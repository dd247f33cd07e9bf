"""Extraction: finding a secret from the model alone, given the format and perhaps a beginning.

By beam search, constrained to the format; greedy is the beam of width 1. (Carlini et al. 2019,
section 8, compares these with best-first search.)
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lmexposure._validate import integer
from lmexposure.canaries import Format
from lmexposure.errors import InputError, ModelError
from lmexposure.models import AnyContext, context_window, encode_in_context
from lmexposure.scoring.beam_search import Beam, Guess, Spelling, search_beams
from lmexposure.scoring.beginnings import find_beginning
from lmexposure.scoring.spelling import ByteLanguage, Vocabulary
from lmexposure.scoring.steps import RecomputedSteps, next_token_steps

_SAMPLED_FILLS = 64  # fills whose common token prefix is where a search begins

_BEAM_BYTES = 1 << 28  # of model states held at once
_MOST_ROWS = 2_048


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


@dataclass(frozen=True, kw_only=True)
class Extraction:
    """One search for one secret."""

    method: str  # "greedy" or "beam"
    revealed: int  # how many of the secret's first characters the attacker was given
    width: int  # candidates kept at each step
    found: bool  # whether the secret is in the final beam
    # its place there among all fills, other inserted canaries included; 1 = first guess
    place: int | None
    steps: int  # prefixes that the model computed until it was settled


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
        self.format = format
        self._vocabulary = vocabulary or Vocabulary(tokenizer)
        self._window = context_window(model.config)
        fills = [format.text(i) for i in format.sample(min(_SAMPLED_FILLS, format.size), seed=0)]
        encoded = encode_in_context(tokenizer, fills, context=context)
        found = find_beginning(
            tokenizer, self._vocabulary, fills, encoded, context=context, literal=format.prefix
        )
        if not found.ids:
            raise ModelError(
                f"format {format.name!r} begins with its secret and no token is in front of it "
                "in its row, so the model has nothing to begin from; put text before the first hole"
            )
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
        """Search for many secrets, as many searches side by side as memory holds.

        Adjoining searches that begin alike and are as wide share one beam. Which go together
        depends on the searches alone.
        """
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
        """One beam for all searches that begin alike."""
        wanted: dict[tuple[str, int], list[bytes]] = {}
        for search in searches:
            wanted.setdefault(self._key(search), []).append(self._text(search.index))
        beams = {key: self._beam(*key, wanted=texts) for key, texts in wanted.items()}
        self._run(list(beams.values()), watch)
        return [self._extraction(search, beams[self._key(search)]) for search in searches]

    def _extraction(self, search: SecretSearch, beam: Beam) -> Extraction:
        place = beam.place(self._text(search.index))
        return Extraction(
            method="greedy" if search.width == 1 else "beam",
            revealed=search.revealed,
            width=search.width,
            found=place is not None,
            place=place,
            steps=beam.steps,
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
                f"no fill of format {self.format.name!r} begins with the {len(beginning)} "
                "characters given; give a beginning of one of its texts"
            )
        known = self._lead + beginning
        left, spelled = known[self._offset :].encode(), known[: self._offset].encode()
        return Beam(spelled, self._spelling.state(left, state), width=width, wanted=wanted)

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
