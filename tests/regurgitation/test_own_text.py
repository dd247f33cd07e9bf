"""Text that others have too: near copies count once, what is held out is taken out."""

import numpy as np
import pytest
from regurgitation.clean_texts import OF_TEXTS
from regurgitation.conftest import Case, sentence
from regurgitation.test_look import SHORT
from scipy import stats

from lmexposure.regurgitation.runs import Run, own_texts
from lmexposure.regurgitation.windows import Windows, read_windows
from lmexposure.statistics import longer_runs


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
