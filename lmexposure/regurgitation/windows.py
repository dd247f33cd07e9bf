"""Windows of a corpus: a prompt of some tokens, and the tokens that follow in the document.

A corpus may be larger than memory, so it is read twice: once to count the windows that there are,
and once to keep those documents of which a window was drawn. A document that is there several times
counts once, with its copies: what is repeated is asked for once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmexposure.errors import CorpusError
from lmexposure.models import Encoded, Placed, place_documents
from lmexposure.records import VerbatimSettings

Documents = Callable[[], Iterable[str]]  # from the beginning, each time
_TOGETHER = 256  # documents that are encoded at once


@dataclass(frozen=True, kw_only=True, eq=False)
class Document:
    """A document of which windows are looked at.

    Attributes:
        number: from 1; of several copies the first.
        copies: documents of the corpus with this very text.
        text: all of it.
        placed: its tokens.
        lead: tokens that every window begins with: BOS, where the tokenizer adds it.
    """

    number: int
    copies: int
    text: str
    placed: Placed
    lead: tuple[int, ...]

    def encoded(self, place: int, prefix: int, suffix: int) -> Encoded:
        """Tokens in front of a place, and behind it.

        Args:
            place: of the first token of the suffix, in `placed.ids`.
            prefix: tokens of the prompt, fewer at the beginning of the document.
            suffix: tokens that follow, fewer at its end.
        """
        begin = max(0, place - prefix)
        lead = list(self.lead) if begin else []
        ids = lead + self.placed.ids[begin : place + suffix]
        return Encoded(ids=ids, scored_from=len(lead) + place - begin)

    def characters(self, first: int, stop: int) -> tuple[int, int]:
        """First character of some of its tokens, and the one behind the last.

        Args:
            first: place in `placed.ids`.
            stop: place behind the last of them.
        """
        places = self.placed.places[max(0, first - self.placed.first) : stop - self.placed.first]
        return (int(places[0, 0]), int(places[:, 1].max())) if len(places) else (0, 0)


@dataclass(frozen=True, kw_only=True)
class Window:
    """One window.

    Attributes:
        document: its place among the documents looked at, from 0.
        place: of the suffix's first token.
        encoded: prompt and suffix.
        start, stop: characters of the suffix in the document.
    """

    document: int
    place: int
    encoded: Encoded
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """The windows of a corpus that are looked at.

    Attributes:
        documents: that have one.
        windows: by document, then by place.
        among: windows that there are.
        read: documents of the corpus.
        distinct: different ones of those asked for.
        too_short: of these, that have no window.
        characters: of all documents.
        sha256: of their texts.
    """

    documents: Sequence[Document]
    windows: Sequence[Window]
    among: int
    read: int
    distinct: int
    too_short: int
    characters: int
    sha256: str

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
    name: str,
    listed: bool = True,
) -> Windows:
    """Draw windows of a corpus.

    Args:
        corpus: gives its documents, from the beginning each time.
        tokenizer: of the model.
        settings: lengths, stride, how many, which documents.
        separator: the text in front of each document; None: the tokenizer's start token.
        name: what messages call the corpus.
        listed: whether `settings.documents` are numbers of this corpus.

    Raises:
        CorpusError: no document has a window, or a number that the corpus does not have.
        ModelError: the tokenizer does not say where its tokens are.
    """
    wanted = frozenset(settings.documents or ()) if listed else frozenset()
    counts: list[int] = []  # windows of each document; of further copies none
    copies: Counter[bytes] = Counter()
    firsts: dict[bytes, int] = {}
    characters, hashed = 0, sha256()
    longest = too_short = 0
    for number, (text, placed) in enumerate(_placed(corpus, tokenizer, separator), 1):
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
            f"{name} has {len(counts):,} documents, and number {max(wanted):,} was asked for; give "
            f"numbers from 1 to {len(counts):,}"
        )
    among = sum(counts)
    if not among:
        length = settings.prefix_tokens + settings.suffix_tokens
        raise CorpusError(
            f"no document of {name} has a window: the longest has {longest:,} tokens, and a window "
            f"takes {settings.prefix_tokens} + {settings.suffix_tokens} = {length}; give shorter "
            "--prefix-tokens and --suffix-tokens, or another --layout, in which documents are "
            "longer, such as paragraphs"
        )
    chosen = _drawn(among, settings.windows, settings.seed)
    held = {firsts[own]: n for own, n in copies.items() if n > 1}
    reading = _Reading(corpus, tokenizer, settings, separator, held)
    documents, windows = reading.kept(counts, chosen)
    return Windows(
        documents=documents,
        windows=windows,
        among=among,
        read=len(counts),
        distinct=len(copies),
        too_short=too_short,
        characters=characters,
        sha256=hashed.hexdigest(),
    )


def _drawn(among: int, most: int, seed: int) -> NDArray[np.int64]:
    """Numbers of windows, ascending; all where there are no more."""
    if among <= most:
        return np.arange(among)
    draws = np.random.default_rng([seed, 1])
    return np.sort(draws.choice(among, size=most, replace=False))


@dataclass(frozen=True)
class _Reading:
    """The second reading: the documents that have a drawn window.

    Attributes:
        corpus, tokenizer, settings, separator: as of `read_windows`.
        copies: of documents that are there several times, by their numbers.
    """

    corpus: Documents
    tokenizer: Any
    settings: VerbatimSettings
    separator: str | None
    copies: dict[int, int]

    def kept(
        self, counts: Sequence[int], chosen: NDArray[np.int64]
    ) -> tuple[list[Document], list[Window]]:
        """Documents and windows.

        Args:
            counts: windows of each document.
            chosen: numbers of those that were drawn, ascending.
        """
        before = np.concatenate([[0], np.cumsum(counts)])
        owners = np.searchsorted(before, chosen, side="right") - 1
        own = {int(owner): chosen[owners == owner] - before[owner] for owner in np.unique(owners)}
        lead = lead_of(self.tokenizer)
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
                windows += self._windows(document, len(documents), own[number])
                documents.append(document)
        return documents, windows

    def _windows(
        self, document: Document, number: int, chosen: NDArray[np.int64]
    ) -> Iterator[Window]:
        every = _places(document.placed, self.settings)
        prefix, suffix = self.settings.prefix_tokens, self.settings.suffix_tokens
        for place in (every[k] for k in chosen.tolist()):
            start, stop = document.characters(place, place + suffix)
            yield Window(
                document=number,
                place=place,
                encoded=document.encoded(place, prefix, suffix),
                start=start,
                stop=stop,
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
    return range(first, last + 1, settings.stride_used)


def _placed(
    corpus: Documents, tokenizer: Any, separator: str | None
) -> Iterator[tuple[str, Placed]]:
    for batch in _batches(corpus()):
        yield from zip(batch, place_documents(tokenizer, batch, context=separator), strict=True)


def _batches(items: Iterable[Any]) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for item in items:
        batch.append(item)
        if len(batch) == _TOGETHER:
            yield batch
            batch = []
    if batch:
        yield batch
