from dataclasses import replace
from pathlib import Path

import pytest
from audit.quick import QUICK
from corpora import write_corpus

from lmexposure.audit import RunSettings


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
        seed=0,
        layers=1,
        units=32,
        training={"epochs": 3, "learning_rate": 0.01},
        measure=replace(QUICK, references=500),
    )
