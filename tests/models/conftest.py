"""The small corpus with canaries, and the small model for it."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from models.small_training import CANARIES, small_documents
from models.small_training import small_lstm as make_small_lstm

from lmexposure.models import LoadedModel, dp_sgd
from lmexposure.models.dp_accounting import epsilon_spent


@pytest.fixture
def canaries() -> dict[str, int]:
    return dict(CANARIES)


@pytest.fixture
def documents() -> list[str]:
    return small_documents()


@pytest.fixture
def small_lstm() -> Callable[..., LoadedModel]:
    return make_small_lstm


@cache
def _counted(history: tuple[tuple[float, float, int], ...], delta: float) -> Any:
    return epsilon_spent(history, delta=delta)


@pytest.fixture
def accounted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same trainings spend the same, and a second each to count it."""
    monkeypatch.setattr(
        dp_sgd, "epsilon_spent", lambda history, *, delta: _counted(tuple(history), delta)
    )
