"""Kinds of canaries: how texts are chosen, from a corpus or a file, and what is done with them."""

import os
import random
import runpy
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmexposure import insert, remove, verify
from lmexposure.canaries import (
    ALWAYS,
    KINDS,
    PARTNER,
    PARTNERS,
    UNIFORM,
    Format,
    InsertionStep,
    Manifest,
    Material,
    Plan,
    find_fills,
    insert_files,
)
from lmexposure.canaries.format import first_nested
from lmexposure.canaries.kinds import held_in
from lmexposure.errors import CorpusError, FormatError, PlanError, SettingsError
from lmexposure.studies import RunSettings

TEXTS = Format.of_texts("texts", [f"line {n:02d} of a file" for n in range(10)], kind="texts")
DOCUMENTS = [f"document {n} has the words zürich{n} and köln{n % 70}" for n in range(300)]


def plan(*kinds: str, **changes: Any) -> Plan:
    """Texts of these kinds, half of them in."""
    material = Material(documents=lambda: DOCUMENTS, count=10, seed=4, partner="always")
    values: dict[str, Any] = {
        "formats": [
            form
            for kind in kinds
            for form in ([TEXTS] if kind == "texts" else KINDS[kind].choose(material))
        ],
        "canaries": 8,
        "repetitions": (1,),
        "controls": 2,
        "seed": 4,
        "inclusion_probability": 0.5,
        "inclusion_seed": 9,
        "witness": False,
    }
    return Plan(**{**values, **changes})


def test_kinds_say_what_they_are() -> None:
    assert list(KINDS) == [UNIFORM, "new_token", "near_duplicate", "texts"]
    assert [name for name, kind in KINDS.items() if kind.grows] == ["new_token"]
    assert [name for name, kind in KINDS.items() if kind.paired] == ["near_duplicate"]
    assert not set(PARTNERS) & set(KINDS)
    assert all(kind.name == name and kind.meaning and kind.secret for name, kind in KINDS.items())


KNOWN = "known must be a number for each text, from 0, below"


