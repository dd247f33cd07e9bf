"""Canaries in rows of tokens, whatever tokens their context made of them.

Tokens at the edges of a text depend on what is next to it, the pieces of text that tokens mean
do not. So pieces are joined, and canaries are searched as strings of pieces.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lmexposure.errors import ModelError
from lmexposure.models import encode_in_context, is_tokenizer

_LEAST = 4  # pieces' characters of a canary, at the least, that begin or end a row
_SPACES = "\u0120\u2581"  # how byte-level and SentencePiece vocabularies write a space
_LAST = "\U0010ffff"


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A canary, or a part of one, in a row."""

    id: str  # of the canary; of the format, where too little is there to know which canary
    # "whole"; "head", the row ends within it; "tail", the row begins within it
    kind: Literal["whole", "head", "tail"]
    begin: int  # number of the first token that holds some of it
    secret: int  # number of the first token behind what all fills begin with
    end: int  # number of the token behind it


@dataclass(frozen=True, kw_only=True)
class _Group:
    """The canaries of one format, as strings of pieces."""

    name: str
    whole: Mapping[str, str]  # pieces -> id
    prefix: str  # what all fills begin with
    suffix: int  # how many characters all fills end with

    @cached_property
    def lengths(self) -> Sequence[int]:
        """How long canaries are, the longest first."""
        return sorted({len(canary) for canary in self.whole}, reverse=True)

    @cached_property
    def forwards(self) -> Sequence[str]:
        """The canaries, sorted."""
        return sorted(self.whole)

    @cached_property
    def backwards(self) -> Sequence[str]:
        """The canaries from their ends, sorted."""
        return sorted(canary[::-1] for canary in self.whole)

    def places(self, row: str) -> Iterator[int]:
        """Where a canary may begin."""
        for wanted in [self.prefix] if self.prefix else self.forwards:
            place = row.find(wanted)
            while place >= 0:
                yield place
                place = row.find(wanted, place + 1)

    def whole_at(self, row: str, place: int) -> tuple[str, int] | None:
        """(id, end) of the longest canary that is there."""
        for length in self.lengths:
            found = self.whole.get(row[place : place + length])
            if found is not None:
                return found, place + length
        return None

    def head(self, rest: str) -> str | None:
        """The canary that this end of a row begins; the format's name for one of several."""
        if len(rest) < max(_LEAST, len(self.prefix)):
            return None
        found = _beginning_with(self.forwards, rest)
        if not found:
            return None
        single = len(found) == 1 and len(rest) > len(self.prefix)
        return self.whole[found[0]] if single else self.name

    def tail(self, row: str) -> str | None:
        """The canary whose end this row begins with."""
        least = max(_LEAST, self.suffix + 1)
        for length in range(min(len(row), self.lengths[0] - 1), least - 1, -1):
            found = [canary[::-1] for canary in _beginning_with(self.backwards, row[:length][::-1])]
            if len(found) == 1 and len(found[0]) > length:
                return self.whole[found[0]]
        return None


class TokenSearch:
    """Looks for canaries in rows of tokens."""

    def __init__(
        self,
        tokenizer: Any,
        groups: Mapping[str, Mapping[str, str]],
        others: Mapping[str, Sequence[str]],
    ) -> None:
        if not is_tokenizer(tokenizer):
            raise ModelError(
                f"{type(tokenizer).__name__} is no tokenizer of transformers; give that of the "
                "training"
            )
        self._tokenizer, self._special = tokenizer, tokenizer.all_special_ids
        # Where numbers were left out, the last is more than there are tokens.
        last = max(tokenizer.get_vocab().values())
        pieces = tokenizer.convert_ids_to_tokens(list(range(last + 1)))
        self._pieces = [piece or "" for piece in pieces] + [""]
        self._groups = [
            self._group(name, texts, others[name]) for name, texts in groups.items() if texts
        ]

    def hits(self, ids: NDArray[np.int64]) -> list[Hit]:
        """Every canary in a row of tokens, and parts of canaries at its two ends."""
        inside = np.flatnonzero(~np.isin(ids, self._special))
        if not inside.size:
            return []
        first, last = int(inside[0]), len(self._pieces) - 1
        own = ids[first : inside[-1] + 1]
        # A number without a token means no text.
        pieces = [self._pieces[i] for i in np.where((own < 0) | (own > last), last, own).tolist()]
        row = "".join(pieces)
        found = [hit for group in self._groups for hit in _hits(group, row)]
        starts = [0, *accumulate(map(len, pieces))] if found else []
        return [
            Hit(
                id=name,
                kind=kind,
                begin=first + bisect_right(starts, begin) - 1,
                secret=first + bisect_right(starts, secret) - 1,
                end=first + bisect_left(starts, end),
            )
            for name, kind, begin, secret, end in found
        ]

    def _group(self, name: str, texts: Mapping[str, str], others: Sequence[str]) -> _Group:
        text = next(iter(texts.values()))
        encode_in_context(self._tokenizer, [text], context=None)  # refuses what it does not know
        if self._joined(f"{text} {text}").count(self._written(text)) < 2:
            raise ModelError(
                f"the tokenizer writes a canary of format {name!r} otherwise in another place, so "
                "that it cannot be counted in batches; count it in the corpus: lmexposure verify"
            )
        whole = {self._written(text): canary for canary, text in texts.items()}
        if len(whole) < len(texts):
            raise ModelError(
                f"the tokenizer writes two canaries of format {name!r} alike, so that they cannot "
                "be distinguished in batches; use a format whose characters it keeps"
            )
        fills = [*whole, *map(self._written, others)]
        suffix = _common_beginning([fill[::-1] for fill in fills])
        return _Group(name=name, whole=whole, prefix=_common_beginning(fills), suffix=len(suffix))

    def _written(self, text: str) -> str:
        """A text's pieces; a space that the tokenizer puts before it does not belong to it."""
        joined = self._joined(text)
        return joined if text[:1].isspace() else joined.lstrip(_SPACES)

    def _joined(self, text: str) -> str:
        ids = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return "".join(self._pieces[i] for i in ids)


_Found = tuple[str, Literal["whole", "head", "tail"], int, int, int]


def _hits(group: _Group, row: str) -> Iterator[_Found]:
    """(id, kind, first character, first character of the secret, end) of each."""
    for place in group.places(row):
        secret, whole = place + len(group.prefix), group.whole_at(row, place)
        if whole is not None:
            yield whole[0], "whole", place, secret, whole[1]
        elif (name := group.head(row[place:])) is not None:
            yield name, "head", place, secret, len(row)
    if not group.prefix:
        yield from _bare_head(group, row)
    if (name := group.tail(row)) is not None:
        yield name, "tail", 0, 0, 0


def _bare_head(group: _Group, row: str) -> Iterator[_Found]:
    """The longest end of a row that begins a canary of a format with nothing fixed before it."""
    for length in range(min(len(row), group.lengths[0] - 1), _LEAST - 1, -1):
        found = _beginning_with(group.forwards, row[-length:])
        if found and len(found[0]) > length:
            name = group.whole[found[0]] if len(found) == 1 else group.name
            yield name, "head", len(row) - length, len(row) - length, len(row)
            return


def _beginning_with(ordered: Sequence[str], text: str) -> Sequence[str]:
    """The strings of a sorted sequence that begin with this one."""
    return ordered[bisect_left(ordered, text) : bisect_right(ordered, text + _LAST)]


def _common_beginning(texts: Sequence[str]) -> str:
    # Of all texts between them in order, too: the first and the last differ soonest.
    first, last = min(texts), max(texts)
    pairs = zip(first, last, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(last)))
    return first[:same]
