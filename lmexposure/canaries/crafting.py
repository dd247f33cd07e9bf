"""Texts of the kinds that need no model: chosen from the corpus, or from other texts.

Everything here is chosen before a coin is tossed, for all candidates alike, from the corpus as it
is before insertion. One seed decides it; the same corpus and seed give the same texts. A text is
one line, is in no document of the corpus, and no other text is within it.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path

from lmexposure.canaries.format import Format
from lmexposure.canaries.kinds import ALWAYS, KINDS, PARTNER
from lmexposure.canaries.plan import derive_seed, permutation
from lmexposure.canaries.text_search import TextSearch
from lmexposure.errors import CorpusError, PlanError

# A word of most scripts; of scripts without spaces between words, a character.
_WORD = re.compile(r"[^\W_\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[^\W_]")
_WORDS, _PAIRS, _TIMES = 6, 2, 3  # rare words of a text; pairs of words, and how often each
_KNOWN = 60  # characters of the corpus in front of a secret, about
_HEAD = 4_000_000  # characters of the corpus whose words are counted
_LONGEST_OTHER, _SHORTEST_OTHER = 200, 20
_BEGINNING, _BLOCK = 8, 1 << 14  # characters by which texts are looked up; of a string of many
_TOGETHER = 512  # documents that are searched at once
_SHARED, _END = 9, 3  # words of a near-duplicate that its partner has too, and that it has not
# Private-use characters, which no text has by chance.
_SYMBOLS = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE))
_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U000ffffd]")


@dataclass(frozen=True, kw_only=True)
class Material:
    """What texts are chosen from."""

    # gives the texts of the corpus, from the first, each time that it is called
    documents: Callable[[], Iterable[str]]
    count: int  # texts wanted of each kind
    seed: int = field(repr=False)  # decides which are taken
    other: Path | None = None  # a file of texts of another language or domain; None: there is none
    # of near-duplicates: "coin", the copy has a coin of its own; "always", it is in
    partner: str = "coin"

    @cached_property
    def head(self) -> Sequence[str]:
        """The first documents, at least one and about 4 million characters: words are of these."""
        kept, characters = [], 0
        for document in self.documents():
            if characters > _HEAD:
                break
            kept.append(document)
            characters += len(document)
        return kept

    @cached_property
    def words(self) -> "Words":
        """Words of the corpus' head, counted once for all kinds."""
        return Words.of(self.head)

    def random(self, *names: str) -> random.Random:
        """A stream of its own for each purpose."""
        return random.Random(derive_seed(self.seed, "crafting", *names))


@dataclass(frozen=True, kw_only=True)
class Words:
    """The words of a corpus."""

    counts: Mapping[str, int]  # how often each is there

    @classmethod
    def of(cls, documents: Iterable[str]) -> "Words":
        """Count them in one pass."""
        counts: Counter[str] = Counter()
        for document in documents:
            counts.update(_WORD.findall(document))
        return cls(counts=counts)

    def rarest(self, wanted: int) -> list[str]:
        """As many of the rarest words, the rarest first; those that are there once come last."""
        known = sorted(self.counts, key=lambda word: (self.counts[word], word))
        several = [word for word in known if self.counts[word] > 1]
        if len(several) >= wanted:
            return several[:wanted]
        single = [word for word in known if self.counts[word] == 1]
        return several + single[: wanted - len(several)]


def craft(kind: str, material: Material) -> Sequence[Format]:
    """The format of a kind, and with near-duplicates that of their partners."""
    if kind == "near_duplicate":
        return _near_duplicates(material)
    texts = _CRAFTS[kind](material)
    return [_format(kind, [known + secret for known, secret in texts], [len(k) for k, _ in texts])]


def _format(kind: str, texts: Sequence[str], known: Sequence[int] = ()) -> Format:
    told = KINDS.get(kind, KINDS["near_duplicate"])
    return Format.of_texts(
        kind,
        texts,
        kind=kind,
        known=known if any(known) else (),
        description=told.meaning,
        source=_SOURCES[kind],
    )


def _new_tokens(material: Material) -> list[tuple[str, str]]:
    """A beginning of the corpus, and a symbol of its own (Panda et al. 2025, section 4)."""
    present = {c for document in material.documents() for c in _private(document)}
    symbols = (chr(n) for block in _SYMBOLS for n in block if chr(n) not in present)
    chosen = [symbol for symbol, _ in zip(symbols, range(material.count), strict=False)]
    if len(chosen) < material.count:
        raise PlanError(
            f"kind new_token: {material.count:,} candidates, and {len(chosen):,} private-use "
            f"characters that the corpus does not hold; plan at most {len(chosen):,}"
        )
    return list(zip(_beginnings("new_token", material), chosen, strict=True))


