"""Windows of a corpus: a prompt of some tokens, and the tokens that follow in the document.

A corpus may be larger than memory, so it is read twice: once to count the windows that there are,
and once to keep those documents of which a window was drawn. A document that is there several times
counts once, with its copies: what is repeated is asked for once.

Of a corpus and held-out documents windows are drawn together: first as many documents of each as
the counts of documents and of all windows say, then windows of these, whichever side they are on.
Proof that documents stay exchangeable under a random split: each arrangement of sides is equally
likely, the numbers of drawn documents are the same in all of them, and so is the chance to draw
these documents and windows. Were each group drawn to the same number of windows, documents of the
larger one would be read in part, and those of the smaller one whole.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.core import Encoded
from lmexposure.errors import CorpusError
from lmexposure.models import Placed, place_documents
from lmexposure.studies import VerbatimSettings

Documents = Callable[[], Iterable[str]]  # from the beginning, each time
_TOGETHER = 256  # documents that are encoded at once


@dataclass(frozen=True, kw_only=True, eq=False)
class Document:
    """A document of which windows are looked at."""

    number: int  # from 1; of several copies the first
    copies: int  # documents of the corpus with this very text
    text: str  # all of it
    placed: Placed  # its tokens
    lead: tuple[int, ...]  # tokens that every window begins with: BOS, where the tokenizer adds it

    def encoded(self, place: int, prefix: int, suffix: int) -> Encoded:
        """Tokens in front of a place, and behind it."""
        begin = max(0, place - prefix)
        lead = list(self.lead) if begin else []
        ids = lead + self.placed.ids[begin : place + suffix]
        return Encoded(ids=ids, scored_from=len(lead) + place - begin)

    def characters(self, first: int, stop: int) -> tuple[int, int]:
        """First character of some of its tokens, and the one behind the last."""
        places = self.placed.places[max(0, first - self.placed.first) : stop - self.placed.first]
        return (int(places[0, 0]), int(places[:, 1].max())) if len(places) else (0, 0)


@dataclass(frozen=True, kw_only=True)
class Window:
    """One window."""

    document: int  # its place among the documents looked at, from 0
    place: int  # of the suffix's first token
    encoded: Encoded  # prompt and suffix
    # start, stop: characters of the suffix in the document
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """The windows of a corpus that are looked at."""

    documents: Sequence[Document]  # that have one
    windows: Sequence[Window]  # by document, then by place
    among: int  # windows that there are
    sizes: NDArray[np.int64]  # of these, in each document that has one, most first
    drawn: int  # documents that were drawn, with or without a window among `windows`
    among_drawn: int  # windows that these have
    read: int  # documents of the corpus
    distinct: int  # different ones of those asked for
    too_short: int  # of these, that have no window
    characters: int  # of all documents
    sha256: str  # of their texts

    @property
    def encoded(self) -> list[Encoded]:
        """Of all windows."""
        return [window.encoded for window in self.windows]

    def of_document(self, number: int) -> list[int]:
        """Places of the windows of one document, by its place."""
        return [i for i, window in enumerate(self.windows) if window.document == number]


def read_windows(
    corpus: Documents,
    tokenizer: Any,
    settings: VerbatimSettings,
    *,
    separator: str | None,
    held_out: Documents | None = None,
) -> tuple[Windows, Windows | None]:
    """Draw windows of a corpus, and of held-out documents together with it."""
    numbers = frozenset(settings.documents or ())
    readings = [_Reading.of(corpus, tokenizer, settings, separator, "the corpus", numbers)]
    if held_out is not None:
        readings.append(
            _Reading.of(held_out, tokenizer, settings, separator, "the held-out corpus")
        )
    most = settings.windows * len(readings)
    documents, chosen = _drawn([reading.counts for reading in readings], most, settings.seed)
    for reading, some in zip(readings, chosen, strict=True):
        if not some.size:
            raise CorpusError(
                f"none of the {most:,} passages that were drawn is of {reading.name}; ask for more "
                "(windows=...)"
            )
    found = [
        reading.windows(*some) for reading, *some in zip(readings, documents, chosen, strict=True)
    ]
    return found[0], (found[1] if held_out is not None else None)


def _drawn(
    counts: Sequence[NDArray[np.int64]], most: int, seed: int
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Documents of each group that are drawn, and windows of these by their numbers; ascending."""
    draws = np.random.default_rng([seed, 1])
    documents = [np.flatnonzero(group) for group in counts]
    total = sum(int(group.sum()) for group in counts)
    if len(counts) > 1:
        # Many more documents than the other group has say little in a comparison with it: what
        # there is room for is better spent on reading them whole.
        sizes = [group.size for group in documents]
        share = max(2 * min(sizes), most * sum(sizes) // total - min(sizes))
        documents = [
            np.sort(draws.choice(group, size=share, replace=False)) if group.size > share else group
            for group in documents
        ]
    of_these = [
        np.flatnonzero(np.repeat(np.isin(np.arange(group.size), kept), group))
        for group, kept in zip(counts, documents, strict=True)
    ]
    room = sum(group.size for group in of_these)
    if room > most:
        taken = np.sort(draws.choice(room, size=most, replace=False))
        ends = np.cumsum([group.size for group in of_these])
        parts = np.split(taken, np.searchsorted(taken, ends[:-1]))
        of_these = [
            group[part - (end - group.size)]
            for group, part, end in zip(of_these, parts, ends.tolist(), strict=True)
        ]
    return documents, of_these


@dataclass(frozen=True, kw_only=True, eq=False)
class _Reading:
    """What the first reading of some documents found, and the second one, of those drawn."""

    # corpus, tokenizer, settings, separator: as of `read_windows`
    corpus: Documents
    tokenizer: Any
    settings: VerbatimSettings
    separator: str | None
    name: str  # what messages call the documents
    counts: NDArray[np.int64]  # windows of each document; of further copies none
    copies: dict[int, int]  # of documents that are there several times, by their numbers
    # distinct, too_short, characters, sha256: as of `Windows`
    distinct: int
    too_short: int
    characters: int
    sha256: str

    @classmethod
    def of(
        cls,
        corpus: Documents,
        tokenizer: Any,
        settings: VerbatimSettings,
        separator: str | None,
        name: str,
        wanted: frozenset[int] = frozenset(),
    ) -> "_Reading":
        """Count the windows; of some documents, where numbers are given."""
        counts: list[int] = []
        copies: Counter[bytes] = Counter()
        firsts: dict[bytes, int] = {}
        characters, hashed = 0, sha256()
        longest = too_short = 0
        every = (
            pair
            for batch in _batches(corpus())
            for pair in zip(
                batch, place_documents(tokenizer, batch, context=separator), strict=True
            )
        )
        for number, (text, placed) in enumerate(every, 1):
            characters += len(text)
            own = sha256(text.encode("utf-8", "surrogatepass")).digest()
            hashed.update(own)
            counts.append(0)
            if wanted and number not in wanted:
                continue
            copies[own] += 1
            if firsts.setdefault(own, number) == number:
                longest = max(longest, len(placed.ids))
                counts[-1] = len(_places(placed, settings))
                too_short += not counts[-1]
        if wanted and max(wanted) > len(counts):
            raise CorpusError(
                f"{name} has {len(counts):,} documents, and number {max(wanted):,} was asked for; "
                f"give numbers from 1 to {len(counts):,}"
            )
        if not any(counts):
            length = settings.prefix_tokens + settings.suffix_tokens
            raise CorpusError(
                f"every document of {name} is too short: the longest has {longest:,} tokens, and a "
                f"passage takes {settings.prefix_tokens} + {settings.suffix_tokens} = {length}; "
                "ask for shorter ones (prefix_tokens=..., suffix_tokens=...), or give another "
                "layout (layout=...), in which documents are longer, such as paragraphs"
            )
        return cls(
            corpus=corpus,
            tokenizer=tokenizer,
            settings=settings,
            separator=separator,
            name=name,
            counts=np.array(counts, dtype=np.int64),
            copies={firsts[own]: n for own, n in copies.items() if n > 1},
            distinct=len(copies),
            too_short=too_short,
            characters=characters,
            sha256=hashed.hexdigest(),
        )

    def windows(self, drawn: NDArray[np.int64], chosen: NDArray[np.int64]) -> Windows:
        """What is looked at."""
        before = np.concatenate([[0], np.cumsum(self.counts)])
        owners = np.searchsorted(before, chosen, side="right") - 1
        own = {int(owner): chosen[owners == owner] - before[owner] for owner in np.unique(owners)}
        lead = lead_of(self.tokenizer)
        prefix, suffix = self.settings.prefix_tokens, self.settings.suffix_tokens
        documents: list[Document] = []
        windows: list[Window] = []
        texts = ((number, text) for number, text in enumerate(self.corpus()) if number in own)
        for batch in _batches(texts):
            placed = place_documents(
                self.tokenizer, [text for _, text in batch], context=self.separator
            )
            for (number, text), tokens in zip(batch, placed, strict=True):
                document = Document(
                    number=number + 1,
                    copies=self.copies.get(number + 1, 1),
                    text=text,
                    placed=tokens,
                    lead=lead,
                )
                every = _places(document.placed, self.settings)
                for place in (every[k] for k in own[number].tolist()):
                    start, stop = document.characters(place, place + suffix)
                    window = Window(
                        document=len(documents),
                        place=place,
                        encoded=document.encoded(place, prefix, suffix),
                        start=start,
                        stop=stop,
                    )
                    windows.append(window)
                documents.append(document)
        return Windows(
            documents=documents,
            windows=windows,
            among=int(self.counts.sum()),
            sizes=-np.sort(-self.counts[self.counts > 0]),
            drawn=drawn.size,
            among_drawn=int(self.counts[drawn].sum()),
            read=self.counts.size,
            distinct=self.distinct,
            too_short=self.too_short,
            characters=self.characters,
            sha256=self.sha256,
        )


def lead_of(tokenizer: Any) -> tuple[int, ...]:
    """The BOS token, where the tokenizer puts it in front of every text by itself."""
    bos = tokenizer.bos_token_id
    return (bos,) if bos is not None and tokenizer("a")["input_ids"][:1] == [bos] else ()


def _places(placed: Placed, settings: VerbatimSettings) -> range:
    """Where the suffixes of a document begin."""
    last = len(placed.ids) - settings.suffix_tokens
    # The prompt is text of the document, and at least one token is in front.
    first = max(placed.first + settings.prefix_tokens, 1)
    return range(first, last + 1, settings.stride or settings.suffix_tokens)


def _batches(items: Iterable[Any]) -> Iterator[list[Any]]:
    every = iter(items)
    while batch := list(islice(every, _TOGETHER)):
        yield batch
