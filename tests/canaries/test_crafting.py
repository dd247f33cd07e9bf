"""Texts of kinds that need no model: as asked, apart from each other, and not in the corpus."""

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmexposure.canaries import (
    ALWAYS,
    KINDS,
    PARTNER,
    Format,
    Manifest,
    Material,
    Plan,
    craft,
    find_fills,
    held_in,
    texts_apart,
)
from lmexposure.canaries import insert as insert_texts
from lmexposure.errors import CorpusError, PlanError, SettingsError
from lmexposure.records import RunSettings

COUNT = 12
_CHOSEN = ("new_token", "unigram", "bigram", "rare_suffix", "other_text", "near_duplicate")


def corpus(documents: int = 300, seed: int = 0) -> list[str]:
    """Words whose frequencies fall, some of them rare."""
    rng = random.Random(seed)
    words = [f"{a}{b}{c}" for a in "bdfgklmnprstvz" for b in "aeiou" for c in "nrstlm"]
    weights = [1 / (n + 1) for n in range(len(words))]
    return [" ".join(rng.choices(words, weights, k=12)) for _ in range(documents)]


@pytest.fixture
def other(tmp_path: Path) -> Path:
    path = tmp_path / "other.txt"
    lines = [f"Eine Zeile mit der Nummer {n} und ein paar Wörtern mehr." for n in range(40)]
    path.write_text("\r\n".join([*lines, lines[0], "", "kurz"]), encoding="utf-8")
    return path