def _private(document: str) -> Sequence[str]:
    return () if document.isascii() else _PRIVATE.findall(document)


def _unigrams(material: Material) -> list[tuple[str, str]]:
    return [("", " ".join(words)) for words in _rare("unigram", material, _WORDS)]


def _rare_suffixes(material: Material) -> list[tuple[str, str]]:
    """Meeus et al. 2025: in-distribution to begin with, unlikely at the end."""
    rare = _rare("rare_suffix", material, _WORDS)
    beginnings = _beginnings("rare_suffix", material)
    return [(known, " ".join(words)) for known, words in zip(beginnings, rare, strict=True)]


def _rare(kind: str, material: Material, each: int) -> list[list[str]]:
    """Rare words for every text, no word in two of them."""
    wanted = material.count * each
    found = material.words.rarest(wanted)
    _enough(kind, material, each, len(found), "different words")
    material.random(kind).shuffle(found)
    return [found[n * each : (n + 1) * each] for n in range(material.count)]


def _bigrams(material: Material) -> list[tuple[str, str]]:
    """Pairs x y of rare x and the y that is least likely behind it, each pair several times."""
    wanted = material.count * _PAIRS
    found = material.words.rarest(2 * wanted)
    _enough("bigram", material, 2 * _PAIRS, len(found), "different words")
    material.random("bigram").shuffle(found)
    firsts, free = found[:wanted], found[wanted:]
    free.sort(key=lambda word: material.words.counts[word])
    behind = _followers(firsts, material.head)
    pairs = [f"{x} {_least_likely(behind[x], free)}" for x in firsts]
    texts = [pairs[n * _PAIRS : (n + 1) * _PAIRS] for n in range(material.count)]
    return [("", " ".join(pair for pair in own for _ in range(_TIMES))) for own in texts]


def _followers(firsts: Sequence[str], documents: Iterable[str]) -> Mapping[str, Counter[str]]:
    """How often each word is right behind each of these."""
    behind: dict[str, Counter[str]] = {word: Counter() for word in firsts}
    for document in documents:
        for first, second in pairwise(_WORD.findall(document)):
            if first in behind:
                behind[first][second] += 1
    return behind


def _least_likely(behind: Mapping[str, int], free: list[str]) -> str:
    """The word that is behind another one least often, taken out of the free ones."""
    least = min(range(len(free)), key=lambda place: behind.get(free[place], 0))
    return free.pop(least)


def _other_texts(material: Material) -> list[tuple[str, str]]:
    """Lines of other texts, drawn uniformly from those that the corpus does not hold."""
    path = material.other
    if path is None:
        raise PlanError("kind other_text needs a file of other texts; give other_text")
    lines = _lines(path)
    corpus = held_in(lines, material.documents())
    free = [line for line in lines if line not in corpus]
    order = permutation(len(free), derive_seed(material.seed, "crafting", "other_text"))
    chosen = texts_apart((free[place] for place in order), material.count)
    if len(chosen) < material.count:
        raise PlanError(
            f"kind other_text: {material.count:,} candidates, and {path} has {len(chosen):,} "
            f"different lines of at least {_SHORTEST_OTHER} characters that the corpus does not "
            f"hold; plan at most {len(chosen):,} or give a larger file"
        )
    return [("", text) for text in chosen]


