from pathlib import Path

import pytest
from corpora import write_corpus

from lmexposure.audit import MeasureSettings, RunSettings


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus.txt")


@pytest.fixture
def settings() -> RunSettings:
    """A run of a few seconds."""
    return RunSettings(
        formats=("pin",),
        canaries=3,
        repetitions=(1, 30),
        controls=8,
        layers=1,
        units=32,
        training={"epochs": 3, "learning_rate": 0.01},
        measure=MeasureSettings(
            references=500,
            revealed=1,
            budget_steps=20_000,
            draws=1_000,
            guesses=50,
            bootstraps=39,
            permutations=999,
        ),
    )