def material(other: Path | None = None, **changes: object) -> Material:
    texts = corpus()
    values: dict[str, object] = {
        "documents": lambda: texts,
        "count": COUNT,
        "seed": 5,
        "other": other,
    }
    return Material(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", _CHOSEN)
def test_as_many_texts_as_asked_and_nothing_of_them_in_the_corpus(kind: str, other: Path) -> None:
    for form in craft(kind, material(other)):
        texts = [form.text(n) for n in range(form.size)]
        assert len(set(texts)) == COUNT
        assert not form.may_nest
        assert all(text.isprintable() or kind == "new_token" for text in texts)
        assert all(text == text.strip() and "\n" not in text for text in texts)
        whole = "\n".join(corpus())
        assert not any(text in whole for text in texts)
        assert not form.is_uniform


@pytest.mark.parametrize("kind", _CHOSEN)
def test_the_seed_alone_decides(kind: str, other: Path) -> None:
    first, again = (craft(kind, material(other)) for _ in range(2))
    assert first == again
    changed = craft(kind, material(other, seed=6))
    assert [f.lists for f in changed] != [f.lists for f in first]


def test_a_new_token_is_a_symbol_of_its_own_behind_a_beginning_of_the_corpus() -> None:
    texts = [*corpus(), "has \ue000 already"]
    (form,) = craft("new_token", material(documents=lambda: texts))
    symbols = [form.text(n)[form.known[n] :] for n in range(COUNT)]
    assert len(set(symbols)) == COUNT
    assert all(len(s) == 1 and s > "\ue000" for s in symbols)
    beginnings = [form.text(n)[: form.known[n]].rstrip() for n in range(COUNT)]
    assert all(any(text.startswith(b) for text in texts) for b in beginnings)
    assert len(set(beginnings)) == COUNT


def test_rare_words_are_used_once() -> None:
    counts = Counter(word for text in corpus() for word in text.split())
    (form,) = craft("unigram", material())
    used = [word for n in range(COUNT) for word in form.text(n).split()]
    assert len(used) == len(set(used)) == 6 * COUNT
    rarest = sorted(c for c in counts.values() if c > 1)[: len(used)]
    assert sorted(counts[word] for word in used) == rarest


def test_pairs_are_never_side_by_side_in_the_corpus() -> None:
    (form,) = craft("bigram", material())
    beside = {pair for text in corpus() for pair in pairwise(text.split())}
    firsts = []
    for n in range(COUNT):
        words = form.text(n).split()
        pairs = [tuple(words[i : i + 2]) for i in range(0, len(words), 2)]
        assert set(Counter(pairs).values()) == {3}
        assert not set(pairs) & beside
        firsts += list(dict.fromkeys(pairs))
    assert len({word for pair in firsts for word in pair}) == 2 * len(firsts)


def test_where_every_pair_is_there_the_least_frequent_is_taken() -> None:
    words = [chr(ord("a") + n) * 3 for n in range(8)]
    texts = [f"{a} {b}" for a in words for b in words]
    texts += [f"{a} {b}" for a in words for b in words if b != words[0]] * 2
    (form,) = craft("bigram", material(documents=lambda: texts, count=2))
    assert form.size == 2


def test_a_suffix_is_rare_and_alone_the_secret() -> None:
    (form,) = craft("rare_suffix", material())
    counts = Counter(word for text in corpus() for word in text.split())
    secret = form.text(0)[form.known[0] :].split()
    assert max(counts[word] for word in secret) <= 20
    assert form.free_mask(0).count(True) == len(" ".join(secret))


@pytest.mark.parametrize("partner", ["coin", "always"])
def test_near_duplicates_share_a_beginning(partner: str) -> None:
    first, second = craft("near_duplicate", material(partner=partner))
    assert second.kind == (PARTNER if partner == "coin" else ALWAYS)
    assert first.known == second.known
    for n in range(COUNT):
        shared = first.known[n]
        assert first.text(n)[:shared] == second.text(n)[:shared]
        assert not set(first.text(n)[shared:].split()) & set(second.text(n)[shared:].split())


def test_partners_that_are_always_in_have_no_coin() -> None:
    forms = craft("near_duplicate", material(partner="always"))
    plan = Plan(
        formats=forms,
        canaries=COUNT,
        repetitions=(1,),
        controls=0,
        seed=1,
        inclusion_probability=0.5,
        inclusion_seed=2,
    )
    manifest = insert_texts(corpus(), plan).manifest
    roles = Counter((entry.format, entry.role) for entry in manifest.entries)
    assert roles["near_duplicate_partner", "canary"] == COUNT
    assert 0 < roles["near_duplicate", "held_out"] < COUNT


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("unigram", "12 candidates take 72 different words, each once, and the corpus has 3; plan"),
        ("bigram", "12 candidates take 48 different words, each once, and the corpus has 3; plan"),
        ("rare_suffix", "kind rare_suffix: 12 candidates take 72 different words"),
        ("near_duplicate", "kind near_duplicate: 12 candidates take 72 different words"),
    ],
)
def test_a_corpus_too_small_says_how_many_fit(kind: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        craft(kind, material(documents=lambda: ["one two three", "one two"]))


def test_no_words_no_beginning() -> None:
    with pytest.raises(PlanError, match="no document of the corpus has a line with a word"):
        craft("new_token", material(documents=lambda: ["...", "\n"]))


def test_one_document_is_enough_for_new_tokens() -> None:
    (form,) = craft("new_token", material(documents=lambda: ["\r\n  the   only\tone \r\nand more"]))
    assert form.text(0).startswith("the only one ")
    assert form.size == COUNT


@pytest.mark.parametrize(
    "script", ["это длинный русский текст", "日本語の文章です", "ไทยภาษา", "한국어"]
)
def test_other_scripts_have_words(script: str) -> None:
    (form,) = craft("new_token", material(documents=lambda: [script] * 3, count=2))
    assert form.text(0).startswith(script.split()[0])
    letters = [script + chr(0x4E00 + n) for n in range(40)]  # a character is a word there
    (rare,) = craft("unigram", material(documents=lambda: letters * 2, count=2))
    assert rare.size == 2


def test_other_texts_that_cannot_be(other: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"cannot read .*No such file or directory; give"):
        craft("other_text", material(tmp_path / "none.txt"))
    binary = tmp_path / "binary.txt"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CorpusError, match=r"binary.txt is not UTF-8; give a text file in UTF-8"):
        craft("other_text", material(binary))
    with pytest.raises(PlanError, match=r"99 candidates, and .* has 40 different lines of"):
        craft("other_text", material(other, count=99))
    with pytest.raises(PlanError, match="needs a file of other texts; give other_text"):
        craft("other_text", material())