def _lines(path: Path) -> list[str]:
    """Its lines, cut to a length, each once."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise CorpusError(f"{path} is not UTF-8; give a text file in UTF-8") from None
    except OSError as failure:
        raise CorpusError(
            f"cannot read {path}: {failure.strerror}; give the file of other texts"
        ) from failure
    lines = (_cut(" ".join(line.split()), _LONGEST_OTHER) for line in content.splitlines())
    return list(dict.fromkeys(line for line in lines if len(line) >= _SHORTEST_OTHER))


def held_in(texts: Sequence[str], documents: Iterable[str]) -> set[str]:
    """Which of the texts are part of a document."""
    search, waiting = TextSearch(texts), iter(documents)
    held: set[str] = set()
    while together := list(islice(waiting, _TOGETHER)):
        data = "\n".join(together).encode(errors="surrogatepass")
        held.update(texts[number] for _, _, number in search.found(data))
    return held


def texts_apart(texts: Iterable[str], count: int) -> list[str]:
    """The first ones of which none is within another."""
    apart = _Apart()
    for text in texts:
        if len(apart.chosen) == count:
            break
        if not apart.holds(text) and not apart.within(text):
            apart.add(text)
    return list(apart.chosen)


class _Apart:
    """Texts of which none is within another; a further one is compared with few of them."""

    def __init__(self) -> None:
        self.chosen: dict[str, None] = {}  # the texts, in order
        self._lengths: dict[str, set[int]] = {}  # of those with this beginning
        self._sizes: set[int] = set()  # of these beginnings
        self._blocks = [""]  # all of them, a line each; a long string takes long to append to

    def add(self, text: str) -> None:
        self.chosen[text] = None
        self._lengths.setdefault(text[:_BEGINNING], set()).add(len(text))
        self._sizes.add(len(text[:_BEGINNING]))
        if len(self._blocks[-1]) > _BLOCK:
            self._blocks.append("")
        self._blocks[-1] += text + "\n"

    def holds(self, text: str) -> bool:
        """Whether the text is part of one of them."""
        return any(text in block for block in self._blocks)

    def within(self, text: str) -> bool:
        """Whether one of them is part of the text."""
        return any(
            text[at : at + length] in self.chosen
            for at in range(len(text))
            for size in self._sizes
            for length in self._lengths.get(text[at : at + size], ())
        )


def _near_duplicates(material: Material) -> list[Format]:
    """Words in the order of chance, and a copy with another end."""
    each = 2 * _END
    ends = _rare("near_duplicate", material, each)
    common = sorted(material.words.counts, key=lambda w: (-material.words.counts[w], w))[:500]
    chance = material.random("near_duplicate", "beginnings")
    shared = [" ".join(chance.choices(common, k=_SHARED)) for _ in ends]
    first = [f"{s} {' '.join(end[:_END])}" for s, end in zip(shared, ends, strict=True)]
    second = [f"{s} {' '.join(end[_END:])}" for s, end in zip(shared, ends, strict=True)]
    known = [len(s) + 1 for s in shared]
    return [
        _format("near_duplicate", first, known),
        Format.of_texts(
            PARTNER,
            second,
            kind=PARTNER if material.partner == "coin" else ALWAYS,
            known=known,
            description="the copies of near-duplicates, which are not audited",
            source=_SOURCES["near_duplicate"],
        ),
    ]


def _beginnings(kind: str, material: Material) -> list[str]:
    """Beginnings of documents with a space behind, different ones as far as there are."""
    chance = material.random(kind, "beginnings")
    kept: list[str] = []
    of_words = filter(_WORD.search, material.head)
    for seen, document in enumerate(of_words):  # a reservoir sample
        if len(kept) < material.count:
            kept.append(_beginning(document))
        elif (place := chance.randrange(seen + 1)) < material.count:
            kept[place] = _beginning(document)
    if not kept:
        raise PlanError(
            f"kind {kind}: no document of the corpus has a line with a word to begin with; give a "
            "larger corpus, or leave the kind out"
        )
    chance.shuffle(kept)
    return [kept[n % len(kept)] + " " for n in range(material.count)]


def _beginning(document: str) -> str:
    """Of its first line with a word."""
    line = next(line for line in document.splitlines() if _WORD.search(line))
    return _cut(" ".join(line.split()), _KNOWN)


def _cut(text: str, length: int) -> str:
    """At most so long, ended at a space where there is one."""
    if len(text) <= length:
        return text
    head, _, _ = text[: length + 1].rpartition(" ")
    return (head or text[:length]).rstrip()


def _enough(kind: str, material: Material, each: int, there: int, what: str) -> None:
    if there < material.count * each:
        raise PlanError(
            f"kind {kind}: {material.count:,} candidates take {material.count * each:,} {what}, "
            f"each once, and the corpus has {there:,}; plan at most {there // each:,}, give a "
            "larger corpus, or choose the kind new_token"
        )


_CRAFTS: Mapping[str, Callable[[Material], list[tuple[str, str]]]] = {
    "new_token": _new_tokens,
    "unigram": _unigrams,
    "bigram": _bigrams,
    "rare_suffix": _rare_suffixes,
    "other_text": _other_texts,
}
_PANDA = "Panda et al. 2025, Privacy auditing of large language models"
_SOURCES = {
    "new_token": _PANDA,
    "unigram": _PANDA,
    "bigram": _PANDA,
    "rare_suffix": "Meeus et al. 2025, The canary's echo",
    "other_text": "texts of another language or domain",
    "near_duplicate": "Aerni et al. 2024, Evaluations of machine learning privacy defenses",
}
