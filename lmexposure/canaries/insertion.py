"""The one insertion engine: scan a corpus, draw its canaries, merge them in, check, record.

A corpus gives its documents in parts, in one order, as often as it is asked; `corpora` has an
adapter for each container. What goes before a document follows from the plan and the document's
number alone, so that parts, files and engines need not know each other. The same parts with the
canaries cut out again are the check of what was written, and the removal.
"""

import hashlib
import json
import sys
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from lmexposure._types import Count
from lmexposure._types import Found as Typed
from lmexposure._validate import of_type, one_of
from lmexposure.canaries.fills import Found, Sought, add_fills
from lmexposure.canaries.format import Format
from lmexposure.canaries.manifest import CorpusRecord, Manifest
from lmexposure.canaries.plan import WITNESS, Canary, Plan
from lmexposure.canaries.plan import draw as draw_plan
from lmexposure.errors import CorpusError

if TYPE_CHECKING:
    from lmexposure.canaries.corpora.files import FileCorpus, FileSource
    from lmexposure.canaries.corpora.in_memory import InMemory
    from lmexposure.canaries.corpora.tables import TablePart
    from lmexposure.canaries.corpora.text import Block

    # Some documents, one after another, which do not change; a file of a corpus, or all that is in
    # memory; a container of documents.
    Part: TypeAlias = Block | TablePart | InMemory
    Source: TypeAlias = FileSource | InMemory
    Corpus: TypeAlias = FileCorpus | InMemory
else:  # which import this module
    Part = Source = Corpus = Any
Existing = Literal["refuse", "set_aside"]
Taken = Callable[[bytes], object]
# Says of one written part after another whether it was made of what is next in a source; of None,
# whether the source is at its end.
Same = Callable[["Written | None"], bool]
_AGAIN = "the corpus changed meanwhile, or the disk is at fault: insert again"


class Merged(NamedTuple):
    """A part with documents more, and where each of these begins and how long it is, in units."""

    part: "Part"
    spans: Sequence[tuple[int, int]]


class Written(NamedTuple):
    """A part that was written: all of it, without its canaries, and these as for `merged`."""

    part: "Part"
    rest: "Part"
    added: Sequence[tuple[int, str]]


class Hashes:
    """SHA-256 of each file of a corpus, and of all of them one after another."""

    def __init__(self, *, several: bool) -> None:
        self.files: list[str] = []  # of each that has ended, in hexadecimal
        self._all = hashlib.sha256() if several else None
        self._file = hashlib.sha256()

    def update(self, data: bytes) -> None:
        """Add some content of this file."""
        self._file.update(data)
        if self._all is not None:
            self._all.update(data)

    def end_file(self) -> None:
        """What comes now is the next file."""
        self.files.append(self._file.hexdigest())
        self._file = hashlib.sha256()

    @classmethod
    def of(cls, corpus: "Corpus") -> "Hashes":
        """Of all of a corpus."""
        hashes = cls(several=len(corpus.sources) > 1)
        for source in corpus.sources:
            with source.guarded():
                for _ in source.parts(taken=hashes.update, known=True):
                    pass
            hashes.end_file()
        return hashes

    @property
    def total(self) -> str:
        """Of all files, in hexadecimal."""
        return self.files[0] if self._all is None else self._all.hexdigest()


class Scan(NamedTuple):
    """What is in a corpus."""

    documents: int  # how many
    formats: Sequence[Format]  # that were searched
    fills: Mapping[str, Found]  # per format, those that are there
    hashes: Hashes | None  # of all; None where nothing was hashed
    several: bool  # whether it has several files


def scan_corpus(corpus: Corpus, formats: Sequence[Format]) -> Scan:
    """Read all of a corpus once; one without text is refused."""
    several, sought = len(corpus.sources) > 1, Sought(formats)
    hashes = Hashes(several=several) if formats else None
    fills = {form.name: Found() for form in formats}
    documents, lines_before, visible = 0, 0, False
    for source in corpus.sources:
        lines = 0
        with source.guarded():
            taken = None if hashes is None else hashes.update
            for part in source.parts(taken=taken, known=not formats):
                documents, lines = documents + part.documents, lines + part.lines
                visible = visible or part.visible
                if formats:
                    found = ((lines_before + n, text) for n, text in part.searched(sought))
                    add_fills(fills, formats, found, whole_lines=part.scans_lines)
        lines_before += lines
        if hashes is not None:
            hashes.end_file()
    if not visible:
        raise CorpusError(corpus.blank(documents))
    return Scan(documents, formats, fills, hashes, several)


