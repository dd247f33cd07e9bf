"""Kinds of canaries: how their texts are chosen, and what may be claimed of each.

A uniform fill is drawn from all fills of its format, so that it has a rank among those that were
not. The texts of every other kind are chosen one by one, from the corpus before insertion or from a
file, by one seed, for all candidates alike and before any coin is tossed. So a coin alone decides
whether one is in: they are judged by their coins, and have neither rank nor exposure. A text is one
line, is in no document of the corpus, and no other text is within it.

A kind more is a `Kind`, and its line in `KINDS`.

Sources: Panda et al. 2025 (ICLR), "Privacy auditing of large language models", section 4 (new
tokens); Aerni et al. 2024, "Evaluations of machine learning privacy defenses are misleading"
(near-duplicates).
"""

import random
import re
import unicodedata
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path

from lmexposure._files import read_bytes, sha256_bytes
from lmexposure.canaries.format import ALWAYS, PARTNER, UNIFORM, Format, first_nested
from lmexposure.canaries.plan import derive_seed, permutation
from lmexposure.errors import CorpusError, PlanError

_HEAD = 4_000_000  # characters of the corpus whose words are counted


@dataclass(frozen=True, kw_only=True)
class Material:
    """What texts are chosen from."""

    # gives the texts of the corpus, from the first, each time that it is called
    documents: Callable[[], Iterable[str]]
    count: int  # texts wanted of each kind
    seed: int = field(repr=False)  # decides which are taken
    # of near-duplicates: "coin", the copy has a coin of its own; "always", it is in
    partner: str = "coin"
    texts: Path | None = None  # a file of texts; None: there is none

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

    def seed_of(self, *names: str) -> int:
        """A seed of its own for each purpose."""
        return derive_seed(self.seed, "crafting", *names)

    def random(self, *names: str) -> random.Random:
        """A stream of its own for each purpose."""
        return random.Random(self.seed_of(*names))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One way to choose the texts of canaries, and what may be claimed of them."""

    name: str  # as `--kind` has it; of all but uniform fills also the name of the format
    meaning: str  # one line for people
    secret: str  # which part of a text is scored: what follows its known beginning
    # the format of these texts, and where they have partners the partners' format behind it; a text
    # has the same place in both
    choose: Callable[[Material], Sequence[Format]]
    # whether a format that was chosen earlier is what would be chosen now, as far as files go
    unchanged: Callable[[Format, Material], bool] = lambda form, material: True
    needs: str = ""  # the setting that it cannot do without, and which asks for it; "": none
    reads: tuple[str, ...] = ()  # other settings that no other kind reads
    grows: bool = False  # whether each text brings an entry of the vocabulary of its own
    paired: bool = False  # whether each text has a partner, a copy that is not audited
    # to the rules that candidates are disjoint and drawn alike, and that the corpus holds no text
    # like one that is out; "" where there is none. Reports tell it.
    exception: str = ""


# A word of most scripts; of scripts without spaces between words, a character.
_WORD = re.compile(r"[^\W_\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[^\W_]")
_KNOWN = 60  # characters of the corpus in front of a new token, about
_SHARED, _END = 9, 3  # words of a near-duplicate that its partner has too, and that it has not
_COMMON = 500  # the words of which the shared ones are
# Private-use characters, which no text has by chance.
_SYMBOLS = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE))
_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U000ffffd]")


def _new_tokens(material: Material) -> Sequence[Format]:
    """A beginning of the corpus, and a symbol of its own."""
    texts = (document for document in material.documents() if not document.isascii())
    present = {character for text in texts for character in _PRIVATE.findall(text)}
    symbols = (chr(n) for block in _SYMBOLS for n in block if chr(n) not in present)
    chosen = [symbol for symbol, _ in zip(symbols, range(material.count), strict=False)]
    if len(chosen) < material.count:
        raise PlanError(
            f"kind new_token: {material.count:,} candidates, and {len(chosen):,} private-use "
            f"characters that the corpus does not hold; plan at most {len(chosen):,}"
        )
    known = _beginnings(material)
    return [
        Format.of_texts(
            NEW_TOKEN.name,
            [text + symbol for text, symbol in zip(known, chosen, strict=True)],
            kind=NEW_TOKEN.name,
            known=[len(text) for text in known],
            description=NEW_TOKEN.meaning,
            source="Panda et al. 2025, Privacy auditing of large language models",
        )
    ]


def _beginnings(material: Material) -> list[str]:
    """Beginnings of documents with a space behind, different ones as far as there are."""
    chance = material.random(NEW_TOKEN.name, "beginnings")
    kept: list[str] = []
    of_words = filter(_WORD.search, material.head)
    for seen, document in enumerate(of_words):  # a reservoir sample
        if len(kept) < material.count:
            kept.append(_beginning(document))
        elif (place := chance.randrange(seen + 1)) < material.count:
            kept[place] = _beginning(document)
    if not kept:
        raise PlanError(
            "kind new_token: no document of the corpus has a line with a word to begin with; give "
            "a larger corpus, or leave the kind out"
        )
    chance.shuffle(kept)
    return [kept[n % len(kept)] + " " for n in range(material.count)]


def _beginning(document: str) -> str:
    """Of its first line with a word, ended at a space where there is one."""
    line = next(line for line in document.splitlines() if _WORD.search(line))
    text = " ".join(line.split())
    if len(text) <= _KNOWN:
        return text
    head, _, _ = text[: _KNOWN + 1].rpartition(" ")
    return (head or text[:_KNOWN]).rstrip()


def _near_duplicates(material: Material) -> Sequence[Format]:
    """Words in the order of chance, and a copy with another end."""
    counts = Counter(word for document in material.head for word in _WORD.findall(document))
    ends = _rare_words(counts, material, 2 * _END)
    common = sorted(counts, key=lambda word: (-counts[word], word))[:_COMMON]
    chance = material.random(NEAR_DUPLICATE.name, "beginnings")
    shared = [" ".join(chance.choices(common, k=_SHARED)) + " " for _ in ends]
    always = material.partner == "always"
    parts = (
        (NEAR_DUPLICATE.name, NEAR_DUPLICATE.name, NEAR_DUPLICATE.meaning, slice(_END)),
        (
            PARTNER,
            ALWAYS if always else PARTNER,
            "the copies of near-duplicates, which are not audited",
            slice(_END, None),
        ),
    )
    return [
        Format.of_texts(
            name,
            [text + " ".join(end[part]) for text, end in zip(shared, ends, strict=True)],
            kind=kind,
            known=[len(text) for text in shared],
            description=description,
            source="Aerni et al. 2024, Evaluations of machine learning privacy defenses",
        )
        for name, kind, description, part in parts
    ]


def _rare_words(counts: Mapping[str, int], material: Material, each: int) -> list[list[str]]:
    """Rare words for every text, no word in two of them."""
    wanted = material.count * each
    # Words that are there once come last.
    known = sorted(counts, key=lambda word: (counts[word] == 1, counts[word], word))
    rarest = known[:wanted]
    if len(rarest) < wanted:
        raise PlanError(
            f"kind near_duplicate: {material.count:,} candidates take {wanted:,} different words, "
            f"each once, and the corpus has {len(rarest):,}; plan at most {len(rarest) // each:,}, "
            "give a larger corpus, or choose the kind new_token"
        )
    material.random(NEAR_DUPLICATE.name).shuffle(rarest)
    return [rarest[n * each : (n + 1) * each] for n in range(material.count)]


NEW_TOKEN = Kind(
    name="new_token",
    meaning="a text of the corpus, and behind it a symbol that is nowhere else",
    secret="that symbol",
    choose=_new_tokens,
    grows=True,
)
NEAR_DUPLICATE = Kind(
    name="near_duplicate",
    meaning="a text whose copy with another end has a coin of its own, or is always in",
    secret="its end",
    choose=_near_duplicates,
    reads=("partner",),
    paired=True,
    exception="a text almost like each candidate is in the corpus as well, and is not audited",
)


_LONGEST = 1_000  # characters of a text: a canary is to fit into one row of a training
_CONTROLS = ("Cc", "Zl", "Zp")  # Unicode's categories of what ends or disturbs a line
_INVISIBLE = "Cf"  # of what changes how a line is shown, or nothing at all
_JOINERS = "\u200c\u200d"  # are of it, and spell words of some scripts, and emoji
_TOGETHER = 512  # documents that are searched at once
_STDIN = "-"


def _choose(material: Material) -> Sequence[Format]:
    """Texts drawn uniformly from those of the file that the corpus does not hold."""
    path = _path(material)
    content = _content(path)
    lines = _lines(path, content)
    free = _drawn(sorted(lines.values()), material)
    if len(free) < material.count:
        held = len(lines) - len(free)
        those = f" ({held:,} more are in the corpus)" if held else ""
        raise PlanError(
            f"{path} has {len(free):,} texts that can be canaries{those}, and "
            f"{material.count:,} are planned: canaries in each class of repetitions, and controls; "
            f"plan at most {len(free):,} (canaries=..., repetitions=..., controls=...), or give "
            "more lines"
        )
    return [
        Format.of_texts(
            TEXTS.name, free, kind=TEXTS.name, description=TEXTS.meaning, source=_source(content)
        )
    ]


def _unchanged(form: Format, material: Material) -> bool:
    return form.source == _source(_content(_path(material)))


def _source(content: bytes) -> str:
    """What a manifest says of the file."""
    return f"a file of texts, SHA-256 {sha256_bytes(content)}"


def _path(material: Material) -> Path:
    if material.texts is None:
        raise PlanError("kind texts needs a file, one text a line; give texts")
    return material.texts


def _content(path: Path) -> bytes:
    if str(path) == _STDIN:
        raise CorpusError(
            "texts='-': texts are read again when a command goes on, and standard input is there "
            "once; write them to a file and name that"
        )
    if path.exists() and not path.is_file():
        what = "a directory" if path.is_dir() else "no regular file"
        raise CorpusError(f"{path} is {what}; give a text file, one text a line")
    try:
        return read_bytes(path)
    except OSError as failure:
        raise CorpusError(
            f"cannot read {path}: {failure.strerror}; give a text file, one text a line"
        ) from failure


def _lines(path: Path, content: bytes) -> dict[int, str]:
    """Its texts by the number of their line, from 1; each sound, and none within another."""
    content = content.removeprefix(BOM_UTF8)
    try:
        text = content.decode()
    except UnicodeDecodeError as failure:
        place = content.count(b"\n", 0, failure.start) + 1
        raise CorpusError(f"{path}, line {place}: not UTF-8; give a text file in UTF-8") from None
    every = enumerate((line.strip() for line in text.split("\n")), 1)
    lines = {number: line for number, line in every if line}
    if not lines:
        raise CorpusError(f"{path} has no line with a text; give one text a line")
    for number, line in lines.items():
        if wrong := _wrong(line):
            raise CorpusError(f"{path}, line {number}: {wrong}")
    _refuse_alike(path, lines)
    return lines


def _wrong(line: str) -> str:
    """Why a line is no text of a canary; "" where it is."""
    for character in line:
        kind = unicodedata.category(character)
        if kind in _CONTROLS or (kind == _INVISIBLE and character not in _JOINERS):
            what = "invisible" if kind == _INVISIBLE else "control"
            return (
                f"holds the {what} character U+{ord(character):04X}; leave it out, or write a space"
            )
    if len(line) > _LONGEST:
        return f"{len(line):,} characters; give at most {_LONGEST:,} in a line"
    return ""


def _refuse_alike(path: Path, lines: dict[int, str]) -> None:
    """Refuse two lines that look alike but for case and spaces, and one within another."""
    first: dict[str, int] = {}
    for number, line in lines.items():
        # Twice, since "é" is one character or two, and folding may part them.
        folded = unicodedata.normalize("NFKC", line).casefold()
        folded = " ".join(unicodedata.normalize("NFKC", folded).split())
        before = first.setdefault(folded, number)
        if before != number:
            raise CorpusError(
                f"{path}, lines {before} and {number}: the same text, but for case, spaces "
                "and how Unicode spells it; keep one of them"
            )
    numbers = list(lines)
    if (pair := first_nested(list(lines.values()))) is not None:
        inner, outer = (numbers[place] for place in pair)
        raise CorpusError(
            f"{path}, lines {inner} and {outer}: the text of line {inner} is within that of line "
            f"{outer}, so that a copy of one would count as a copy of the other; keep one of them"
        )


def _drawn(texts: Sequence[str], material: Material) -> list[str]:
    """As many as are wanted, of those that no document holds; fewer where no more are left."""
    order = permutation(len(texts), material.seed_of(TEXTS.name))
    free: list[str] = []
    tried = 0
    while len(free) < material.count and tried < len(texts):
        # At least as many as before: the corpus is read anew for them.
        more = [texts[place] for place in islice(order, max(material.count - len(free), tried))]
        tried += len(more)
        held = held_in(more, material.documents())
        free += [text for text in more if text not in held]
    return free[: material.count]


def held_in(texts: Sequence[str], documents: Iterable[str]) -> set[str]:
    """Which of the texts are part of a document."""
    from lmexposure.canaries.text_search import TextSearch  # brings numpy: no help waits for it

    search, waiting = TextSearch(texts), iter(documents)
    held: set[str] = set()
    while together := list(islice(waiting, _TOGETHER)):
        data = "\n".join(together).encode(errors="surrogatepass")
        held.update(texts[number] for _, _, number in search.found(data))
    return held


TEXTS = Kind(
    name="texts",
    meaning="a line of a file, chosen by whoever made the file",
    secret="all of it",
    choose=_choose,
    unchanged=_unchanged,
    needs="texts",
)


_FILLS = Kind(
    name=UNIFORM,
    meaning="a format filled with a secret that is drawn uniformly",
    secret="what is in the holes",
    choose=lambda material: (),  # a plan draws them
    reads=("formats",),
)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (_FILLS, NEW_TOKEN, NEAR_DUPLICATE, TEXTS)}
