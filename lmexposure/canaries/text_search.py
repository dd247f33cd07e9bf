"""Where texts of a list are in the bytes of a corpus: all of them in one look at the data.

The last 15 bytes of a text, wherever it is in the data, cover exactly one of the data's words of
eight bytes, counted from its beginning. So only every eighth place is looked at, for any of the
words that the end of a text can put there; where one is, for the last words of the texts. What is
left is compared in full.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

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
