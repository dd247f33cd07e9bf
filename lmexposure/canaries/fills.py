"""Fills of formats in texts: where they may be, where they are, and how often.

Texts of a list are found in the bytes of a corpus by one look at the data. The last 15 bytes of a
text, wherever it is in the data, cover exactly one of the data's words of eight bytes, counted from
its beginning. So only every eighth place is looked at, for any of the words that the end of a text
can put there; where one is, for the last words of the texts. What is left is compared in full.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice

import numpy as np
from numpy.typing import NDArray

from lmexposure.canaries.format import Format

_WORD = 8
_TAIL = 2 * _WORD - 1  # bytes that cover a whole word wherever they begin
_FEW = 4096  # bytes; of fewer, Python's own set is quicker
_FREQUENT = b" etaoinshrdlcumwfgypbvk"  # letters of English text, most frequent first
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads neighbours (Knuth 6.4)
_ROOM, _MOST_BITS = 64, 22  # of a table: places for each word, and log2 of the most


class TextSearch:
    """Finds texts of a list."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [text.encode() for text in texts]
        self._short = [n for n, text in enumerate(self._texts) if len(text) < _TAIL]
        self._numbers = {text: number for number, text in enumerate(self._texts)}
        self._by_tail: dict[bytes, set[int]] = {}  # lengths
        for text in self._texts:
            if len(text) >= _TAIL:
                self._by_tail.setdefault(text[-_TAIL:], set()).add(len(text))
        # By how many bytes a word may be before the last one of its text: a bit for each.
        self._gaps: dict[bytes, int] = {}
        for tail in self._by_tail:
            for gap in range(_WORD):
                word = tail[_WORD - 1 - gap : _TAIL - gap]
                self._gaps[word] = self._gaps.get(word, 0) | 1 << gap
        self._table = _Table(self._gaps)
        self._last = _Table({tail[-_WORD:]: 1 for tail in self._by_tail})

    def found(self, data: bytes) -> list[tuple[int, int, int]]:
        """(first byte, end, number of the text) of each place where one is."""
        found = [
            (at, at + len(self._texts[number]), number)
            for number in self._short
            for at in word_places(data, self._texts[number])
        ]
        for end in self._ends(data) if self._by_tail else ():
            for length in self._by_tail.get(data[max(end - _TAIL, 0) : end], ()):
                number = self._numbers.get(data[max(end - length, 0) : end])
                if number is not None and len(self._texts[number]) == length:
                    found.append((end - length, end, number))
        return sorted(found, key=lambda place: (place[0], -place[1]))

    def _ends(self, data: bytes) -> list[int]:
        """Where texts may end: up to seven bytes behind a word that their tails can cover."""
        if len(data) < _FEW:
            words_at = range(0, len(data) - _WORD + 1, _WORD)
            covered = [at for at in words_at if data[at : at + _WORD] in self._gaps]
            return [at + gap + _WORD for at in covered for gap in range(_WORD)]
        gaps = self._table.values(np.frombuffer(data, np.uint64, count=len(data) // _WORD))
        hits = np.flatnonzero(gaps != 0)
        gaps, hits = gaps[hits], hits * _WORD
        # The word at each byte.
        every = np.ndarray(len(data) - _WORD + 1, np.uint64, data, strides=(1,))
        ends: list[int] = []
        for gap in range(_WORD):
            places = hits[gaps & (1 << gap) != 0] + gap
            places = places[places < len(every)]
            ends += (places[self._last.values(every[places]) != 0] + _WORD).tolist()
        return ends


class _Table:
    """Looks up many words at once: 0 where one is surely not among these, else their values."""

    def __init__(self, values: Mapping[bytes, int]) -> None:
        bits = max(1, min(_MOST_BITS, (_ROOM * len(values)).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._values = np.zeros(1 << bits, np.uint8)
        words = np.frombuffer(b"".join(values), np.uint64)
        # Two words may share a place, which then has the bits of both.
        bits_of = np.array(list(values.values()), np.uint8)
        np.bitwise_or.at(self._values, self._places(words), bits_of)

    def values(self, words: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """The bits of each; more than these where another word has the same place."""
        return self._values[self._places(words)]

    def _places(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        return ((words * _FACTOR) >> self._shift).view(np.int64)


def word_places(data: bytes, word: bytes) -> Iterator[int]:
    """At which bytes the word begins, in no order; it may overlap itself."""
    if len(word) < 4:
        yield from (found.start() for found in re.finditer(b"(?=%s)" % re.escape(word), data))
        return
    rarity = [_FREQUENT.find(byte) % len(_FREQUENT) for byte in word.lower()]
    # The four that other text has least often.
    begin = max(range(len(word) - 3), key=lambda n: sum(rarity[n : n + 4]))
    four = np.frombuffer(word, np.uint32, count=1, offset=begin)[0]
    for shift in range(min(4, len(data) - 3)):
        fours = np.frombuffer(data, np.uint32, count=(len(data) - shift) // 4, offset=shift)
        for hit in np.flatnonzero(fours == four).tolist():
            at = 4 * hit + shift - begin
            if at >= 0 and data.startswith(word, at):
                yield at


_PLACES_NAMED = 10
_TOGETHER = 512  # texts that are searched at once
# Half of a surrogate pair is refused where a text is hashed, not here.
_ANY = "surrogatepass"


@dataclass(frozen=True)
class Fill:
    """A fill at text[start:end]; its secret stays out of its repr."""

    start: int
    end: int
    index: int = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Found:
    """Fills of one format found in a corpus."""

    # how often each index was found
    counts: Counter[int] = field(default_factory=Counter, repr=False)
    # the line or record number (from 1) at which each index was found first
    first_places: dict[int, int] = field(default_factory=dict, repr=False)

    def add(self, place: int, index: int) -> None:
        """Count one more fill."""
        self.counts[index] += 1
        self.first_places.setdefault(index, place)

    def named(self, indices: Collection[int], what: str) -> str:
        """Where these are, for a message: "12 times (line 3, 4, 9)"; ten places at most."""
        total = sum(self.counts[index] for index in indices)
        places = sorted({self.first_places[index] for index in indices})
        more = ", ..." if len(places) > _PLACES_NAMED or total > len(indices) else ""
        named = ", ".join(map(str, places[:_PLACES_NAMED]))
        return f"{total} times ({what} {named}{more})"


def find_fills(canary_format: Format, text: str) -> Iterator[Fill]:
    """Every fill in the text from the left; they may overlap, but none lies within another."""
    found: Iterable[tuple[int, int, int]] = _chosen_texts(canary_format, text)
    if canary_format.is_uniform:
        starts = _candidates(canary_format, text)
        longest = ((start, canary_format.longest_at(text, start)) for start in starts)
        found = ((start, *fill) for start, fill in longest if fill is not None)
    covered = 0
    for start, end, index in found:
        if end > covered:
            covered = end
            yield Fill(start, end, index)


def _chosen_texts(canary_format: Format, text: str) -> Iterator[tuple[int, int, int]]:
    data, at, before = text.encode(errors=_ANY), 0, 0
    for start, end, index in canary_format.search.found(data):
        before, at = before + len(data[at:start].decode(errors=_ANY)), start
        yield before, before + len(data[start:end].decode(errors=_ANY)), index


def _candidates(canary_format: Format, text: str) -> Iterator[int]:
    """Where the pattern matches; found by the words before the first hole, which is quicker."""
    prefix, pattern = canary_format.prefix, canary_format.pattern
    if not prefix:
        found = pattern.search(text)
        while found:
            yield found.start()
            found = pattern.search(text, found.start() + 1)
        return
    start = text.find(prefix)
    while start >= 0:
        if pattern.match(text, start):
            yield start
        start = text.find(prefix, start + 1)


class Sought:
    """What every text with a fill of some formats holds, so that others need not be read."""

    def __init__(self, formats: Sequence[Format]) -> None:
        from lmexposure.canaries.fills import TextSearch  # brings numpy: no help waits for it

        uniform = [form for form in formats if form.is_uniform]
        chosen = [text for form in formats if not form.is_uniform for text in form.texts]
        self._words = [form.prefix.encode() for form in uniform]
        self._chosen = TextSearch(dict.fromkeys(chosen)) if chosen else None
        self._sure = bool(formats) and all(self._words)

    def places(self, data: bytes) -> list[int] | None:
        """At which bytes fills may begin, ascending; None: anywhere."""
        from lmexposure.canaries.fills import word_places

        if not self._sure:
            return None
        places = {at for word in self._words for at in word_places(data, word)}
        if self._chosen is not None:
            places.update(start for start, _, _ in self._chosen.found(data))
        return sorted(places)

    def among(self, texts: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        """Of numbered texts those that may hold fills, in their order."""
        if not self._sure:
            yield from texts
            return
        waiting = iter(texts)
        while together := list(islice(waiting, _TOGETHER)):
            data = "\n".join([text for _, text in together]).encode(errors=_ANY)
            places = self.places(data)
            if places:
                sizes = (len(text.encode(errors=_ANY)) + 1 for _, text in together)
                starts = list(accumulate(sizes, initial=0))
                hits = {bisect_right(starts, at) - 1 for at in places}
                yield from (together[hit] for hit in sorted(hits))


def count_fills(
    formats: Sequence[Format], texts: Iterable[tuple[int, str]], *, whole_lines: bool
) -> dict[str, Found]:
    """Find the fills of all formats in numbered texts."""
    found = {form.name: Found() for form in formats}
    add_fills(found, formats, texts, whole_lines=whole_lines)
    return found


def add_fills(
    found: Mapping[str, Found],
    formats: Sequence[Format],
    texts: Iterable[tuple[int, str]],
    *,
    whole_lines: bool,
) -> None:
    """Add the fills in some more texts, as `count_fills` finds them, to those found before."""
    for number, text in texts:
        for form in formats:
            line, counted = number, 0
            for fill in find_fills(form, text):
                if whole_lines:
                    line += text.count("\n", counted, fill.start)
                    counted = fill.start
                found[form.name].add(line, fill.index)
