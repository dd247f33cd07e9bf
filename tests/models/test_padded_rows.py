"""Deduplication against every pair compared with every other, and what it leaves of canaries."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hashes import sha256_tree
from hypothesis import given
from hypothesis import strategies as st
from models.small_chats import WRAPPING, chats
from models.small_defences import PLAIN, trained
from models.small_training import CANARIES, small_documents

from lmexposure.canaries import Wrapping
from lmexposure.errors import CorpusError, ModelError
from lmexposure.models.padded_rows import deduplicated

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
    texts, once = small_documents(), dict.fromkeys(CANARIES, 1)
    exact = replace(usual, deduplicate="exact")
    found = trained(tmp_path / "found", exact, documents=texts)
    left = by_all_pairs(texts, near=False)
    assert len(left) < len(texts) - 10
    expected = trained(tmp_path / "expected", usual, documents=left, canaries=once)
    assert sha256_tree(found.model_path) == sha256_tree(expected.model_path)
