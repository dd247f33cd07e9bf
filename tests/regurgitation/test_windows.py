"""What is drawn of a corpus, where its text is, and text that others have too."""

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from clean_looks import Split
from numpy.typing import NDArray
from regurgitation.conftest import WORDS, Case, sentence
from regurgitation.test_look import SHORT
from scipy import stats

from lmexposure.core import Encoded, Part
from lmexposure.errors import CorpusError
from lmexposure.models import Placed
from lmexposure.regurgitation import CorpusIndex, asking, look, look_up, table, verbatim
from lmexposure.regurgitation import runs as following
from lmexposure.regurgitation.runs import SHARED, Run, own_texts, units
from lmexposure.regurgitation.table import described, extractable_share
from lmexposure.regurgitation.windows import Document, Window, Windows, read_windows
from lmexposure.scoring import TorchModel, WindowScores
from lmexposure.statistics import binomial_interval, longer_runs, shuffled_groups_p
from lmexposure.studies import VerbatimPassages, VerbatimRecord

_LETTERS = 26
_PROMPT = 3  # characters of a prompt, each a token
_SHORT = 4  # characters of the shortest run that is kept


def of_texts(
    draws: np.random.Generator,
    *,
    copies: Sequence[int] = (),
    changed: float = 0.02,
    shared: int = 0,
) -> Split:
    """Units of documents of random letters, 30 of them alone, others in clusters of near copies.

    Half of all documents have the shared characters, which the model knows by heart.
    """
    known = draws.integers(_LETTERS, size=shared)
    clusters: list[list[NDArray[np.int64]]] = []
    for size in [1] * 30 + list(copies):
        text = draws.integers(_LETTERS, size=draws.integers(60, 160))
        if shared and draws.random() < 0.5:
            text = np.insert(text, draws.integers(_PROMPT, text.size), known)
        others = draws.integers(_LETTERS, size=(size, text.size))
        edited = np.where(draws.random(others.shape) < changed, others, text)
        clusters.append([text, *edited[1:]])
    inside = draws.permutation(np.arange(len(clusters)) < len(clusters) // 2)
    table = draws.random((_LETTERS,) * 3) < 0.6
    looks = []
    for side in (True, False):
        texts = [text for n, some in enumerate(clusters) if inside[n] == side for text in some]
        looks.append((_windows(texts), [_runs(text, table, known) for text in texts]))
    (corpus, runs), (held_out, other_runs) = looks
    own, others_own = own_texts(corpus, held_out, seed=int(draws.integers(1 << 30)))
    found = units(own, runs, others_own, other_runs)
    assert found is not None
    return found.scores, found.sides, found.strata


OF_TEXTS: dict[str, Callable[[np.random.Generator], Split]] = {
    "near copies": lambda draws: of_texts(draws, copies=(5, 20)),
    "boilerplate in both": lambda draws: of_texts(draws, shared=3 * SHARED),
}


class _OneEach(Windows):
    """One window for each document."""

    def of_document(self, number: int) -> list[int]:
        return [number]


def _windows(texts: Sequence[NDArray[np.int64]]) -> Windows:
    documents, windows = [], []
    for number, codes in enumerate(texts):
        text = "".join(map(chr, (codes + ord("a")).tolist()))
        places = np.arange(codes.size, dtype=np.int64)[:, None] + np.array([0, 1])
        placed = Placed(ids=codes.tolist(), first=0, places=places)
        documents.append(Document(number=number + 1, copies=1, text=text, placed=placed, lead=()))
        windows.append(
            Window(
                document=number,
                place=_PROMPT,
                encoded=Encoded(ids=placed.ids, scored_from=_PROMPT),
                start=_PROMPT,
                stop=codes.size,
            )
        )
    count = len(texts)
    return _OneEach(
        documents=documents,
        windows=windows,
        among=count,
        sizes=np.ones(count, dtype=np.int64),
        drawn=count,
        among_drawn=count,
        read=count,
        distinct=count,
        too_short=0,
        characters=sum(text.size for text in texts),
        sha256="",
    )


def _runs(
    codes: NDArray[np.int64], table: NDArray[np.bool_], known: NDArray[np.int64]
) -> list[Run]:
    """Rows of characters that the model follows behind the prompt, but for the shortest."""
    hits = np.zeros(codes.size + 1, dtype=bool)
    hits[_PROMPT:-1] = table[codes[1:-2], codes[2:-1], codes[3:]]
    if known.size:
        views = np.lib.stride_tricks.sliding_window_view(codes, min(known.size, codes.size))
        for place in np.flatnonzero((views == known[: views.shape[1]]).all(1)).tolist():
            hits[max(_PROMPT, place) : place + known.size] = True
    edges = np.flatnonzero(np.diff(np.concatenate([[False], hits]).astype(int))).reshape(-1, 2)
    return [
        Run(first=start, stop=end, start=start, end=end, prompt=_PROMPT, whole=True)
        for start, end in edges[edges[:, 1] - edges[:, 0] >= _SHORT].tolist()
    ]


def windows(case: Case, texts: list[str]) -> Windows:
    return read_windows(lambda: texts, case.loaded.tokenizer, SHORT, separator="\n")[0]


def whole(text: str) -> list[Run]:
    return [Run(first=1, stop=2, start=0, end=len(text), prompt=1, whole=True)]


def test_near_copies_count_once_and_held_out_text_is_taken_out(case: Case) -> None:
    draws = np.random.default_rng(7)
    base, alone, shared = (sentence(draws) for _ in range(3))
    copies = [base, base.replace(".", " now."), base.replace(".", " again.")]
    corpus = windows(case, [*copies, alone, f"{alone[::-1]} {shared}"])
    held_out = windows(case, [shared, sentence(draws)])
    for seed in range(5):
        own, others = own_texts(corpus, held_out, seed=seed)
        assert sum(text.unit for text in own[:3]) == 1
        assert own[3].unit
        assert own[3].longest(whole(alone)) > len(alone) / 2
        mixed = corpus.documents[4].text
        # The last characters fill no window, and so were not asked for.
        last = SHORT.suffix_tokens - 1
        assert own[4].unheld(whole(mixed)) <= len(mixed) - len(shared) + last
        assert own[4].longest(whole(mixed)) <= len(alone)
        assert others[1].unit


@pytest.mark.parametrize("name", OF_TEXTS)
def test_copies_and_boilerplate_raise_no_alarm(name: str) -> None:
    rejected = 0
    for seed in range(40):
        split = OF_TEXTS[name](np.random.default_rng([seed, 4]))
        found = longer_runs(*split, permutations=99, seed=seed)
        rejected += found is not None and found.p <= 0.1
    assert stats.binom.sf(rejected - 1, 40, 0.1) >= 0.001


FEW = replace(SHORT, windows=120, samples=0, near_windows=0, false_share=0.2)
REPLICATES = 70
MOST = 11  # of 70 at 5 %: more in one of 5,000


def documents(draws: np.random.Generator, n: int) -> list[str]:
    """Long ones of words, and short ones of letters."""
    letters = sorted({letter for word in WORDS for letter in word})
    return [
        "".join(draws.choice(letters, size=draws.integers(33, 40)))
        if draws.random() < 0.5
        else " ".join(draws.choice(WORDS, size=draws.integers(40, 80)))
        for _ in range(n)
    ]


def scored(model: Any, encoded: Sequence[Encoded], *_: Any, **__: Any) -> WindowScores:
    """What a model says that knows words and no document: a function of the text alone."""
    space = model.model.space
    bits, greedy = [], []
    for text in encoded:
        draws = np.random.default_rng(zlib.crc32(np.array(text.ids).tobytes()))
        suffix = text.ids[text.scored_from :]
        greedy.append(draws.random(len(suffix)) < (0.7 if space in suffix else 0.2))
        bits.append(len(suffix) * (2.0 if space in suffix else 4.0) + draws.normal())
    return WindowScores(rule_bits=np.full(len(bits), 90.0), bits=np.array(bits), greedy=(*greedy,))


@pytest.mark.slow
@pytest.mark.parametrize(("corpus", "held_out"), [(150, 12), (12, 150), (60, 60)])
def test_nothing_is_found_where_nothing_was_read(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: int, held_out: int
) -> None:
    for module in (asking, following):
        monkeypatch.setattr(module, "score_windows", scored)
    known = described(TorchModel.of(case.loaded))
    monkeypatch.setattr(look, "described", lambda loaded: known)
    # What is kept on the disk says nothing here, and takes most of the time.
    monkeypatch.setattr(look, "SHOWN", 0)
    monkeypatch.setattr(Part, "write", lambda *_: None)
    monkeypatch.setattr(VerbatimRecord, "write", lambda *_, **__: None)
    monkeypatch.setattr(VerbatimPassages, "write", lambda *_, **__: None)
    monkeypatch.setattr(table, "longer_runs", partial(longer_runs, permutations=199))
    monkeypatch.setattr(table, "shuffled_groups_p", partial(shuffled_groups_p, permutations=199))
    monkeypatch.setattr(
        case.loaded.model, "space", case.loaded.tokenizer(" ")["input_ids"][-1], raising=False
    )
    draws = np.random.default_rng(3)
    alarms = np.zeros(4, dtype=int)  # runs, bits, an interval beside 0, a document named
    for n in range(REPLICATES):
        files = [tmp_path / f"{n}-{side}.txt" for side in ("corpus", "held-out")]
        for path, size in zip(files, (corpus, held_out), strict=True):
            path.write_text("\n".join(documents(draws, size)), encoding="utf-8")
        found: Any = verbatim(
            case.loaded,
            files[0],
            out=tmp_path / str(n),
            held_out=files[1],
            settings=replace(FEW, seed=n),
        )
        assert found.corpus.windows + found.held_out.windows == 2 * FEW.windows
        named = any(row.false_share is not None and row.false_share <= 0.2 for row in found.rows)
        alarms += (
            found.runs.p <= 0.05,
            found.group.p <= 0.05,
            not found.group.low <= 0 <= found.group.high,
            named,
        )
    assert (alarms[:3] <= MOST).all(), alarms
    assert alarms[3] <= 0.2 * REPLICATES + 12, alarms


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
    with pytest.raises(CorpusError, match="none of the 2 passages that were drawn is of the held-"):
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
