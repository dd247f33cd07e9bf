"""Texts that are made from a corpus: as asked, apart from each other, and not in the corpus."""

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmexposure.canaries import ALWAYS, KINDS, PARTNER, Format, Manifest, Material, Plan, find_fills
from lmexposure.canaries import insert as insert_texts
from lmexposure.errors import PlanError, SettingsError
from lmexposure.studies import RunSettings

COUNT = 12
_MADE = ("new_token", "near_duplicate")


def corpus(documents: int = 300, seed: int = 0) -> list[str]:
    """Words whose frequencies fall, some of them rare."""
    rng = random.Random(seed)
    words = [f"{a}{b}{c}" for a in "bdfgklmnprstvz" for b in "aeiou" for c in "nrstlm"]
    weights = [1 / (n + 1) for n in range(len(words))]
    return [" ".join(rng.choices(words, weights, k=12)) for _ in range(documents)]


def choose(kind: str, **changes: object) -> tuple[Format, ...]:
    texts = corpus()
    values: dict[str, object] = {"documents": lambda: texts, "count": COUNT, "seed": 5}
    return tuple(KINDS[kind].choose(Material(**{**values, **changes})))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", _MADE)
def test_as_many_texts_as_asked_and_nothing_of_them_in_the_corpus(kind: str) -> None:
    for form in choose(kind):
        assert len(set(form.texts)) == COUNT
        assert not form.may_nest
        assert all(text.isprintable() or kind == "new_token" for text in form.texts)
        assert all(text == text.strip() and "\n" not in text for text in form.texts)
        whole = "\n".join(corpus())
        assert not any(text in whole for text in form.texts)
        assert not form.is_uniform


@pytest.mark.parametrize("kind", _MADE)
def test_the_seed_alone_decides(kind: str) -> None:
    first = choose(kind)
    assert first == choose(kind)
    assert [f.lists for f in choose(kind, seed=6)] != [f.lists for f in first]


def test_a_new_token_is_a_symbol_of_its_own_behind_a_beginning_of_the_corpus() -> None:
    texts = [*corpus(), "has \ue000 already"]
    (form,) = choose("new_token", documents=lambda: texts)
    symbols = [form.text(n)[form.known[n] :] for n in range(COUNT)]
    assert len(set(symbols)) == COUNT
    assert all(len(s) == 1 and s > "\ue000" for s in symbols)
    beginnings = [form.text(n)[: form.known[n]].rstrip() for n in range(COUNT)]
    assert all(any(text.startswith(b) for text in texts) for b in beginnings)
    assert len(set(beginnings)) == COUNT


def test_rare_words_are_used_once() -> None:
    counts = Counter(word for text in corpus() for word in text.split())
    ends = [
        form.text(n)[form.known[n] :] for form in choose("near_duplicate") for n in range(COUNT)
    ]
    used = [word for end in ends for word in end.split()]
    assert len(used) == len(set(used)) == 6 * COUNT
    rarest = sorted(c for c in counts.values() if c > 1)[: len(used)]
    assert sorted(counts[word] for word in used) == rarest


@pytest.mark.parametrize("partner", ["coin", "always"])
def test_near_duplicates_share_a_beginning(partner: str) -> None:
    first, second = choose("near_duplicate", partner=partner)
    assert second.kind == (PARTNER if partner == "coin" else ALWAYS)
    assert first.known == second.known
    for n in range(COUNT):
        shared = first.known[n]
        assert first.text(n)[:shared] == second.text(n)[:shared]
        assert not set(first.text(n)[shared:].split()) & set(second.text(n)[shared:].split())


def test_partners_that_are_always_in_have_no_coin() -> None:
    forms = choose("near_duplicate", partner="always")
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
    ("kind", "changes", "message"),
    [
        (
            "near_duplicate",
            {"documents": lambda: ["one two three", "one two"]},
            "12 candidates take 72 different words, each once, and the corpus has 3; plan at most",
        ),
        (
            "new_token",
            {"documents": lambda: ["...", "\n"]},
            "no document of the corpus has a line w",
        ),
        ("new_token", {"count": 80_000}, "private-use characters that the corpus does not hold"),
    ],
)
def test_a_corpus_that_does_not_do(kind: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=f"kind {kind}: .*{message}"):
        choose(kind, **changes)


