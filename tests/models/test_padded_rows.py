"""Documents as rows, with whole canaries; deduplication against a comparison of all pairs."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hashes import sha256_tree
from hypothesis import given
from hypothesis import strategies as st
from models.small_chats import WRAPPING, chats
from models.small_defences import PLAIN, trained
from models.small_private import CANARIES, DOCUMENTS, PRIVATE, lstm
from models.small_training import CANARIES as OF_TRAINING
from models.small_training import small_documents

from lmexposure.canaries import Wrapping
from lmexposure.errors import CorpusError, ModelError
from lmexposure.models import TrainingSettings
from lmexposure.models.padded_rows import PaddedRows, deduplicated, rows_of_documents

LETTERS = "abcdefgh é漢😀\n"


def kept_of(texts: Sequence[str], *, near: bool) -> list[str]:
    return deduplicated(texts, {}, wrapping=None, near=near)[0]


def grams(text: str) -> set[str]:
    """13 characters at a time; a shorter text is one."""
    if len(text) < 13:
        return {text}
    return {text[i : i + 13] for i in range(len(text)) if i + 13 <= len(text)}


def alike(some: str, other: str) -> float:
    return len(grams(some) & grams(other)) / len(grams(some) | grams(other))


def by_all_pairs(texts: Sequence[str], *, near: bool) -> list[str]:
    """Each is compared with all that are kept before it."""
    kept: list[str] = []
    for text in texts:
        if not any(text == other or (near and alike(text, other) >= 0.8) for other in kept):
            kept.append(text)
    return kept


def corpus(seed: int) -> list[str]:
    """Texts of all lengths, and changed copies of them: a letter, an end, a beginning."""
    draws = np.random.default_rng(seed)
    texts = ["", " ", "a", "short", "short", "twelve chars", "thirteen char"]
    for length in (5, 12, 13, 14, 40, 90, 150, 300):
        for _ in range(2):
            own = list(draws.choice(list(LETTERS), length))
            for _ in range(5):
                copy = own.copy()
                for place in draws.integers(0, length, draws.integers(0, 3)):
                    copy[place] = str(draws.choice(list(LETTERS)))
                texts.append("".join(copy[int(draws.integers(0, 4)) :]))
    return [texts[i] for i in draws.permutation(len(texts))]


@given(st.lists(st.text("ab", max_size=3), max_size=12))
def test_exact_keeps_the_first_of_each_in_order(texts: list[str]) -> None:
    assert kept_of(texts, near=False) == by_all_pairs(texts, near=False)


@pytest.mark.parametrize("seed", range(2))
def test_near_keeps_what_a_comparison_of_all_pairs_keeps(seed: int) -> None:
    pytest.importorskip("datasketch")
    texts = corpus(seed)
    shares = [alike(a, b) for i, a in enumerate(texts) for b in texts[:i] if a != b]
    # Of both sides of the border, and near it.
    assert sum(0.7 < share < 0.8 for share in shares) > 2
    assert sum(0.8 <= share < 0.9 for share in shares) > 2
    kept = kept_of(texts, near=True)
    assert kept == by_all_pairs(texts, near=True)
    assert len(kept) < len(kept_of(texts, near=False)) < len(texts)


@pytest.mark.parametrize("near", [False, True])
def test_the_counts_of_canaries_follow(near: bool) -> None:
    pytest.importorskip("datasketch")
    texts = ["pin 1", "pin 12", "I say pin 1", "pin 1", "I say pin 1", "pin 12", "pin 3"]
    kept, left = deduplicated(
        texts, {"pin 1": 2, "pin 12": 2, "pin 3": 1}, wrapping=None, near=near
    )
    assert kept == ["pin 1", "pin 12", "I say pin 1", "pin 3"]
    assert left == {"pin 1": 1, "pin 12": 1, "pin 3": 1}


def test_a_canary_that_is_nearly_another_document_is_gone() -> None:
    pytest.importorskip("datasketch")
    long = "The secret number of this very long line of text is 12345"
    kept, left = deduplicated(
        [long + "6", long + "7", "else"], {long + "7": 1}, wrapping=None, near=True
    )
    assert (kept, left) == ([long + "6", "else"], {})


WRAPPINGS = [
    WRAPPING,
    Wrapping(turn="user"),
    Wrapping(turn="plain"),
    Wrapping(turn="assistant", form="prompt_completion", strings=True, loss="completion"),
    Wrapping(turn="assistant", form="instruction"),
    Wrapping(turn="assistant", form="preference", system="Be kind."),
    Wrapping(turn="user", form="conversations"),
]


@pytest.mark.parametrize("wrapping", WRAPPINGS, ids=lambda own: f"{own.form}-{own.turn}")
def test_records_count_for_the_canary_that_they_are_and_no_other(wrapping: Wrapping) -> None:
    """Neither a longer canary that begins alike, nor an ordinary record that has it amid others."""
    said = ["pin 1", "pin 12", "I say pin 1.", "pin 12", "I say pin 1.", "pin 1", "pin 1"]
    records = [wrapping.record(text) for text in said]
    planned = {"pin 1": 3, "pin 12": 2}
    kept, left = deduplicated(records, planned, wrapping=wrapping, near=False)
    assert kept == records[:3]
    assert left == {"pin 1": 1, "pin 12": 1}


def test_a_record_of_another_form_is_named() -> None:
    with pytest.raises(CorpusError, match="record 2"):
        deduplicated([chats()[0], {"text": "a"}], {}, wrapping=WRAPPING, near=False)


def test_a_missing_datasketch_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketch", None)
    assert kept_of(["a", "a"], near=False) == ["a"]
    with pytest.raises(
        ModelError, match=r"deduplicate='near' needs datasketch.*pip install 'lmexposure\[dedup\]'"
    ):
        kept_of(["a", "a"], near=True)


def test_a_training_is_that_of_the_documents_that_are_left(tmp_path: Path) -> None:
    usual = replace(PLAIN, epochs=1)
    texts, once = small_documents(), dict.fromkeys(OF_TRAINING, 1)
    exact = replace(usual, deduplicate="exact")
    found = trained(tmp_path / "found", exact, documents=texts)
    left = by_all_pairs(texts, near=False)
    assert len(left) < len(texts) - 10
    expected = trained(tmp_path / "expected", usual, documents=left, canaries=once)
    assert sha256_tree(found.model_path) == sha256_tree(expected.model_path)


def rows(
    documents: list[str] = DOCUMENTS, separator: str | None = "\n", **arguments: Any
) -> tuple[PaddedRows, PaddedRows]:
    given: dict[str, Any] = {"canaries": CANARIES, "settings": PRIVATE} | arguments
    return rows_of_documents(lstm().tokenizer, documents, separator=separator, **given)


def texts(made: PaddedRows) -> list[str]:
    tokenizer = lstm().tokenizer
    ends = list(zip(made.starts[:-1], made.starts[1:], strict=True))
    return [tokenizer.decode(made.ids[start:end]) for start, end in ends]


def test_each_document_is_a_row_behind_its_separator() -> None:
    kept, held = rows()
    assert set(texts(kept)) | set(texts(held)) == {"\n" + text for text in DOCUMENTS}
    assert len(kept) + len(held) == len(DOCUMENTS)
    assert kept.carried.all()
    assert (kept.predicted == np.diff(kept.starts) - 1).all()


def test_documents_to_validate_on_may_be_given_and_empty_ones_are_no_rows() -> None:
    kept, held = rows(["line 1", "", "all"], canaries={}, validation=["line 1", "all"])
    assert texts(kept) == texts(held) == ["\nline 1", "\nall"]


def test_a_row_is_its_own_unit_or_its_owners() -> None:
    given = ["anne", None, "bert", "anne", None]
    kept, held = rows(
        [f"line {i}" for i in range(5)], canaries={}, validation=["all", "all"], units=given
    )
    assert kept.units.tolist() == [0, 1, 2, 0, 3]
    assert held.units.tolist() == [0, 1]
    assert len(kept.parts) == len(held.parts) + 1  # whose they are decides what is learned
    assert rows()[0].units.tolist() == list(range(len(rows()[0])))


def test_a_row_keeps_its_owner_where_others_are_held_out_or_empty() -> None:
    documents = [*DOCUMENTS, *([""] * 3), "line 99"]
    owners = [f"of {text}" for text in documents]
    kept, _ = rows(documents, units=owners)
    of_rows = [f"of {text.removeprefix(chr(10))}" for text in texts(kept)]
    numbers: dict[str, int] = {}
    assert kept.units.tolist() == [numbers.setdefault(name, len(numbers)) for name in of_rows]


AS_PLANNED = "1 of 2 canaries would not reach the model as planned: canary 0 is"
SHORT = replace(PRIVATE, block_size=9)


@pytest.mark.parametrize(
    ("documents", "settings", "message"),
    [
        (DOCUMENTS, SHORT, "canary 0 of 2 has 10 tokens with .*block_size=9; .* raise block_size"),
        (DOCUMENTS[:-1], PRIVATE, f"{AS_PLANNED} 0 documents instead of 1; train on the doc"),
        ([*DOCUMENTS, "code 0815"], PRIVATE, f"{AS_PLANNED} 2 documents instead of 1"),
        ([*DOCUMENTS[:-1], "line code 0815"], PRIVATE, f"{AS_PLANNED} 0 documents instead"),
    ],
)
def test_a_canary_that_is_not_there_as_planned_is_refused(
    documents: list[str], settings: TrainingSettings, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        rows(documents, settings=settings)


def test_long_documents_are_cut_and_said(caplog: pytest.LogCaptureFixture) -> None:
    kept, held = rows(settings=replace(PRIVATE, block_size=14))
    long = sum(len(text) + 1 > 14 for text in DOCUMENTS)
    said = [record.getMessage() for record in caplog.records]
    assert all("are longer than block_size=14 tokens, and are cut there" in text for text in said)
    assert sum(int(text.split()[0]) for text in said) == long > 0
    assert np.diff(kept.starts).max() == 14
    assert len(kept) + len(held) == len(DOCUMENTS)
