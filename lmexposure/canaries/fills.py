"""Fills of formats in texts: where they may be, where they are, and how often."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice

from lmexposure.canaries.format import Format

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
        from lmexposure.canaries.text_search import TextSearch  # brings numpy: no help waits for it

        uniform = [form for form in formats if form.is_uniform]
        chosen = [text for form in formats if not form.is_uniform for text in form.texts]
        self._words = [form.prefix.encode() for form in uniform]
        self._chosen = TextSearch(dict.fromkeys(chosen)) if chosen else None
        self._sure = bool(formats) and all(self._words)

    def places(self, data: bytes) -> list[int] | None:
        """At which bytes fills may begin, ascending; None: anywhere."""
        from lmexposure.canaries.text_search import word_places

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
