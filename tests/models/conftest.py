"""A small training that several tests look at, and what private ones spend."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from models.small_training import small_lstm, train_small

from lmexposure.models import Progress, dp_sgd, save_model
from lmexposure.models.dp_accounting import epsilon_spent
from lmexposure.studies import TrainingResult


@pytest.fixture(scope="session")
def whole_training(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, TrainingResult, list[Progress]]:
    """The small training, its directory and what it told; to be read only."""
    out, told = tmp_path_factory.mktemp("whole") / "out", list[Progress]()
    return out, train_small(out, progress=told.append), told


@pytest.fixture(scope="session")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three random models for the small corpus, each of which says something else."""
    home, made = tmp_path_factory.mktemp("teachers"), []
    for number in range(3):
        loaded = small_lstm(dropout=0.0)
        draws = torch.Generator().manual_seed(number)
        for weight in loaded.model.parameters():
            weight.data = torch.randn(weight.shape, generator=draws)
        save_model(loaded.model, loaded.tokenizer, home / str(number))
        made.append(home / str(number))
    return made


@cache
def _counted(history: tuple[tuple[float, float, int], ...], delta: float) -> Any:
    return epsilon_spent(history, delta=delta)


@pytest.fixture
def accounted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same trainings spend the same, and a second each to count it."""
    monkeypatch.setattr(
        dp_sgd, "epsilon_spent", lambda history, *, delta: _counted(tuple(history), delta)
    )
