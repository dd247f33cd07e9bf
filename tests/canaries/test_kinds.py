"""Kinds of canaries: their formats of chosen texts, and what is done with these everywhere."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from lmexposure import insert, remove, verify
from lmexposure.canaries import (
    ALWAYS,
    KINDS,
    PARTNERS,
    UNIFORM,
    Format,
    InsertionStep,
    Material,
    Plan,
    insert_files,
)
from lmexposure.errors import CorpusError, FormatError, PlanError

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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"known": [1]}, "known goes with chosen texts alone; leave it out"),
        ({"kind": "texts"}, "kind 'texts' needs the template '{choice:texts}' and its list"),
    ],
)
def test_a_template_with_other_holes_has_no_kind(values: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Format(name="pin", template="PIN {digits:4}", **values)


@pytest.mark.parametrize("known", [[1], [0, 3], [0, -1], [1, 1, 1]])
def test_known_is_a_part_of_each_text(known: list[int]) -> None:
    with pytest.raises(FormatError, match="known must be a number for each text, from 0, below"):
        Format.of_texts("texts", ["one", "two"], kind="texts", known=known)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["one"], "fewer than 2 ways"),
        (["one", "one"], "holds 'one' more than once; keep it once"),
        (["one", ""], "entry 1 must be a non-empty string"),
        (["one", "t\nwo"], "entry 1 holds a line break or a NUL"),
        (["one", "\ud800"], "entry 1 cannot be written as UTF-8"),
    ],
)
def test_texts_that_cannot_be_canaries(texts: list[str], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        Format.of_texts("texts", texts, kind="texts")


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
    with pytest.raises(CorpusError, match=r"already holds fills: texts 1 times \(record 301\)"):
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