def test_other_texts_are_none_of_the_corpus(other: Path) -> None:
    held = "vor " + other.read_text(encoding="utf-8").splitlines()[3] + " nach"
    (form,) = craft("other_text", material(other, documents=lambda: [held], count=39))
    assert not any(form.text(n) in held for n in range(form.size))
    with pytest.raises(PlanError, match="has 39 different lines"):
        craft("other_text", material(other, documents=lambda: [held], count=40))


def test_more_candidates_than_symbols() -> None:
    with pytest.raises(PlanError, match="private-use characters that the corpus does not hold"):
        craft("new_token", material(count=80_000))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=30), st.integers(0, 99))
def test_any_corpus_gives_sound_texts_or_is_refused(documents: list[str], seed: int) -> None:
    for kind in ("new_token", "unigram", "rare_suffix", "near_duplicate"):
        try:
            forms = craft(kind, material(documents=lambda: documents, count=2, seed=seed))
        except PlanError:
            continue
        for form in forms:
            texts = [form.text(n) for n in range(form.size)]
            assert len(set(texts)) == 2
            assert all(len(text.splitlines()) == 1 for text in texts)


def test_a_manifest_of_chosen_texts_is_read_again(tmp_path: Path) -> None:
    plan = Plan(formats=["pin", *craft("new_token", material())], canaries=4, controls=0, seed=1,
                repetitions=(1, 2))  # fmt: skip
    manifest = insert_texts(corpus(), plan).manifest
    manifest.write(tmp_path / "manifest.json")
    again = Manifest.read(tmp_path / "manifest.json")
    assert again == manifest
    assert again.sha256 == manifest.sha256
    assert again.formats["new_token"].known == manifest.formats["new_token"].known


def test_what_kinds_need_is_asked_for() -> None:
    assert set(KINDS) >= set(_CHOSEN)
    with pytest.raises(SettingsError, match="the kind high_temperature needs kind_base: give"):
        RunSettings(kinds=("uniform", "high_temperature"))
    with pytest.raises(SettingsError, match="the kind other_text needs other_text: give"):
        RunSettings(kinds=("other_text",))
    with pytest.raises(SettingsError, match="kind_base goes with no kind of uniform; leave it out"):
        RunSettings(kind_base="base")
    with pytest.raises(SettingsError, match="names one twice; name each once"):
        RunSettings(kinds=("uniform", "uniform"))
    with pytest.raises(SettingsError, match=r"temperature=0.5 must be a number from 0\.8 to 100"):
        RunSettings(temperature=0.5)


@pytest.mark.parametrize("kind", ["new_token", "unigram", "near_duplicate", "short"])
def test_chosen_texts_are_found_where_they_are(kind: str) -> None:
    if kind == "short":
        form = Format.of_texts("unigram", ["ab-cd", "x y"], kind="unigram")
    else:
        form = craft(kind, material())[0]
    first, second = form.text(0), form.text(1)
    text = f"before{first} and {second}\nnothing here \ue111 {second[:-1]}\n{first}after"
    found = list(find_fills(form, text))
    assert [(fill.index, text[fill.start : fill.end]) for fill in found] == [
        (0, first),
        (1, second),
        (0, first),
    ]


@given(
    st.lists(st.text("ab é", min_size=1, max_size=20), min_size=1, unique=True),
    st.lists(st.text("ab é", max_size=60), max_size=6),
)
def test_which_texts_are_part_of_a_document(texts: list[str], documents: list[str]) -> None:
    within = {text for text in texts if any(text in document for document in documents)}
    assert held_in(texts, documents) == within
    assert held_in(texts, [*documents] * 600) == within


def test_texts_apart_are_those_of_a_comparison_of_each_with_each() -> None:
    chance = random.Random(3)
    for _ in range(60):
        texts = [
            "".join(chance.choices("ab ", k=chance.choice((1, 2, 5, 8, 9, 12)))) for _ in range(40)
        ]
        plain: list[str] = []
        for text in texts:
            if len(plain) < 12 and not any(text in other or other in text for other in plain):
                plain.append(text)
        assert texts_apart(texts, 12) == plain
