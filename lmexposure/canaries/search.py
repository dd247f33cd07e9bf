"""Where fills of a format stand in a text: found by pattern, looked up by index."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lmexposure.canaries.format import Format

_PLACES_NAMED = 10


@dataclass(frozen=True)
class Fill:
    """A fill that stands at text[start:end]; its secret stays out of its repr."""

    start: int
    end: int
    index: int = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Found:
    """Fills of one format found in a corpus.

    Attributes:
        counts: how often each index was found.
        first_places: the line or record number (from 1) at which each index was found first.
    """

    counts: Counter[int] = field(default_factory=Counter, repr=False)
    first_places: dict[int, int] = field(default_factory=dict, repr=False)

    def add(self, place: int, index: int) -> None:
        """Count one more fill."""
        self.counts[index] += 1
        self.first_places.setdefault(index, place)

    def named(self, indices: Collection[int], what: str) -> str:
        """Where these stand, for a message: "12 times (line 3, 4, 9)"; ten places at most."""
        total = sum(self.counts[index] for index in indices)
        places = sorted({self.first_places[index] for index in indices})
        more = ", ..." if len(places) > _PLACES_NAMED or total > len(indices) else ""
        named = ", ".join(map(str, places[:_PLACES_NAMED]))
        return f"{total} times ({what} {named}{more})"


def find_fills(canary_format: Format, text: str) -> Iterator[Fill]:
    """Every fill in the text from the left; they may overlap, but none lies within another.

    "My name is Anna" holds the fill that ends in Anna, not also the one that ends in Ann.
    """
    covered = 0
    for start in _candidates(canary_format, text):
        longest = canary_format.longest_at(text, start)
        if longest is not None and longest[0] > covered:
            covered = longest[0]
            yield Fill(start, longest[0], longest[1])


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


def sure_words(formats: Sequence[Format]) -> list[str]:
    """Words of which every text with a fill holds one; none if a format begins with a hole."""
    words = [one.prefix for one in formats]
    return words if all(words) else []


def count_fills(
    formats: Sequence[Format], texts: Iterable[tuple[int, str]], *, whole_lines: bool
) -> dict[str, Found]:
    """Find the fills of all formats in numbered texts.

    Args:
        formats: their names must differ.
        texts: (number of the text, or of its first line; text).
        whole_lines: a text is many lines, and a fill's place is its line.
    """
    found = {one.name: Found() for one in formats}
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
        for one in formats:
            line, counted = number, 0
            for fill in find_fills(one, text):
                if whole_lines:
                    line += text.count("\n", counted, fill.start)
                    counted = fill.start
                found[one.name].add(line, fill.index)