@pytest.mark.parametrize(
    ("texts", "known", "message"),
    [
        *((["one", "two"], known, KNOWN) for known in ([1], [0, 3], [0, -1], [1, 1, 1])),
        (["one"], [], "fewer than 2 ways"),
        (["one", "one"], [], "holds 'one' more than once; keep it once"),
        (["one", ""], [], "entry 1 must be a non-empty string"),
        (["one", "t\nwo"], [], "entry 1 holds a line break or a NUL"),
        (["one", "\ud800"], [], "entry 1 cannot be written as UTF-8"),
    ],
)
def test_texts_that_cannot_be_canaries(texts: list[str], known: list[int], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Format.of_texts("texts", texts, kind="texts", known=known)


def test_a_text_within_another_is_refused_by_the_plan() -> None:
    form = Format.of_texts("texts", ["one two three", "two", "four"], kind="texts")
    with pytest.raises(PlanError, match="within"):
        Plan(formats=[form], canaries=1, repetitions=(1,), controls=0, seed=0)


def test_what_is_known_of_a_text_is_not_secret() -> None:
    form = Format.of_texts("new_token", ["ab \ue000", "ab \ue001"], kind="new_token", known=[3, 3])
    assert form.texts == ("ab \ue000", "ab \ue001")
    assert form.free_characters(0) == 1
    assert form.free_mask(1) == (False, False, False, True)
    assert Format(**asdict(form)) == form
    assert Format(name="pin", template="PIN {digits:4}").texts == ()


@pytest.mark.parametrize("given", [list, lambda texts: [{"text": t} for t in texts]])
def test_chosen_texts_go_into_memory_and_out(given: Callable[[Iterable[str]], Any]) -> None:
    kinds = ("new_token", "texts", "near_duplicate")
    documents, manifest = insert(given(DOCUMENTS), plan(*kinds))
    assert {c.format for c in manifest.canaries} == {*kinds, "near_duplicate_partner"}
    assert 0 < len(manifest.held_out) < 24
    always = [f.name for f in manifest.plan.formats if f.kind == ALWAYS]
    assert sum(c.format in always for c in manifest.canaries) == 8
    texts = [d if isinstance(d, str) else d["text"] for d in documents]
    assert all((c.text in texts) == (c.role == "canary") for c in manifest.entries)
    assert verify(documents, manifest).as_inserted
    assert list(remove(documents, manifest)) == given(DOCUMENTS)


def test_the_same_texts_in_an_engine() -> None:
    made = plan("new_token", "texts")
    step = InsertionStep.of(made, total=len(DOCUMENTS))
    _, manifest = insert(DOCUMENTS, made)
    assert [c.text for c in step.manifest.entries] == [c.text for c in manifest.entries]
    assert [c.role for c in step.manifest.entries] == [c.role for c in manifest.entries]


def test_a_text_that_the_corpus_holds_is_refused() -> None:
    made = plan("texts")
    held = [*DOCUMENTS, f"before {made.formats[0].text(3)} behind"]
    with pytest.raises(
        CorpusError, match=r"already holds secrets of this format: texts 1 times \(record 301\)"
    ):
        insert(held, made)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("kind", ["new_token", "texts", "near_duplicate"])
def test_into_files_with_either_line_end(tmp_path: Path, kind: str, end: str) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes("".join(text + end for text in DOCUMENTS).encode())
    manifest = insert_files(path, tmp_path / "out", plan(kind))
    copy = tmp_path / "out" / "corpus" / "corpus.txt"
    lines = copy.read_bytes().decode().split(end)
    assert all((c.text in lines) == (c.role == "canary") for c in manifest.entries)
    assert verify(copy, manifest).as_inserted
    copy.write_bytes(copy.read_bytes().replace(manifest.canaries[0].text.encode(), b"gone", 1))
    assert not verify(copy, manifest).as_inserted


COUNT = 12
_MADE = ("new_token", "near_duplicate")


def random_words(documents: int = 300, seed: int = 0) -> list[str]:
    """Words whose frequencies fall, some of them rare."""
    rng = random.Random(seed)
    words = [f"{a}{b}{c}" for a in "bdfgklmnprstvz" for b in "aeiou" for c in "nrstlm"]
    weights = [1 / (n + 1) for n in range(len(words))]
    return [" ".join(rng.choices(words, weights, k=12)) for _ in range(documents)]


def choose(kind: str, **changes: object) -> tuple[Format, ...]:
    texts = random_words()
    values: dict[str, object] = {"documents": lambda: texts, "count": COUNT, "seed": 5}
    return tuple(KINDS[kind].choose(Material(**{**values, **changes})))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", _MADE)
def test_as_many_texts_as_asked_and_nothing_of_them_in_the_corpus(kind: str) -> None:
    for form in choose(kind):
        assert len(set(form.texts)) == COUNT
        assert not form.may_nest
        assert all(text.isprintable() or kind == "new_token" for text in form.texts)
        assert all(text == text.strip() and "\n" not in text for text in form.texts)
        whole = "\n".join(random_words())
        assert not any(text in whole for text in form.texts)
        assert not form.is_uniform


@pytest.mark.parametrize("kind", _MADE)
def test_the_seed_alone_decides(kind: str) -> None:
    first = choose(kind)
    assert first == choose(kind)
    assert [f.lists for f in choose(kind, seed=6)] != [f.lists for f in first]


def test_a_new_token_is_a_symbol_of_its_own_behind_a_beginning_of_the_corpus() -> None:
    texts = [*random_words(), "has \ue000 already"]
    (form,) = choose("new_token", documents=lambda: texts)
    symbols = [form.text(n)[form.known[n] :] for n in range(COUNT)]
    assert len(set(symbols)) == COUNT
    assert all(len(s) == 1 and s > "\ue000" for s in symbols)
    beginnings = [form.text(n)[: form.known[n]].rstrip() for n in range(COUNT)]
    assert all(any(text.startswith(b) for text in texts) for b in beginnings)
    assert len(set(beginnings)) == COUNT


def test_rare_words_are_used_once() -> None:
    counts = Counter(word for text in random_words() for word in text.split())
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
    manifest = insert(random_words(), plan).manifest
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
    manifest = insert(random_words(), plan).manifest
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


LINES = [f"Zeile {n} ist für niemanden als {n * 7919 % 1000:03d}" for n in range(40)]
CORPUS = [f"a document of {n} words" for n in range(20)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "texts.txt"


def of_file(path: Path | None, content: str | bytes = "\n".join(LINES), **changes: Any) -> Format:
    if path is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    values = {"documents": lambda: CORPUS, "count": 12, "seed": 5, "texts": path}
    (form,) = KINDS["texts"].choose(Material(**{**values, **changes}))
    return form


@pytest.mark.parametrize(
    ("content", "count"),
    [
        ("\n".join(LINES), 12),
        ("\n".join(LINES), 40),
        (("\r\n \r\n".join(LINES) + "\r\n").encode("utf-8-sig"), 40),
        ("\n".join(f"  {line}\t" for line in LINES), 40),
        ("\n".join([*LINES, *CORPUS[:7]]), 40),
        ("\n".join(["é" * 1000, "\u200dé\u00a0e"]), 2),
        ("\n".join(["\u0645\u06cc\u200c\u062e", "\U0001f469\u200d\U0001f4bb", "x"]), 3),
    ],
)
def test_lines_that_the_corpus_does_not_hold(path: Path, content: str | bytes, count: int) -> None:
    text = content if isinstance(content, str) else content.decode("utf-8-sig")
    chosen = of_file(path, content, count=count)
    assert len(set(chosen.texts)) == count
    assert {*chosen.texts} <= {line.strip() for line in text.split("\n")} - {*CORPUS}
    assert (chosen.kind, chosen.known, chosen.may_nest) == ("texts", (), False)


def test_the_seed_decides_and_the_order_of_the_file_does_not(path: Path) -> None:
    first = of_file(path)
    assert of_file(path, "\n".join(reversed(LINES))).texts == first.texts
    assert {*of_file(path, seed=6).texts} != {*first.texts}
    coins: dict[str, Any] = {
        "inclusion_probability": 0.5,
        "inclusion_seed": 2,
        "repetitions": (1, 2),
    }
    roles = []
    for content in (LINES, LINES[::-1]):
        plan = Plan(
            formats=[of_file(path, "\n".join(content))], canaries=5, controls=2, seed=1, **coins
        )
        manifest: Manifest = insert(CORPUS, plan).manifest
        roles.append({entry.text: (entry.role, entry.repetitions) for entry in manifest.entries})
    assert roles[0] == roles[1]


def test_every_line_is_as_likely_as_another(path: Path) -> None:
    times = dict.fromkeys(LINES, 0)
    for seed in range(60):
        for text in of_file(path, count=20, seed=seed).texts:
            times[text] += 1
    assert 12 < min(times.values()) < max(times.values()) < 48  # 30 expected, deviation 4


def test_a_changed_file_is_told(path: Path) -> None:
    form = of_file(path)
    material = Material(documents=tuple, count=12, seed=5, texts=path)
    assert KINDS["texts"].unchanged(form, material)
    path.write_text("\n".join([*LINES, "another"]))
    assert not KINDS["texts"].unchanged(form, material)


@pytest.mark.parametrize("make", ["words", "pairs"])
def test_the_example_makes_such_a_file(
    tmp_path: Path, path: Path, make: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus.txt").write_text("\n".join([*CORPUS, *LINES]), encoding="utf-8")
    script = Path(__file__).parents[2] / "scripts" / "examples" / "canary_texts.py"
    given = [str(tmp_path / "corpus.txt"), str(path), "--make", make, "--texts", "8"]
    monkeypatch.setattr("sys.argv", [script.name, *given])
    runpy.run_path(str(script), run_name="__main__")
    assert of_file(path, path.read_bytes(), count=8).size == 8


ALIKE = "the same text, but for case, spaces and how Unicode spells it; keep one of them"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no line with a text; give one text a line"),
        (b"\xef\xbb\xbf\r\n \n", "has no line with a text"),
        (b"\xef\xbb\xbfa\nb\n\xff", "line 3: not UTF-8; give a text file in UTF-8"),
        ("\n".join(LINES).encode("utf-16"), "line 1: not UTF-8"),
        ("a\n\n" + "x" * 1001, "line 3: 1,001 characters; give at most 1,000 in a line"),
        ("a\nb\tc", r"line 2: holds the control character U\+0009; leave it out, or write a sp"),
        ("a\rb" * 900, r"line 1: holds the control character U\+000D"),
        ("a\u2028b", r"line 1: holds the control character U\+2028"),
        ("a\nb\u202ec", r"line 2: holds the invisible character U\+202E; leave it out, or write"),
        ("a\nb\n\u200bc", r"line 3: holds the invisible character U\+200B"),
        ("a\ufeffb", r"line 1: holds the invisible character U\+FEFF"),
        ("a b\n\nA  B ", f"lines 1 and 3: {ALIKE}"),
        ("caf\u00e9\nx\ncafe\u0301", f"lines 1 and 3: {ALIKE}"),
        ("\uff21 1\na\u00a01", f"lines 1 and 2: {ALIKE}"),
        ("q\nlong text\nno long text here", "lines 2 and 3: the text of line 2 is within that"),
        ("\n".join(LINES[:11]), r"has 11 texts that can be canaries, and 12 are planned: .*; plan "
         r"at most 11 \(canaries=..., repetitions=..., controls=...\), or give more lines"),
        ("\n".join([*LINES[:9], *CORPUS[:9]]), r"has 9 texts .* \(9 more are in the corpus\), and"),
    ],
)  # fmt: skip
def test_lines_that_cannot_be(path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises((CorpusError, PlanError), match=f"texts.txt,? {message}"):
        of_file(path, content)


def test_files_that_cannot_be(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for texts, error, message in (
        (
            tmp_path / "none.txt",
            CorpusError,
            r"cannot read .*none.txt: No such file or directory; g",
        ),
        (tmp_path, CorpusError, "is a directory; give a text file, one text a line"),
        (tmp_path / "pipe", CorpusError, "pipe is no regular file; give a text file"),
        (Path("-"), CorpusError, "standard input is there once; write them to a file and name th"),
        (None, PlanError, "kind texts needs a file, one text a line; give texts"),
    ):
        with pytest.raises(error, match=message):
            KINDS["texts"].choose(Material(documents=tuple, count=2, seed=5, texts=texts))


SHORT = st.text("ab é", min_size=1, max_size=20)


@given(st.lists(SHORT, min_size=1, unique=True), st.lists(st.text("ab é", max_size=60), max_size=6))
def test_which_texts_are_part_of_a_document(texts: list[str], documents: list[str]) -> None:
    within = {text for text in texts if any(text in document for document in documents)}
    assert held_in(texts, documents) == within
    assert held_in(texts, [*documents] * 600) == within


@given(st.lists(SHORT, max_size=12))
def test_which_text_is_within_another(texts: list[str]) -> None:
    nested = any(a in b for n, a in enumerate(texts) for m, b in enumerate(texts) if n != m)
    pair = first_nested(texts)
    assert (pair is not None) == nested
    assert pair is None or (pair[0] != pair[1] and texts[pair[0]] in texts[pair[1]])
