"""Where texts of a list are in the bytes of a corpus: all of them in one look at the data.

A text of 15 bytes and more that is anywhere in data covers one of the data's whole words of eight
bytes, counted from the beginning. So only every eighth place is looked at, for any of the eight
words that the end of each text can put there: in a table by a hash, then in a list of them. What
is left is compared in full.
"""

import re
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

_WORD = 8
_TAIL = 2 * _WORD - 1  # bytes that cover a whole word wherever they begin
_FEW = 4096  # bytes; of fewer, Python's own set is quicker
_FREQUENT = b" etaoinshrdlcumwfgypbvk"  # letters of English text, most frequent first
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads neighbours (Knuth 6.4)
_EMPTY, _MOST_BITS = 64, 22  # of a table: entries for each that is taken, and its log2 size


class TextSearch:
    """Finds texts of a list.

    Args:
        texts: different ones; their order is that of the numbers found.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [text.encode() for text in texts]
        self._short = [n for n, text in enumerate(self._texts) if len(text) < _TAIL]
        self._by_tail: dict[bytes, list[int]] = {}
        for number, text in enumerate(self._texts):
            if len(text) >= _TAIL:
                self._by_tail.setdefault(text[-_TAIL:], []).append(number)
        # The words that a tail can cover, and by how much each ends before the text.
        self._gaps: dict[bytes, set[int]] = {}
        for tail in self._by_tail:
            for gap in range(_WORD):
                end = _TAIL - gap
                self._gaps.setdefault(tail[end - _WORD : end], set()).add(gap)
        self._known = np.sort(np.frombuffer(b"".join(self._gaps), np.uint64))
        size = max(_EMPTY * len(self._known), 1)
        self._shift = np.uint64(64 - min(_MOST_BITS, size.bit_length()))
        self._table = np.zeros(1 << (64 - int(self._shift)), bool)
        self._table[self._hashed(self._known)] = True

    def found(self, data: bytes) -> list[tuple[int, int, int]]:
        """(first byte, end, number of the text) of each place where one is, ascending."""
        found = [
            (at, at + len(self._texts[number]), number)
            for number in self._short
            for at in word_places(data, self._texts[number])
        ]
        for at in self._words(data):
            for gap in self._gaps[data[at : at + _WORD]]:
                end = at + _WORD + gap
                for number in self._by_tail.get(data[end - _TAIL : end], ()):
                    start = end - len(self._texts[number])
                    if start >= 0 and data.startswith(self._texts[number], start):
                        found.append((start, end, number))
        return sorted(found)

    def _words(self, data: bytes) -> Iterable[int]:
        """At which bytes there is a word of a tail."""
        if len(data) < _FEW:
            places = range(0, len(data) - _WORD + 1, _WORD)
            return [at for at in places if data[at : at + _WORD] in self._gaps]
        words = np.frombuffer(data, np.uint64, count=len(data) // _WORD)
        likely = np.flatnonzero(self._table[self._hashed(words)])
        sure = np.isin(words[likely], self._known)
        places: list[int] = (likely[sure] * _WORD).tolist()
        return places

    def _hashed(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        return ((words * _FACTOR) >> self._shift).view(np.int64)


def word_places(data: bytes, word: bytes) -> Iterator[int]:
    """At which bytes the word begins, in no order; it may overlap itself.

    Four of its bytes are compared with all of the data at once, which lets other threads run: with
    `bytes.find` an insertion takes 1.05 times as long.
    """
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
