"""Documents that no model read, of a random split: whatever is drawn, nothing is found."""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from regurgitation.conftest import WORDS, Case
from regurgitation.test_look import SHORT

from lmexposure.core import Encoded, Part
from lmexposure.regurgitation import asking, controls, look, verbatim
from lmexposure.regurgitation import runs as following
from lmexposure.regurgitation.table import described
from lmexposure.scoring import TorchModel, WindowScores
from lmexposure.statistics import longer_runs, shuffled_groups_p
from lmexposure.studies import VerbatimPassages, VerbatimRecord

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
    space = model.space
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
    monkeypatch.setattr(look, "_SHOWN", 0)
    monkeypatch.setattr(Part, "write", lambda *_: None)
    monkeypatch.setattr(VerbatimRecord, "write", lambda *_, **__: None)
    monkeypatch.setattr(VerbatimPassages, "write", lambda *_, **__: None)
    monkeypatch.setattr(controls, "longer_runs", partial(longer_runs, permutations=199))
    monkeypatch.setattr(controls, "shuffled_groups_p", partial(shuffled_groups_p, permutations=199))
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
