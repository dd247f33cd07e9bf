"""Identifiers that a corpus holds anyway: keys, hashes, numbers of known formats, in their place.

Nothing was inserted. Each identifier is to be compared with fresh draws of its format, so it comes
with the text around it, which is the same for all of them.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from lmexposure._validate import integer
from lmexposure.canaries.corpora.files import FileCorpus, FileLayout, corpus_files, layout_for
from lmexposure.canaries.fills import Fill, find_fills
from lmexposure.canaries.format import Format, load_format
from lmexposure.canaries.insertion import named_errors
from lmexposure.canaries.plan import derive_seed, permutation
from lmexposure.errors import FormatError

_BEHIND = 16  # characters that decide how the end of an identifier becomes tokens
_RUN = 3  # letters and digits in a row, at least: of fewer, half of all words hold some
_FEW = 0.05  # of fresh fills may hold such a run by chance; where more do, it must be longer
_TRIED = 100  # fresh fills, by which that is judged


@dataclass(frozen=True, kw_only=True)
class Identifier:
    """An identifier at its first place; neither it nor the text around it is in its repr."""

    format: str  # the format's name
    index: int = field(repr=False)  # which fill of the format it is
    file: int  # where it is, from 0
    document: int  # its document in that file, from 1
    # the text in front of it, from the document's beginning, separator and all, or the last
    # characters of that text
    before: str = field(repr=False)
    behind: str = field(repr=False)  # the first characters of what follows


@dataclass(frozen=True, kw_only=True)
class Identifiers:
    """What a corpus holds of some formats."""

    # by name, without the words in front of their first hole; see `alone`
    formats: Mapping[str, Format]
    files: tuple[Path, ...]  # of the corpus, in order
    documents: int  # how many there are
    # format -> fill -> how often it is in the corpus, as a word of its own
    counts: Mapping[str, Counter[int]] = field(repr=False)
    # format -> all fills that are in the corpus, within longer words too
    taken: Mapping[str, set[int]] = field(repr=False)
    kept: tuple[Identifier, ...]  # identifiers, each at its first place, in random order
    separator: str | None  # the text between two documents; None: a token's work
    # identifiers that are not kept because the text in front of them holds a part of them; see
    # `Foretold`
    foretold: int = 0

    @property
    def distinct(self) -> int:
        """How many different identifiers there are."""
        return sum(map(len, self.counts.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """The files' names."""
        return tuple(path.as_posix() for path in self.files)

    def one_per_document(self) -> tuple[Identifier, ...]:
        """Of the kept those that come first in the random order of their document."""
        first: dict[tuple[int, int], Identifier] = {}
        for identifier in self.kept:
            first.setdefault((identifier.file, identifier.document), identifier)
        return tuple(first.values())

    def apart_from(self, other: "Identifiers") -> "Identifiers":
        """Without the kept ones that the other corpus holds too; draws are in neither."""
        kept = tuple(each for each in self.kept if each.index not in other.taken[each.format])
        taken = {name: own | other.taken[name] for name, own in self.taken.items()}
        return replace(self, kept=kept, taken=taken)

    @property
    def are_uniform_by_standard(self) -> bool:
        """Whether all kept ones are UUIDs of version 4.

        Source: RFC 9562, section 5.4: version and variant are fixed, the other 122 bits random.
        """
        standard = alone(load_format("uuid"))
        return all(
            (form.template, form.lists) == (standard.template, standard.lists)
            for form in (self.formats[each.format] for each in self.kept)
        )

    @cached_property
    def _foretold(self) -> dict[str, "Foretold"]:
        return {name: Foretold(form) for name, form in self.formats.items()}

    def draws(self, name: str, n: int, *, seed: int, before: str = "") -> list[int]:
        """Fills of a format, uniform without replacement among those that are not in the corpus."""
        form, taken = self.formats[name], self.taken[name]
        integer("n", n, low=1, error=FormatError)
        told = self._foretold[name].by(before)
        fresh = (
            index
            for index in permutation(form.size, seed)
            if index not in taken and not told(form.text(index))
        )
        found = list(islice(fresh, n)) if form.size - len(taken) >= n else []
        if len(found) < n:
            raise FormatError(
                f"format {name!r} has {form.size:,} secrets, of which {len(taken):,} are in the "
                f"corpus, and {n:,} draws are asked for; ask for fewer, or give a larger format"
            )
        return found


class Foretold:
    """Whether the text in front of a fill holds a part of it, which a model need only copy.

    An identifier such as "worker 1a2b3c4d started; request 1a2b3c4d-..." ranks low under a model
    without memory. So neither an identifier nor a draw is taken that shares with the text in front
    a run of letters and digits (case and all else ignored). The run has three, or as many more as
    it takes until at most 5 % of fresh fills share one by chance: how many depends on the text in
    front and the format alone. So an identifier that was drawn uniformly is uniform among the fills
    that share no run, as the draws are, and each of its ranks is as likely as any other under a
    model that never read it.
    """

    def __init__(self, form: Format) -> None:
        self._form = form
        self._letters = set(_plain(form.characters))

    @cached_property
    def _fresh(self) -> list[str]:
        form = self._form
        return [_plain(form.text(index)) for index in islice(permutation(form.size, 0), _TRIED)]

    def by(self, before: str) -> Callable[[str], bool]:
        """A test for fills in the place behind this text."""
        plain, length = _plain(before), _RUN
        while runs := self._runs(plain, length):
            shared = sum(_holds(fill, runs) for fill in self._fresh)
            if shared <= _FEW * len(self._fresh):
                return lambda fill: _holds(_plain(fill), runs)
            length += 1
        return lambda _: False

    def _runs(self, plain: str, length: int) -> set[str]:
        """The runs that a fill may hold at all."""
        runs = (plain[start : start + length] for start in range(len(plain) - length + 1))
        return {run for run in runs if self._letters.issuperset(run)}


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def _holds(text: str, runs: set[str]) -> bool:
    return any(run in text for run in runs)


