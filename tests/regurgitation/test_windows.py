"""What is drawn of a corpus and held-out documents, and what that says of all there is."""

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from regurgitation.conftest import Case, sentence
from regurgitation.test_look import SHORT

from lmexposure.errors import CorpusError
from lmexposure.regurgitation import CorpusIndex, look_up
from lmexposure.regurgitation.runs import own_texts
from lmexposure.regurgitation.table import extractable_share
from lmexposure.regurgitation.windows import read_windows
from lmexposure.statistics import binomial_interval


@pytest.mark.parametrize("larger", [0, 1])
def test_of_many_documents_beside_few_some_are_read_whole(case: Case, larger: int) -> None:
    draws = np.random.default_rng(5)
    texts = [[sentence(draws) for _ in range(size)] for size in (300, 6)]
    texts = texts[::-1] if larger else texts
    found: Any = read_windows(
        lambda: texts[0],
        case.loaded.tokenizer,
        replace(SHORT, windows=60),
        separator="\n",
        held_out=lambda: texts[1],
    )
    many, few = found[larger], found[1 - larger]
    assert few.drawn == 6
    assert many.drawn == 120 * 306 // (many.among + few.among) - 6
    asked = len(many.windows) + len(few.windows)
    assert asked == min(120, many.among_drawn + few.among_drawn) >= 100


def test_near_copies_count_once_though_other_windows_of_them_are_drawn(case: Case) -> None:
    draws = np.random.default_rng(6)
    base = " ".join(sentence(draws) for _ in range(30))
    texts = [f"{n} times. {base}" for n in range(4)]
    windows, _ = read_windows(
        lambda: texts, case.loaded.tokenizer, replace(SHORT, windows=12), separator="\n"
    )
    assert len(windows.documents) == 4
    own, _ = own_texts(windows, None, seed=0)
    assert sum(text.unit for text in own) == 1


def test_a_group_of_which_nothing_was_drawn_is_named(case: Case) -> None:
    draws = np.random.default_rng(5)
    long = [" ".join(sentence(draws) for _ in range(60)) for _ in range(2)]
    short = sentence(draws)[:40]
    with pytest.raises(CorpusError, match="none of the 2 windows that were drawn is of the held-"):
        read_windows(
            lambda: long,
            case.loaded.tokenizer,
            replace(SHORT, windows=1),
            separator="\n",
            held_out=lambda: [short],
        )


@pytest.mark.parametrize("thinned", [False, True])
def test_the_interval_holds_where_what_comes_out_is_in_a_few_documents(thinned: bool) -> None:
    """Some documents come out whole: windows of one document are no independent sample."""
    draws = np.random.default_rng(8)
    sizes = draws.integers(1, 40, size=600)
    leaks = draws.random(600) < 0.03
    truth = float((sizes * leaks).sum() / sizes.sum())
    held, naive, widths = 0, 0, []
    for _ in range(300):
        drawn = draws.choice(600, size=60, replace=False)
        owners = np.repeat(drawn, sizes[drawn])
        looked = draws.choice(owners, size=owners.size // 3, replace=False) if thinned else owners
        windows: Any = SimpleNamespace(
            windows=[SimpleNamespace(document=d) for d in looked.tolist()],
            sizes=-np.sort(-sizes),
            among=int(sizes.sum()),
            drawn=60,
            among_drawn=owners.size,
        )
        share = extractable_share(1, leaks[looked], windows, 0.9)
        held += share.low <= truth <= share.high
        widths.append(share.high)
        simple = binomial_interval(share.windows, looked.size, level=0.9)
        naive += bool(simple.low[0] <= truth <= simple.high[0])
    assert held >= 0.9 * 300
    assert naive < 0.6 * 300
    assert thinned or float(np.median(widths)) < 0.4


def naive(documents: list[str], text: str, least: int) -> list[tuple[int, int, int, int, int]]:
    """Every part that is in no longer one: start, stop, document, place, copies."""
    found = []
    reached = 0
    for start in range(len(text)):
        length = 0
        while start + length < len(text) and any(
            text[start : start + length + 1] in document for document in documents
        ):
            length += 1
        part = text[start : start + length]
        if start + length > reached and length >= least:
            holders = [n for n, document in enumerate(documents) if part in document]
            first = holders[0]
            place = documents[first].index(part)
            found.append((start, start + length, first + 1, place, len(holders)))
            reached = start + length
    return found


def random_texts(seed: int) -> tuple[list[str], str]:
    draws = random.Random(seed)
    letters = ("ab", "abé𝄞", "ab ")[seed % 3]
    some = ["".join(draws.choices(letters, k=draws.randint(0, 40))) for _ in range(6)]
    return some[: draws.randint(1, 5)], some[-1]


@pytest.mark.parametrize("seed", range(60))
def test_matches_are_those_of_a_slow_search(seed: int) -> None:
    documents, text = random_texts(seed)
    for least in (2, 3, 5, 8):
        expected = naive(documents, text, least)
        for most in (10, 1 << 20):  # in many shards, and in one
            (found,), (copies,) = look_up(documents, [text], [text[:3]], least=least, most=most)
            own = [(m.start, m.stop, m.document, m.place, m.copies) for m in found]
            assert own == expected
            assert copies == sum(text[:3] in document for document in documents if document)


def test_half_characters_and_empty_documents_do_no_harm() -> None:
    index = CorpusIndex(["", "\ud800 half", "näher dran"], first=7)
    assert index.copies("näher") == 1
    assert index.copies("") == 3
    assert [m.document for m in index.matches("so näher dran", 5)] == [9]
    assert index.matches("", 5) == []
