"""Kinds whose texts are made from the corpus: new tokens, and near-duplicates.

Sources: Panda et al. 2025 (ICLR), "Privacy auditing of large language models", section 4 (new
tokens); Aerni et al. 2024, "Evaluations of machine learning privacy defenses are misleading"
(near-duplicates).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from lmexposure.canaries.choosing import Kind, Material
from lmexposure.canaries.format import ALWAYS, PARTNER, Format
from lmexposure.errors import PlanError

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
    present = {c for document in material.documents() for c in _private(document)}
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


def _private(document: str) -> Sequence[str]:
    return () if document.isascii() else _PRIVATE.findall(document)


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
    counts = _word_counts(material.head)
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


def _word_counts(documents: Iterable[str]) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for document in documents:
        counts.update(_WORD.findall(document))
    return counts


def _rare_words(counts: Mapping[str, int], material: Material, each: int) -> list[list[str]]:
    """Rare words for every text, no word in two of them."""
    wanted = material.count * each
    rarest = _rarest(counts, wanted)
    if len(rarest) < wanted:
        raise PlanError(
            f"kind near_duplicate: {material.count:,} candidates take {wanted:,} different words, "
            f"each once, and the corpus has {len(rarest):,}; plan at most {len(rarest) // each:,}, "
            "give a larger corpus, or choose the kind new_token"
        )
    material.random(NEAR_DUPLICATE.name).shuffle(rarest)
    return [rarest[n * each : (n + 1) * each] for n in range(material.count)]


def _rarest(counts: Mapping[str, int], wanted: int) -> list[str]:
    """As many of the rarest words, the rarest first; those that are there once come last."""
    known = sorted(counts, key=lambda word: (counts[word], word))
    several = [word for word in known if counts[word] > 1]
    single = [word for word in known if counts[word] == 1]
    return (several + single)[:wanted]


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
