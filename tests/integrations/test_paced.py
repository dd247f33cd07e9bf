from typing import Any

import numpy as np
import pytest
from integrations.tiny_training import hidden
from tiny import byte_level_bpe, model_of

from lmexposure.integrations.budget import TimeBudget
from lmexposure.integrations.paced import PacedScoring
from lmexposure.integrations.watched import Watched, watch
from lmexposure.scoring import score_encoded

READ = 1.0  # seconds that pass whenever somebody looks at the clock


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += READ
        return self.now


@pytest.fixture(scope="module")
def model() -> Any:
    return model_of("gpt2", len(byte_level_bpe()))


@pytest.fixture(scope="module")
def watched(model: Any) -> Watched:
    _, manifest = hidden()
    return watch(manifest, byte_level_bpe(), model.config, references=300)


def scored(model: Any, watched: Watched, seconds: float) -> int:
    budget = TimeBudget(share=0.1, seconds=seconds, clock=Clock())
    with budget.spending():
        return PacedScoring(watched, budget).score(model).size


def test_enough_time_scores_all_and_right(model: Any, watched: Watched) -> None:
    budget = TimeBudget(share=0.1, seconds=600)
    with budget.spending():
        found = PacedScoring(watched, budget).score(model)
    expected = score_encoded(model, watched.encoded).totals
    assert np.allclose(found, expected, rtol=0, atol=1e-3)


def test_too_little_time_scores_nothing_rather_than_too_few(model: Any, watched: Watched) -> None:
    # The first 15 texts take a second: the least, 67 texts, would take more than is left.
    assert scored(model, watched, 6) == 0


def test_time_for_some_scores_a_beginning(model: Any, watched: Watched) -> None:
    assert watched.least <= scored(model, watched, 11) < len(watched.owners)


def test_no_time_at_all_scores_nothing(model: Any, watched: Watched) -> None:
    assert scored(model, watched, 0.5) == 0
