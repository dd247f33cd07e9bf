"""Where in a corpus a text is, by suffix arrays, and what of it free samples hold.

A shard holds as many whole documents as memory allows, and is dropped before the next one is made,
so that the corpus may be larger than memory: five bytes a byte of corpus (1 the text, 4 the array).
Matches never cross from one document into another: each ends in a byte that UTF-8 does not have.
Source of the array: Mori's divsufsort, by pydivsufsort.

An attacker who knows no beginning of a document asks for anything at all, many times. What comes
out is looked up in the whole corpus; near duplicates of a passage count as one; and how often each
came out says how many are left.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.errors import CorpusError, SettingsError
from lmexposure.statistics import unseen_passages
from lmexposure.studies import FoundPassage, FreeExtraction, VerbatimSettings

_END = b"\xff"
SHARD_BYTES = 1 << 26
_SAME = 90.0  # likeness in percent from which two passages count as one
_MOST_BYTES = 2**31 - 2  # that an array of 32-bit places can hold
_MOST_LISTED = 1 << 20  # occurrences of which the documents are counted
_LONGEST = 1 << 16  # bytes of a match that are looked up


@dataclass(frozen=True, kw_only=True)
class Match:
    """A part of a text that the corpus holds, and that is part of no longer one at its place."""

    # start, stop: characters in the text
    start: int
    stop: int
    document: int  # number of the first document that holds it, from 1
    place: int  # its first character there, from 0
    copies: int  # documents that hold it

    @property
    def characters(self) -> int:
        """Of the match."""
        return self.stop - self.start


class CorpusIndex:
    """The suffix array of some documents."""

    def __init__(self, texts: Sequence[str], *, first: int = 1) -> None:
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
        lengths = np.array([len(part) + 1 for part in parts], dtype=np.int64)
        self._begins = np.concatenate([[0], np.cumsum(lengths)])
        if self._begins[-1] > _MOST_BYTES:
            raise CorpusError(
                f"a document of {self._begins[-1]:,} bytes is longer than a suffix array of 32 "
                f"bits holds ({_MOST_BYTES:,}); cut it into smaller ones"
            )
        self._first = first
        self._data = _END.join([*parts, b""])
        self._array: NDArray[np.int32] = _sorted_suffixes(self._data)

    def matches(self, text: str, least: int) -> list[Match]:
        """All parts of a text of at least `least` characters that the documents hold, in order."""
        data = text.encode("utf-8", "surrogatepass")
        found: list[Match] = []
        reached = 0
        for at in _worth_a_look(self, data, least):
            length = self._length(data, at, _LONGEST)
            # It ends between two characters.
            while length and at + length < len(data) and _is_inside(data[at + length]):
                length -= 1
            if at + length <= reached:
                continue
            match = self._match(data, at, length)
            if match.characters >= least:
                found.append(match)
                reached = at + length
        return found

    def holds(self, data: bytes) -> bool:
        """Whether these bytes are in a document."""
        at = self._lower(data)
        return at < len(self._array) and self._data.startswith(data, int(self._array[at]))

    def copies(self, text: str) -> int:
        """Documents that hold a text."""
        low, high = self._range(text.encode("utf-8", "surrogatepass"))
        return self._documents(low, high)[0]

    def _match(self, data: bytes, at: int, length: int) -> Match:
        low, high = self._range(data[at : at + length])
        copies, place = self._documents(low, high)
        document = int(np.searchsorted(self._begins, place, side="right")) - 1
        before = self._data[int(self._begins[document]) : place]
        start = len(data[:at].decode("utf-8", "surrogatepass"))
        return Match(
            start=start,
            stop=start + len(data[at : at + length].decode("utf-8", "surrogatepass")),
            document=self._first + document,
            place=len(before.decode("utf-8", "surrogatepass")),
            copies=copies,
        )

    def _documents(self, low: int, high: int) -> tuple[int, int]:
        """How many documents these suffixes begin in, and the first place of all."""
        if low == high:
            return 0, 0
        places = self._array[low : min(high, low + _MOST_LISTED)]
        owners = np.unique(np.searchsorted(self._begins, places, side="right"))
        return len(owners), int(places.min())

    def _range(self, pattern: bytes) -> tuple[int, int]:
        """The suffixes that begin with a pattern."""
        begun, low = partial(self._beginning, len(pattern)), self._lower(pattern)
        return low, bisect_right(self._array, pattern, lo=low, key=begun)

    def _lower(self, pattern: bytes) -> int:
        """Suffixes that come before a pattern."""
        return bisect_left(self._array, pattern, key=partial(self._beginning, len(pattern)))

    def _beginning(self, size: int, place: np.int32) -> bytes:
        return self._data[int(place) : int(place) + size]

    def _length(self, data: bytes, at: int, most: int) -> int:
        """Bytes of the longest beginning of data[at : at + most] that the documents hold."""
        pattern, longest = data[at : at + most], 0
        wanted, low = np.frombuffer(pattern, dtype=np.uint8), self._lower(pattern)
        for place in self._array[max(0, low - 1) : low + 1].tolist():
            own = np.frombuffer(self._data[place : place + len(pattern)], dtype=np.uint8)
            differs = np.flatnonzero(own != wanted[: len(own)])
            longest = max(longest, int(differs[0]) if differs.size else len(own))
        return longest


def shards(documents: Iterable[str], *, most: int = SHARD_BYTES) -> Iterator[CorpusIndex]:
    """The documents in suffix arrays, one after another."""
    texts: list[str] = []
    size, first = 0, 1
    for text in documents:
        if texts and size + len(text) > most:
            index, first = CorpusIndex(texts, first=first), first + len(texts)
            texts, size = [], 0
            yield index
            del index  # before the next one is made
        texts.append(text)
        size += len(text)
    if texts:
        yield CorpusIndex(texts, first=first)


def look_up(
    documents: Iterable[str],
    searched: Sequence[str],
    counted: Sequence[str] = (),
    *,
    least: int,
    most: int = SHARD_BYTES,
) -> tuple[list[list[Match]], list[int]]:
    """What of some texts a corpus holds, and how many of its documents hold others whole."""
    found: list[list[Match]] = [[] for _ in searched]
    copies = [0] * len(counted)
    for index in shards(documents, most=most):
        for own, text in zip(found, searched, strict=True):
            own += index.matches(text, least)
        for number, text in enumerate(counted):
            copies[number] += index.copies(text)
        del index  # before the next one is made
    return [_merged(own) for own in found], copies


def _merged(matches: Sequence[Match]) -> list[Match]:
    """Of several shards: copies of one match are added, parts of a longer one left out."""
    ordered = sorted(matches, key=lambda m: (m.start, -m.stop, m.document))
    merged: list[Match] = []
    for match in ordered:
        last = merged[-1] if merged else None
        if last is not None and (match.start, match.stop) == (last.start, last.stop):
            merged[-1] = replace(last, copies=last.copies + match.copies)
        elif last is None or match.stop > last.stop:
            merged.append(match)
    return merged


def _worth_a_look(index: CorpusIndex, data: bytes, least: int) -> Iterator[int]:
    """Places where a match of `least` bytes may begin."""
    half = max(1, least // 2)
    held = [index.holds(data[at : at + half]) for at in range(0, len(data) - half + 1, half)]
    looked_at = -1
    for block, is_held in enumerate(held):
        if not is_held:
            continue
        begin = max(looked_at + 1, (block + 1) * half - 2 * half, 0)
        for at in range(begin, block * half + 1):
            looked_at = at
            if at + least <= len(data) and not _is_inside(data[at]):
                yield at


def _is_inside(byte: int) -> bool:
    """Whether a byte goes on with a character."""
    return byte & 0xC0 == 0x80


def _sorted_suffixes(data: bytes) -> Any:
    try:
        from pydivsufsort import divsufsort
    except ImportError as failure:
        raise SettingsError(
            "looking texts up in the corpus needs pydivsufsort; install it with "
            'pip install "lmexposure[verbatim]", or leave it out with samples=0'
        ) from failure
    return divsufsort(data)


@dataclass(frozen=True, kw_only=True)
class Passages:
    """Passages of a corpus that samples hold."""

    rows: Sequence[FoundPassage]  # longest first
    texts: Sequence[str]  # of these
    with_match: int  # samples that hold one


def fold(texts: Sequence[str], matches: Sequence[Sequence[Match]]) -> Passages:
    """Matches of samples as passages: near duplicates, and parts of one place, count once."""
    try:
        from rapidfuzz.fuzz import ratio
    except ImportError as failure:
        raise SettingsError(
            "folding near duplicates needs rapidfuzz; install it with "
            'pip install "lmexposure[verbatim]", or leave sampling out with samples=0'
        ) from failure
    every = [
        (match, text[match.start : match.stop], number)
        for number, (text, own) in enumerate(zip(texts, matches, strict=True))
        for match in own
    ]
    every.sort(key=lambda found: (-found[0].characters, found[0].document, found[0].place))
    kept: list[tuple[Match, str]] = []
    holders: list[set[int]] = []
    for match, said, sample in every:
        for known, (longer, text) in enumerate(kept):
            if _overlap(longer, match) or said in text or ratio(said, text) >= _SAME:
                holders[known].add(sample)
                break
        else:
            kept.append((match, said))
            holders.append({sample})
    rows = [
        FoundPassage(
            samples=len(own),
            characters=match.characters,
            document=match.document,
            start=match.place,
            copies=match.copies,
        )
        for (match, _), own in zip(kept, holders, strict=True)
    ]
    return Passages(
        rows=rows, texts=[text for _, text in kept], with_match=len(set().union(*holders))
    )


def free_record(
    texts: Sequence[str], found: Passages, settings: VerbatimSettings
) -> FreeExtraction:
    """What sampling brought out, and what it left."""
    unseen = unseen_passages([row.samples for row in found.rows], len(texts), level=settings.level)
    return FreeExtraction(
        samples=len(texts),
        tokens=settings.sample_tokens,
        characters=sum(map(len, texts)),
        least_match=settings.least_match,
        with_match=found.with_match,
        longest=max((row.characters for row in found.rows), default=0),
        passages=tuple(found.rows),
        unseen=unseen.unseen,
        unseen_low=unseen.low,
        unseen_high=unseen.high,
        next_new=unseen.next_new,
        assumes=unseen.assumes,
    )


def _overlap(longer: Match, match: Match) -> bool:
    """Whether the greater part of the shorter match is at the place of the longer one."""
    if longer.document != match.document:
        return False
    ends = min(longer.place + longer.characters, match.place + match.characters)
    return 2 * (ends - max(longer.place, match.place)) > match.characters