def draw(
    plan: Plan, scan: Scan, existing: Existing, *, place: str
) -> tuple[tuple[Canary, ...], dict[str, tuple[int, ...]]]:
    """Draw the plan for a corpus: (candidates and controls, secrets set aside per format)."""
    one_of("existing", existing, ("refuse", "set_aside"), error=CorpusError)
    found = {name: fills for name, fills in scan.fills.items() if fills.counts}
    # Witnesses of an earlier insertion are in no one's way.
    refused = {name: fills for name, fills in found.items() if name != WITNESS.name}
    if refused and existing == "refuse":
        where = f"{place}, counted over all files," if scan.several else place
        listed = "; ".join(
            f"{n} {fills.named(fills.counts, where)}" for n, fills in refused.items()
        )
        raise CorpusError(
            f"the corpus already holds secrets of this format: {listed}; choose another format, or "
            "set these secrets aside (existing='set_aside')"
        )
    set_aside = {name: tuple(sorted(fills.counts)) for name, fills in found.items()}
    return draw_plan(plan, documents=scan.documents, set_aside=set_aside), set_aside


class Placement:
    """Which of a manifest's entries go before which document; held out and controls nowhere."""

    def __init__(self, entries: Iterable[Canary]) -> None:
        places = [
            (place, entry) for entry in entries if entry.inserted for place in entry.positions
        ]
        self.schedule = sorted(places, key=lambda pair: (pair[0], pair[1].id))

    @cached_property
    def _before(self) -> Mapping[int, tuple[Canary, ...]]:
        groups = groupby(self.schedule, key=lambda pair: pair[0])
        return {place: tuple(canary for _, canary in group) for place, group in groups}

    def before(self, document: int) -> tuple[Canary, ...]:
        """The canaries that go before this document, in their order."""
        return self._before.get(document, ())

    def within(self, start: int, stop: int) -> list[tuple[int, Canary]]:
        """(document, canary before it) for the documents from `start` up to `stop`, in order."""
        first, last = (bisect_left(self.schedule, n, key=lambda p: p[0]) for n in (start, stop))
        return self.schedule[first:last]

    def inserted(self, start: int = 0, stop: int = sys.maxsize) -> list[tuple[int, Canary]]:
        """(number of the inserted document, its canary) among these documents, in order."""
        places = self.within(start, stop)
        return [(place - start + n, canary) for n, (place, canary) in enumerate(places)]


@dataclass(frozen=True, kw_only=True)
class Occurrence(Typed):
    """Where an inserted document is; it holds no secret."""

    id: str  # of the canary
    document: Count  # number of the document that it comes before, in the whole corpus, from 0
    offset: Count  # in the content of its file with the canaries: the first byte, or row, from 0
    length: Count  # bytes or rows


class Merge:
    """Puts canaries before their documents; it must be given all parts, in their order."""

    def __init__(self, placement: Placement) -> None:
        # document: number of the next document in the whole corpus, from 0
        self.document, self._placement = 0, placement
        self.begin_file()

    def begin_file(self) -> None:
        """What comes now is another file of the same corpus; numbers of documents go on."""
        self.first = self.document  # of this file
        self.occurrences: list[Occurrence] = []
        self.size = 0

    def part(self, part: Part) -> Part:
        """This part with its canaries."""
        first, self.document = self.document, self.document + part.documents
        places = self._placement.within(first, self.document)
        merged, spans = part.merged([(place - first, canary.text) for place, canary in places])
        self.occurrences += [
            Occurrence(id=canary.id, document=place, offset=self.size + start, length=length)
            for (start, length), (place, canary) in zip(spans, places, strict=True)
        ]
        self.size += merged.size
        return merged


class Cut:
    """Leaves the inserted documents out again; it must be given all parts, in their order."""

    def __init__(
        self, targets: Sequence[tuple[int, Canary]], error: Callable[[str], CorpusError]
    ) -> None:
        self.document = self.removed = 0  # how many documents passed so far, and were left out
        self._targets, self._error = targets, error

    def part(self, part: Part) -> tuple[Part, Sequence[tuple[int, Canary]]]:
        """This part without its canaries, and these; another document there is refused."""
        first, self.document = self.document, self.document + part.documents
        last = bisect_left(self._targets, self.document, lo=self.removed, key=lambda t: t[0])
        hits, self.removed = self._targets[self.removed : last], last
        rest, texts = part.without([number - first for number, _ in hits])
        for (number, canary), text in zip(hits, texts, strict=True):
            if text != canary.text:
                raise self._missing(number, canary)
        return rest, hits

    def finish(self) -> None:
        """All has passed; raises where some canaries have not."""
        if self.removed < len(self._targets):
            raise self._missing(*self._targets[self.removed])

    def _missing(self, number: int, canary: Canary) -> CorpusError:
        return self._error(f"document {number + 1} is not {canary.id}")


