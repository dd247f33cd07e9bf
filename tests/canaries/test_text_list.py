"""The kind "texts": sound lines of a file, drawn by the seed whatever their order."""

import os
import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmexposure.canaries import KINDS, Format, Manifest, Material, Plan, insert
from lmexposure.canaries.format import first_nested
from lmexposure.canaries.kinds import held_in
from lmexposure.errors import CorpusError, PlanError

LINES = [f"Zeile {n} ist für niemanden als {n * 7919 % 1000:03d}" for n in range(40)]
CORPUS = [f"a document of {n} words" for n in range(20)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "texts.txt"


def choose(path: Path | None, content: str | bytes = "\n".join(LINES), **changes: Any) -> Format:
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
    chosen = choose(path, content, count=count)
    assert len(set(chosen.texts)) == count
    assert {*chosen.texts} <= {line.strip() for line in text.split("\n")} - {*CORPUS}
    assert (chosen.kind, chosen.known, chosen.may_nest) == ("texts", (), False)


def test_the_seed_decides_and_the_order_of_the_file_does_not(path: Path) -> None:
    first = choose(path)
    assert choose(path, "\n".join(reversed(LINES))).texts == first.texts
    assert {*choose(path, seed=6).texts} != {*first.texts}
    coins: dict[str, Any] = {
        "inclusion_probability": 0.5,
        "inclusion_seed": 2,
        "repetitions": (1, 2),
    }
    roles = []
    for content in (LINES, LINES[::-1]):
        plan = Plan(
            formats=[choose(path, "\n".join(content))], canaries=5, controls=2, seed=1, **coins
        )
        manifest: Manifest = insert(CORPUS, plan).manifest
        roles.append({entry.text: (entry.role, entry.repetitions) for entry in manifest.entries})
    assert roles[0] == roles[1]


def test_every_line_is_as_likely_as_another(path: Path) -> None:
    times = dict.fromkeys(LINES, 0)
    for seed in range(60):
        for text in choose(path, count=20, seed=seed).texts:
            times[text] += 1
    assert 12 < min(times.values()) < max(times.values()) < 48  # 30 expected, deviation 4


def test_a_changed_file_is_told(path: Path) -> None:
    form = choose(path)
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
    assert choose(path, path.read_bytes(), count=8).size == 8


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
        choose(path, content)


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
