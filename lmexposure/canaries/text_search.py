"""Bytes of a corpus: where texts of a list are, all in one look; and what is no text at all.

The last 15 bytes of a text, wherever it is in the data, cover exactly one of the data's words of
eight bytes, counted from its beginning. So only every eighth place is looked at, for any of the
words that the end of a text can put there; where one is, for the last words of the texts. What is
left is compared in full.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from lmexposure.errors import CorpusError

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


_SAMPLE, _FEWEST = 8192, 32  # ids
_HEADERS = {(20240520, 1): 2, (20240801, 7): 4}  # of llm.c: magic number, version; bytes of an id
# How other kinds of files begin, two of them texts.
_OTHERS = (
    *(b"\xff\xfe", b"\xfe\xff", b"PK", b"PAR1", b"ARROW1", b"\x93NUMPY", b"GGUF", b"\x80\x02"),
    *(b"\x80\x04", b"\x7fELF", b"\x89", b"%PDF", b"SQLite"),
)
_LARGEST = 300_000  # no vocabulary is larger; what is not ids of four or eight bytes has more
_LARGEST_OF_TWO = 50_432  # as GPT-2's, padded; of noise, 23 % of numbers are larger
_LARGE = 1 << 20  # bytes
_BLOCKS = 12  # of 256 characters, below the symbols: a text has letters of a few scripts


def check_text(name: str, data: bytes, offset: int) -> None:
    """Refuse what is no text, and say what it is."""
    if offset == 0 and data.startswith(b"\x1f\x8b"):
        raise CorpusError(
            f"the corpus {name} is packed by gzip; unpack it first, with gzip -dc, or give a file "
            "whose name ends in .gz"
        )
    what = "binary or UTF-16: NUL byte at offset {}; convert it to UTF-8 text"
    bad = data.find(b"\0")
    if bad < 0:
        if data.isascii() or (len(data) >= _LARGE and _is_utf8(data)):
            return
        try:
            data.decode()
        except UnicodeDecodeError as failure:
            bad = failure.start
            what = f"not UTF-8: bad byte 0x{data[bad]:02x} at offset {{}}; convert it to UTF-8"
        else:
            return
    size = bytes_of_token_ids(data) if offset == 0 else None
    if size is not None:
        raise CorpusError(
            f"the corpus {name} looks like token ids of {size} bytes each, as nanoGPT's train.bin "
            "and llm.c's shards are; canaries are text: insert before tokenising, and give the text"
        )
    raise CorpusError(f"the corpus {name} is {what.format(offset + bad)}")


def _is_utf8(data: bytes) -> bool:
    """The same as to decode it; an insertion takes 1.1 times as long without. For large files."""
    import pyarrow as pa

    ends = pa.py_buffer(np.array([0, len(data)], dtype=np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, ends, pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def bytes_of_token_ids(data: bytes) -> int | None:
    """How many bytes each token id has in what is no UTF-8; None: it holds no token ids.

    No noise, no numbers with signs, no ASCII, no UTF-16 or UTF-32; where that is not clear, None.
    """
    if len(data) < 2 * _FEWEST:
        return None
    magic, version = np.frombuffer(data[:8], "<i4").tolist()
    if (magic, version) in _HEADERS:
        return _HEADERS[magic, version]
    letters = np.frombuffer(data[:_SAMPLE], np.uint8)
    if data.startswith(_OTHERS) or np.mean((letters >= 0x20) & (letters < 0x7F)) > 0.6:
        return None
    for size, kind in ((8, "<u8"), (4, "<u4"), (4, ">u4"), (2, "<u2")):
        ids = np.frombuffer(data[: min(len(data) // size, _SAMPLE) * size], kind)
        if len(ids) >= _FEWEST and _fits(ids, size):
            # Texts of two bytes a character may have the higher one first.
            is_text = _are_characters(ids) or (size == 2 and _are_characters(ids.byteswap()))
            return None if is_text else size
    return None


def _fits(ids: NDArray[np.unsignedinteger], size: int) -> bool:
    if size > 2:
        return bool(ids.max() < _LARGEST)
    # A vocabulary of 65,536 has few of its last tokens in a text; half of signed numbers are < 0.
    beyond = np.count_nonzero(ids >= _LARGEST_OF_TWO) / len(ids)
    return bool(beyond <= 0.1 * (len(ids) >= 256) and np.mean(ids >= 1 << 15) < 0.42)


def _are_characters(points: NDArray[np.unsignedinteger]) -> bool:
    """Whether these numbers are characters of a text."""
    given, counts = np.unique(points, return_counts=True)
    none = [
        number
        for point, number in zip(given.tolist(), counts.tolist(), strict=True)
        if unicodedata.category(chr(point)) in ("Cc", "Cn", "Co") and not chr(point).isspace()
    ]
    blocks = {point >> 8 for point in given.tolist() if 0x100 <= point < 0x3000}
    return sum(none) <= 0.02 * len(points) and len(blocks) <= _BLOCKS