class Verification:
    """What was written, read again and compared with what it came from."""

    def __init__(self, scan: Scan, entries: tuple[Canary, ...], placement: Placement) -> None:
        self.hashes = Hashes(several=scan.several)  # of what was written
        self._scan, self._entries, self._name = scan, entries, "the corpus"
        self._cut = Cut(placement.inserted(), self._differs)
        self._inserted: list[tuple[int, str]] = []

    def source(self, source: Source, same: Same, *, size: int | None = None) -> None:
        """Compare what was written to a file, of this size if known, or into memory."""
        self._name, read = source.name, 0
        for part in source.parts(taken=self.hashes.update, known=True):
            first = self._cut.document
            rest, hits = self._cut.part(part)
            added = [(number - first - n, canary.text) for n, (number, canary) in enumerate(hits)]
            if not same(Written(part, rest, added)):
                raise self._differs("between the canaries it is not what it was")
            self._inserted += [(number + 1, canary.text) for number, canary in hits]
            read += part.size
        if size not in (None, read) or not same(None):
            raise self._differs("it is shorter or longer")
        self.hashes.end_file()

    def manifest(
        self, plan: Plan, about: CorpusRecord, set_aside: Mapping[str, tuple[int, ...]]
    ) -> Manifest:
        """The manifest, where all was compared; where the scan hashed nothing, nothing was."""
        scan = self._scan
        corpus = replace(about, documents=scan.documents, verified=scan.hashes is not None)
        if scan.hashes is not None:
            self._cut.finish()
            found = deepcopy(scan.fills)
            add_fills(found, scan.formats, self._inserted, whole_lines=False)
            check_inserted(self._entries, found, set_aside)
            hashes = scan.hashes.total, self.hashes.total
            corpus = replace(corpus, sha256=hashes[0], sha256_inserted=hashes[1])
        return Manifest(plan=plan, corpus=corpus, entries=self._entries, set_aside=set_aside)

    def _differs(self, where: str) -> CorpusError:
        return CorpusError(f"{self._name} is not what was inserted: {where}; {_AGAIN}")


@contextmanager
def in_turn(parts: Iterable[Part]) -> Iterator[Same]:
    """Compares with these parts, one after another."""
    waiting = iter(parts)

    def same(written: Written | None) -> bool:
        before = next(waiting, None)
        if written is None or before is None:
            return written is None and before is None
        # Of inserted documents, too, nothing may differ.
        return written.rest.same(before) and (
            not written.added or written.part.same(before.merged(written.added).part)
        )

    yield same


def same_hash(sha256: str) -> Same:
    """Compares with the hash of all that was there."""
    digest = hashlib.sha256()

    def same(written: Written | None) -> bool:
        if written is None:
            return digest.hexdigest() == sha256
        digest.update(written.rest.content)
        return True

    return same


def check_inserted(
    entries: Sequence[Canary], fills: Mapping[str, Found], set_aside: Mapping[str, Collection[int]]
) -> None:
    """Refuse a corpus unless each canary is in it as often as planned, and no other fill."""
    for canary in entries:
        count = fills[canary.format].counts[canary.index]
        if count != canary.inserted:
            raise CorpusError(
                f"{canary.id} is in the corpus {count} times instead of {canary.inserted}; "
                "insert again into the original corpus"
            )
    for name, strange in strange_fills(entries, fills, set_aside).items():
        raise CorpusError(
            f"secrets of format {name!r} that the manifest does not have are in the corpus "
            f"{fills[name].named(strange, 'line or record')}; insert again into the original corpus"
        )


def strange_fills(
    entries: Sequence[Canary], fills: Mapping[str, Found], set_aside: Mapping[str, Collection[int]]
) -> dict[str, set[int]]:
    """Per format, where there are any, the fills that are neither of a manifest nor set aside."""
    known = {name: set(set_aside.get(name, ())) for name in fills}
    for entry in entries:
        known[entry.format].add(entry.index)
    strange = {name: found.counts.keys() - known[name] for name, found in fills.items()}
    return {name: those for name, those in strange.items() if those}


def manifest_of(
    plan: Plan,
    about: CorpusRecord,
    *,
    documents: int,
    set_aside: Mapping[str, Collection[int]] | None = None,
) -> Manifest:
    """The manifest of an insertion into a corpus that is never read as a whole, nor hashed."""
    aside = {name: tuple(sorted(indices)) for name, indices in (set_aside or {}).items()}
    entries = draw_plan(plan, documents=documents, set_aside=aside)
    corpus = replace(about, documents=documents)
    return Manifest(plan=plan, corpus=corpus, entries=entries, set_aside=aside)


def text_line(number: int, text: object) -> bytes:
    """What is hashed of a text: JSON, so that no two lists of texts look alike."""
    if not isinstance(text, str):
        raise CorpusError(
            f"record {number} is of type {type(text).__name__}, not a string; name the field that "
            "holds the text, or leave such records out"
        )
    try:
        return json.dumps(text, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        raise CorpusError(
            f"record {number} is not Unicode text: it holds a lone surrogate; mend it"
        ) from None


def constants_of(fields: object) -> dict[str, Any]:
    """Constants by the names of fields, or a refusal of anything else; None: there are none."""
    wanted = 'constants by name, such as {"source": "x"}'
    given: Any = {} if fields is None else fields
    of_type("fields", given, Mapping, wanted, error=CorpusError)
    for name in given:
        of_type("a name in fields", name, str, wanted, error=CorpusError)
    return dict(given)


@contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Errors about a line or row say of which file, where they do not yet."""
    try:
        yield
    except CorpusError as failure:
        if name in str(failure):
            raise
        raise CorpusError(f"{name}: {failure}") from failure