@pytest.mark.parametrize(
    ("document", "beginning"),
    [
        ("\r\n  the   only\tone \r\nand more", "the only one"),
        ("words " * 20, " ".join(["words"] * 10)),
        ("w" * 99, "w" * 60),
    ],
)
def test_one_document_is_enough_for_new_tokens(document: str, beginning: str) -> None:
    (form,) = choose("new_token", documents=lambda: [document])
    assert form.text(0)[: form.known[0]] == f"{beginning} "
    assert form.size == COUNT


def test_words_are_of_the_first_documents() -> None:
    material = Material(documents=lambda: ["x" * 3_000_000] * 3, count=1, seed=1)
    assert len(material.head) == 2


@pytest.mark.parametrize(
    "script", ["это длинный русский текст", "日本語の文章です", "ไทยภาษา", "한국어"]
)
def test_other_scripts_have_words(script: str) -> None:
    (form,) = choose("new_token", documents=lambda: [script] * 3, count=2)
    assert form.text(0).startswith(script.split()[0])
    letters = [script + chr(0x4E00 + n) for n in range(40)]  # a character is a word there
    rare, _ = choose("near_duplicate", documents=lambda: letters * 2, count=2)
    assert rare.size == 2


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=30), st.integers(0, 99))
def test_any_corpus_gives_sound_texts_or_is_refused(documents: list[str], seed: int) -> None:
    for kind in _MADE:
        try:
            forms = choose(kind, documents=lambda: documents, count=2, seed=seed)
        except PlanError:
            continue
        for form in forms:
            assert len(set(form.texts)) == 2
            assert all(len(text.splitlines()) == 1 for text in form.texts)


def test_a_manifest_of_chosen_texts_is_read_again(tmp_path: Path) -> None:
    plan = Plan(formats=["pin", *choose("new_token")], canaries=4, controls=0, seed=1,
                repetitions=(1, 2))  # fmt: skip
    manifest = insert_texts(corpus(), plan).manifest
    manifest.write(tmp_path / "manifest.json")
    again = Manifest.read(tmp_path / "manifest.json")
    assert again == manifest
    assert again.sha256 == manifest.sha256
    assert again.formats["new_token"].known == manifest.formats["new_token"].known


def test_what_kinds_need_is_asked_for() -> None:
    assert RunSettings(texts="a.txt").kinds == ("uniform", "texts")
    assert RunSettings(kinds=("texts",), texts="a.txt").kinds == ("texts",)
    for values, message in (
        (
            {"kinds": ("texts",)},
            r"kind='texts' needs the setting texts; give it \(texts=...\), or le",
        ),
        ({"kinds": ("uniform", "uniform")}, "names one twice; name each once"),
        (
            {"kinds": ("trigram",)},
            "kinds='trigram' must be one of uniform, new_token, near_duplicate, texts; for texts "
            r"of your own, give their file \(texts=...\)",
        ),
    ):
        with pytest.raises(SettingsError, match=message):
            RunSettings(**values)


@pytest.mark.parametrize("kind", [*_MADE, "texts"])
def test_chosen_texts_are_found_where_they_are(kind: str) -> None:
    short = Format.of_texts("texts", ["ab-cd", "x y"], kind="texts")
    form = short if kind == "texts" else choose(kind)[0]
    first, second = form.text(0), form.text(1)
    text = f"before{first} and {second}\nnothing here \ue111 {second[:-1]}\n{first}after"
    found = list(find_fills(form, text))
    assert [(fill.index, text[fill.start : fill.end]) for fill in found] == [
        (0, first),
        (1, second),
        (0, first),
    ]