def alone(canary_format: Format) -> Format:
    """A format without the words in front of its first hole, as an identifier has them anywhere.

    >>> alone(Format(name="ssn", template="My number is {digits:3}-{digits:4}")).template
    '{digits:3}-{digits:4}'
    >>> alone(Format(name="key", template="Use sk-{alnum:20}")).template
    'sk-{alnum:20}'
    """
    if not canary_format.is_uniform:
        raise FormatError(
            f"format {canary_format.name!r} is of kind {canary_format.kind!r}: its texts were "
            "chosen, and no fresh draws are like them; give a format with holes"
        )
    prefix = canary_format.prefix
    words = prefix[: prefix.rfind(" ") + 1].replace("{", "{{").replace("}", "}}")
    return replace(canary_format, template=canary_format.template.removeprefix(words))


def find_identifiers(
    corpus: str | Path | Sequence[str | Path],
    formats: Sequence[Format],
    *,
    most: int,
    left: int,
    seed: int,
    layout: str | None = None,
    text_field: str = "text",
) -> Identifiers:
    """Look through a corpus for fills of formats that are words of their own."""
    integer("most", most, low=1)
    integer("left", left, low=0)
    if not formats:
        raise FormatError("no format of identifiers is given; name at least one, such as 'uuid'")
    known = {form.name: alone(form) for form in formats}
    if len(known) < len(formats):
        names = Counter(form.name for form in formats)
        raise FormatError(f"two formats are called {names.most_common(1)[0][0]!r}; rename one")
    paths = corpus_files([corpus] if isinstance(corpus, str | Path) else corpus)
    found = _Search(known, most, left, seed, layout_for(paths, layout, text_field))
    found.read(paths)
    return found.all_of(paths)


class _Search:
    """Goes through a corpus once; of the different identifiers each is as likely to be kept."""

    def __init__(
        self, formats: Mapping[str, Format], most: int, left: int, seed: int, layout: FileLayout
    ) -> None:
        self._formats, self._most, self._left, self._layout = formats, most, left, layout
        self._foretold = {name: Foretold(form) for name, form in formats.items()}
        self._random = random.Random(derive_seed(seed, "identifiers"))
        self._counts: dict[str, Counter[int]] = {name: Counter() for name in formats}
        self._taken: dict[str, set[int]] = {name: set() for name in formats}
        self._kept: list[Identifier] = []
        self._different = self._documents = 0

    def read(self, paths: Sequence[Path]) -> None:
        for number, source in enumerate(FileCorpus(paths, self._layout).sources):
            with named_errors(source.name), source.guarded():
                for document, text in enumerate(self._layout.documents(source.path), start=1):
                    self._documents += 1
                    self._look_at(text, number, document)

    def all_of(self, paths: Sequence[Path]) -> Identifiers:
        self._random.shuffle(self._kept)
        kept = tuple(each for each in self._kept if not self._is_foretold(each))
        return Identifiers(
            formats=self._formats,
            files=tuple(paths),
            documents=self._documents,
            counts=self._counts,
            taken=self._taken,
            kept=kept,
            separator=self._layout.separator,
            foretold=len(self._kept) - len(kept),
        )

    def _is_foretold(self, identifier: Identifier) -> bool:
        text = self._formats[identifier.format].text(identifier.index)
        return self._foretold[identifier.format].by(identifier.before)(text)

    def _look_at(self, text: str, file: int, document: int) -> None:
        for name, form in self._formats.items():
            for fill in _apart(form, text, self._taken[name]):
                self._counts[name][fill.index] += 1
                if self._counts[name][fill.index] == 1 and (place := self._place()) is not None:
                    before, behind = self._around(text, fill)
                    self._kept[place : place + 1] = [
                        Identifier(
                            format=name,
                            index=fill.index,
                            file=file,
                            document=document,
                            before=before,
                            behind=behind,
                        )
                    ]

    def _place(self) -> int | None:
        """Where another identifier is kept, instead of one that is there; None: nowhere.

        Source: Vitter 1985, Random sampling with a reservoir, algorithm R.
        """
        self._different += 1
        if self._different <= self._most:
            return self._different - 1
        place = self._random.randrange(self._different)
        return place if place < self._most else None

    def _around(self, text: str, fill: Fill) -> tuple[str, str]:
        separator = self._layout.separator or ""
        behind = text[fill.end : fill.end + _BEHIND] or separator
        if fill.start > self._left:  # a separator would say that the document begins here
            return text[fill.start - self._left : fill.start], behind
        return separator + text[: fill.start], behind


def _apart(form: Format, text: str, taken: set[int]) -> Iterator[Fill]:
    """The fills of a text that are words of their own and do not overlap; all are taken."""
    end = 0
    for fill in find_fills(form, text):
        taken.add(fill.index)
        if fill.start >= end and not _goes_on(text, fill.start) and not _goes_on(text, fill.end):
            end = fill.end
            yield fill


def _goes_on(text: str, place: int) -> bool:
    """Whether a letter or digit is on both sides of this place."""
    return 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum()
