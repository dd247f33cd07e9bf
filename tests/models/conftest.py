"""A small training that several tests look at, and what private ones spend."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from models.small_training import train_small

from lmexposure.models import Progress, TrainingResult, dp_sgd
from lmexposure.models.dp_accounting import epsilon_spent


@pytest.fixture(scope="session")
def whole_training(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, TrainingResult, list[Progress]]:
    """The small training, its directory and what it told; to be read only."""
    out, told = tmp_path_factory.mktemp("whole") / "out", list[Progress]()
    return out, train_small(out, progress=told.append), told


@cache
def _counted(history: tuple[tuple[float, float, int], ...], delta: float) -> Any:
    return epsilon_spent(history, delta=delta)


@pytest.fixture
def accounted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same trainings spend the same, and a second each to count it."""
    monkeypatch.setattr(
        dp_sgd, "epsilon_spent", lambda history, *, delta: _counted(tuple(history), delta)
    )
